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
_View = tuple[str, Scope]
"""A host's name, and which of its two views."""


class Gossip:
    """G3 of one world."""

    def __init__(self, world: View, complain: Complain) -> None:
        self._world = world
        self._complain = complain
        self._made: dict[_Owner, Version] = {}
        """The newest that each was seen to have made while it lived: what it makes next is newer."""
        self._last: dict[_Owner, Version] = {}
        """What it may have made beyond that as it ended, told or not: others may hold as much."""
        self._own: dict[str, dict[Scope, Record]] = {}
        """The newest record that each host was seen to have made, in each view in which it makes some."""
        self._held: dict[_View, tuple[Swim, dict[str, Version]]] = {}

    def note_own(self, host: Host) -> None:
        """Note what a peer has made so far: nothing new, before most of the messages that it handles."""
        made = _records(host)
        if made == self._own.get(host.name):
            return
        self._own[host.name] = made
        for scope, record in made.items():
            owner = _owner(scope, record)
            before = self._made.get(owner, (0, 0))
            if record.version < before:
                self._complain("G3", f"{host.name} made record {record.version} after {before}")
            self._made[owner] = max(before, record.version)

    def note_last(self, host: Host) -> None:
        """Note what a peer that ends has made; of one that has left, all that it can have before its goodbye."""
        made, before = _records(host), self._own.pop(host.name, {})
        for scope, record in made.items():
            owner = _owner(scope, record)
            self._last[owner] = max(self._last.get(owner, (0, 0)), record.version)
        for scope, record in before.items():
            if scope not in made:
                self._last[_owner(scope, record)] = (record.incarnation, LAST_SEQUENCE)

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
        owner = _owner(scope, record)
        made = max(self._made.get(owner, (0, 0)), self._last.get(owner, (0, 0)))
        if record.version > made:
            text = f"{host.name} holds record {record.version} of {record.member}, whose owner has made {made}"
            self._complain("G3", text)


def _records(host: Host) -> dict[Scope, Record]:
    """The newest that a peer has made, in each view in which it does."""
    core = host.core
    groups = () if core is None else (("cluster", core.m.members), ("mesh", core.m.mesh))
    return {scope: own for scope, group in groups if (own := group.record) is not None}


def _owner(scope: Scope, record: Record) -> _Owner:
    return scope, record.member, record.key
