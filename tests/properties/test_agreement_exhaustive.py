"""Agreement, in every course that few voters can take: nothing is decided twice, and there is always a way on.

Of each world it is said who may propose what, how often somebody may wait for a timer, and how many may die, each with
the disk that it has at that moment: also between two effects. `EXHAUSTIVE=1` takes the larger worlds, minutes for each.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import replace

import pytest

from ictp2p.machine import Effects, Notice
from ictp2p.sync.agreement.acceptor import Acceptor
from ictp2p.sync.agreement.chain import Agreement, Decided
from ictp2p.sync.values import StateRef, Voters
from tests.properties.exhaustive import Explorer
from tests.properties.voters import PROFILE, peer
from tests.properties.worlds import Even, Move, wait

QUIET = replace(PROFILE, anti_entropy=1e9, quorum_deadline=1e9)
"""Nothing happens by itself."""
BEGINNING = 1
"""Slot of what is decided at first."""


class Chain:
    """Voters that know one decision, of the first of them, and decide what comes after it.

    Args:
        voters: how many.
        moves: what they may do besides.
        deaths: how many there may be.
        mortal: who may die; else everybody.
        slots: how many are decided.
    """

    again = True

    def __init__(
        self, voters: int, moves: Sequence[Move], deaths: int = 0, mortal: Sequence[int] = (), slots: int = 1
    ) -> None:
        self.peers = [peer(i) for i in range(voters)]
        self.moves = moves
        self.deaths = deaths
        self.mortal = mortal or range(voters)
        self._last = BEGINNING + slots

    def disk(self, who: int) -> bytes | None:
        acceptor = Acceptor(self.peers[who], None)
        state = StateRef(0, b"", ())
        acceptor.learn(BEGINNING, Voters(b"lineage!", tuple(self.peers), state, self.peers[0]))
        return acceptor.persist().value

    def boot(self, who: int, disk: bytes | None) -> Agreement:
        machine = Agreement(self.peers[who], disk, Even(), QUIET)
        machine.start(0.0)
        return machine

    def done(self, machine: Agreement) -> bool:
        return machine.slot >= self._last

    def view(self, machine: Agreement) -> int:
        return machine.slot

    def fact(self, notice: Notice) -> Hashable | None:
        return notice if isinstance(notice, Decided) else None

    def check(self, views: Sequence[int], facts: Sequence[Decided]) -> None:
        slots = [fact.slot for fact in facts]
        assert len(set(slots)) == len(slots), f"decided twice: {facts}"

    def calm(self, who: int, machine: Agreement, now: float) -> Effects:
        """The first coordinates."""
        tip = machine.tip
        assert tip is not None
        if who or machine.busy or tip[0] >= self._last or machine.me not in tip[1].voters:
            return machine.handle_timeout(now)
        return machine.propose(change(machine, range(len(self.peers))), now)

    def settled(self, views: Sequence[int]) -> bool:
        return max(views) >= self._last


def change(machine: Agreement, voters: Sequence[int]) -> Voters:
    """A change to these voters, by the one who proposes it."""
    assert machine.tip is not None
    tip = machine.tip[1]
    return Voters(tip.lineage, tuple(map(peer, voters)), tip.state, machine.me, tip.round, tip.attempt)


def propose(who: int, *voters: int, slot: int = BEGINNING + 1, uses: int = 1) -> Move:
    """It proposes that these vote, from that slot on, whether it has proposed something else or not."""

    def act(machine: Agreement, now: float) -> Effects | None:
        if machine.tip is None or machine.slot != slot - 1 or machine.me not in machine.tip[1].voters:
            return None
        return machine.propose(change(machine, voters), now)

    return Move(f"proposes that {voters} vote", who, act, uses)


def suspect(who: int, *others: int) -> Move:
    return Move(f"suspects {others}", who, lambda machine, now: machine.suspects([*map(peer, others)], now))


SMALL = {
    "rivals": Chain(3, [propose(0, 0, 1, 2), propose(1, 1, 2, 0), suspect(0, 1, 2)]),
    "one that dies and wants something else": Chain(3, [propose(0, 0, 1, 2), propose(0, 0, 1)], deaths=2),
    "half with the first": Chain(2, [propose(0, 0, 1, uses=2), propose(1, 1, 0, uses=2)], deaths=2),
    "other wishes": Chain(2, [propose(1, 0, 1), propose(1, 1, 0), wait(1), propose(0, 0, 1), propose(0, 1)], deaths=1),
    "other voters": Chain(
        2, [propose(0, 0), propose(1, 1, 0), propose(0, 0, 1, slot=3), propose(1, 1, slot=3)], deaths=1, slots=2
    ),
    "fewer voters": Chain(3, [propose(0, 0, 1), propose(0, 0, 1, slot=3), propose(1, 1, 2, slot=3)], slots=2),
}
LARGE = {
    "rivals, a death": Chain(3, [propose(0, 0, 1, 2), propose(1, 1, 2, 0)], deaths=1),
    "rivals, one slot later": Chain(
        3, [propose(0, 0, 1, 2), propose(0, 0, 1, slot=3), propose(1, 1, 2, slot=3)], slots=2
    ),
    "three wishes": Chain(3, [propose(1, 0, 1, 2), propose(1, 1, 2, 0), propose(2, 2)]),
    "fewer voters, a death": Chain(
        3, [propose(0, 0, 1), propose(0, 0, 1, 2, slot=3), propose(1, 1, slot=3)], deaths=1, slots=2
    ),
}
LONG = bool(os.environ.get("EXHAUSTIVE"))
WORLDS = {**SMALL, **LARGE} if LONG else SMALL


@pytest.mark.timeout(7200 if LONG else 120)
@pytest.mark.parametrize("name", WORLDS)
def test_in_no_course_is_anything_decided_twice_and_all_end_in_peace(name: str) -> None:
    world = WORLDS[name]
    Explorer(world, most=10_000_000, peace=world).run()
