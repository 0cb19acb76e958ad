"""Rounds: who takes part, under which tag, and in which order versions come.

That only bytes of the right attempt reach a sum is not seen by looking at bytes: it is seen by looking at who
listens. A frame reaches a collective only by the pair of its sender and its tag (`ictp2p.bulk.hub`), so it suffices
that every such pair belongs to a decided attempt that binds both ends. Where not all average all, each group moves
under a tag of its own, that of its own plan, which binds its members alone: pairs that meet in one round are fenced
off from each other as attempts are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ictp2p.collectives import plan
from ictp2p.collectives.channel import RoundTag
from ictp2p.sync.values import Open
from ictp2p.types import PeerId
from sim.invariants.agreement import Agreement
from sim.invariants.finding import Complain

if TYPE_CHECKING:
    from sim.host import Host
    from sim.view import View


class Rounds:
    """A2, A5 and E4 of one world.

    Args:
        world: for its ledger.
        agreement: knows what was decided.
        complain: told breaches.
    """

    def __init__(self, world: View, agreement: Agreement, complain: Complain) -> None:
        self._world = world
        self._agreement = agreement
        self._complain = complain
        self._told: dict[tuple[str, int], int] = {}
        self._bound: dict[bytes, tuple[Open, frozenset[PeerId]]] = {}
        self._seen = 0

    def opened(self, host: Host, opened: Open) -> None:
        """A leader takes part in an attempt."""
        mine = [(p.cluster, p.leader) for p in opened.participants]
        if (host.cluster, host.id) not in mine:
            self._complain("E4", f"{host.name} takes part in round {opened.round}, which does not bind it")
        elif host.id is not None:
            self._world.ledger.opened(host.id, opened)

    def told(self, host: Host, version: int) -> None:
        """A peer was told of a new version of the state."""
        key = (host.name, host.lives)
        if version <= self._told.get(key, 0):
            self._complain("A2", f"{host.name} was told version {version} after {self._told[key]}")
        self._told[key] = version

    def listening(self, host: Host) -> None:
        """Frames may arrive at a host: for which attempts?"""
        for peer, tag in host.collectives():
            found = self._attempt(tag)
            if found is None:
                self._complain("A5", f"{host.name} listens to {peer} under a tag of no decided attempt")
            elif host.id not in found[1] or peer not in found[1]:
                text = f"{host.name} listens to {peer} in round {found[0].round}, which does not bind both"
                self._complain("E4", text)

    def _attempt(self, tag: bytes) -> tuple[Open, frozenset[PeerId]] | None:
        """The attempt of a tag; tags of new decisions are made when an unknown one is met."""
        if tag not in self._bound and self._seen < len(self._agreement.values):
            for value in list(self._agreement.values.values())[self._seen :]:
                if isinstance(value, Open):
                    self._bound.update((key, (value, who)) for key, who in _bound_by(value))
            self._seen = len(self._agreement.values)
        return self._bound.get(tag)


def _bound_by(opened: Open) -> Iterator[tuple[bytes, frozenset[PeerId]]]:
    """The tags of an attempt, and whom each binds: participants of the round that average with each other."""
    chosen, leaders = plan.decode(opened.plan), {p.leader for p in opened.participants}
    for one in chosen.groups or (chosen,):
        tag = RoundTag(opened.lineage, opened.round, opened.attempt, one.digest())
        yield tag.wire(), frozenset(PeerId(name) for name in one.participants) & leaders
