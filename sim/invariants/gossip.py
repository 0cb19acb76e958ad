"""Gossip: everybody's records are their owners' own, and views only go forward.

The owner of a record in the cluster's view is a peer; in the mesh's view it is whoever led the cluster when it was
signed. What an owner has made is noted before each message that it handles, and when it dies: nothing that it made
can be in anybody's view before that. Who has left by then has no record any more, and may have made some as it went.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ictp2p.gossip.messages import LAST_SEQUENCE, Record
from ictp2p.gossip.swim import Swim
from sim.invariants.finding import Complain

if TYPE_CHECKING:
    from sim.host import Host
    from sim.view import View

Version = tuple[int, int]
Scope = str
_Owner = tuple[Scope, str, bytes]
"""Of records: a member, as who signs for it."""


class Gossip:
    """G3 of one world."""

    def __init__(self, world: View, complain: Complain) -> None:
        self._world = world
        self._complain = complain
        self._made: dict[_Owner, Version] = {}
        self._own: dict[tuple[str, Scope], _Owner] = {}
        """What each host makes records as, in each view in which it does."""
        self._held: dict[tuple[str, Scope], tuple[Swim, dict[str, Version]]] = {}

    def note_own(self, host: Host) -> None:
        """Note what a peer has made so far."""
        core = host.core
        if core is None:
            return
        for scope, group in (("cluster", core.m.members), ("mesh", core.m.mesh)):
            own = group.record
            if own is None:
                self._own.pop((host.name, scope), None)
                continue
            key = self._own[host.name, scope] = (scope, own.member, own.key)
            before = self._made.get(key, (0, 0))
            if own.version < before:
                self._complain("G3", f"{host.name} made record {own.version} after {before}")
            self._made[key] = max(before, own.version)

    def note_last(self, host: Host) -> None:
        """Note what a peer that ends has made; of one that has left, all that it can have before its goodbye."""
        former = {view: key for view, key in self._own.items() if view[0] == host.name}
        self.note_own(host)
        for view, key in former.items():
            if view not in self._own:
                incarnation, _ = self._made[key]
                self._made[key] = (incarnation, LAST_SEQUENCE)

    def look(self, host: Host) -> None:
        """Look through both views of a peer."""
        core = host.core
        if core is None:
            return
        for scope, group in (("cluster", core.m.members), ("mesh", core.m.mesh)):
            known = self._held.get((host.name, scope))
            before = known[1] if known is not None and known[0] is group else {}
            now = {name: member.record.version for name, member in group.members.items()}
            self._held[host.name, scope] = (group, now)
            for name, version in now.items():
                if version < before.get(name, version):
                    self._complain("G3", f"{host.name} went back from record {before[name]} of {name} to {version}")
                self._genuine(host, scope, group.members[name].record)

    def _genuine(self, host: Host, scope: Scope, record: Record) -> None:
        if record.left:
            return  # a goodbye is the last record, made as its owner goes
        made = self._made.get((scope, record.member, record.key))
        if made is None or record.version > made:
            text = f"{host.name} holds record {record.version} of {record.member}, whose owner has made {made}"
            self._complain("G3", text)
