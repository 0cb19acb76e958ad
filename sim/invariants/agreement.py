"""Agreement, seen from the disks: what is decided is what a quorum has written down under one ballot.

A value is *chosen* the moment a quorum of acceptors has it on disk under one ballot (Lamport, "Paxos Made Simple",
2001, section 2.2), whether or not anybody knows. So two chosen values are seen here even if nobody lives to learn
the second one, and a decision that was announced without having been chosen is seen when the first peer learns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ictp2p.sync.agreement.acceptor import Acceptor
from ictp2p.sync.messages import Ballot
from ictp2p.sync.validity import follows
from ictp2p.sync.values import Close, Open, Restore, Value, quorum
from ictp2p.types import PeerId
from sim.invariants.finding import Complain

if TYPE_CHECKING:
    from sim.host import Host
    from sim.view import View

Slot = tuple[bytes, int]
"""Lineage and number."""


class Agreement:
    """A1, A6, A8 and A9 of one world; passes decisions on to its ledger.

    Args:
        world: for its ledger and time.
        complain: told breaches.
    """

    def __init__(self, world: View, complain: Complain) -> None:
        self._world = world
        self._complain = complain
        self.values: dict[Slot, Value] = {}
        """Everything decided."""
        self.newest: tuple[int, Value] | None = None
        """The newest decision that anybody has learnt."""
        self._accepted: dict[tuple[Slot, Ballot], dict[PeerId, Value]] = {}
        self._chosen: dict[Slot, Value] = {}
        self._promised: dict[PeerId, tuple[int, Ballot]] = {}

    def decided(self, host: Host, slot: int, value: Value) -> None:
        """A peer learnt a decision."""
        key = (value.lineage, slot)
        known = self.values.get(key)
        if known is not None:
            if known != value:
                self._complain("A1", f"slot {slot}: {host.name} learnt {value}, decided was {known}")
            return
        self.values[key] = value
        if self.newest is None or slot > self.newest[0]:
            self.newest = (slot, value)
        self._compare(key, value, f"{host.name} learnt")
        before = self.values.get((value.lineage, slot - 1))
        if before is not None:
            wrong = follows(before, value)
            if wrong:
                self._complain("A6", f"slot {slot} of {host.name} cannot follow slot {slot - 1}: {wrong}")
        if slot and key not in self._chosen:
            self._complain("A6", f"slot {slot} was decided, as {host.name} learnt, and no quorum has accepted it")
        self._to_ledger(value, before)

    def electorates(self, known: int) -> list[tuple[PeerId, ...]]:
        """The voters that are needed to go on, by peers who know decisions up to `known`.

        They have to learn each later decision from its voters, the last one perhaps before anybody has learnt it.
        """
        if self.newest is None:
            return []
        lineage, values = self.newest[1].lineage, {**self._chosen, **self.values}
        return [value.voters for (chain, slot), value in values.items() if chain == lineage and slot >= known]

    def saved(self, peer: PeerId, stored: bytes) -> None:
        """An acceptor's record is on disk."""
        kept = Acceptor(peer, stored)
        promise = (kept.slot, kept.promised)
        if promise < self._promised.get(peer, promise):
            self._complain("A9", f"{peer} took back its promise {self._promised[peer]} for {promise}")
        self._promised[peer] = promise
        if kept.value is not None and kept.tip is not None:
            self._vote(peer, (kept.tip.lineage, kept.slot + 1), kept.accepted, kept.value, kept.tip.voters)

    def _vote(self, peer: PeerId, key: Slot, ballot: Ballot, value: Value, voters: tuple[PeerId, ...]) -> None:
        votes = self._accepted.setdefault((key, ballot), {})
        votes[peer] = value
        if any(other != value for other in votes.values()):
            self._complain("A1", f"slot {key[1]}: two values were accepted under ballot {ballot}: {votes}")
        if quorum(voters, votes):
            self._compare(key, value, f"a quorum of {len(voters)} accepted")
            self._chosen[key] = value

    def _compare(self, key: Slot, value: Value, who: str) -> None:
        """Whatever was chosen or learnt before must be this value."""
        for known in (self._chosen.get(key), self.values.get(key)):
            if known is not None and known != value:
                self._complain("A1", f"slot {key[1]}: {who} {value}, decided was {known}")

    def _to_ledger(self, value: Value, before: Value | None) -> None:
        ledger, now = self._world.ledger, self._world.now
        match value:
            case Close(committed=True) if isinstance(before, Open) and before.spec.kind == "sync":
                ledger.committed(before, value.state.version, value.state.digest, now)
            case Restore():
                ledger.restored(value.state.version, value.source, value.state.digest, now)
            case _ if value.state.version == 1:
                ledger.adopted(1, value.state.digest, now)
