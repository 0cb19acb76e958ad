"""Elections, in every course that few workers of a cluster can take: each office is of one life, and all end with one.

Whom somebody sees is given here, right or wrong: others go from its view and come back, are suspected, or die between
any two effects and are back with the disk that they have at that moment. Claims come in any order, late or never. From
each state, be what is under way lost, all end with one leader once all see each other. `EXHAUSTIVE=1` takes a larger
world as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from ictp2p.gossip.election import Election, ElectionProfile, LeaderChanged, Past
from ictp2p.machine import Effect, Effects, Message, Notice
from ictp2p.types import PeerId
from tests.properties.exhaustive import Explorer
from tests.properties.voters import peer
from tests.properties.worlds import Move, wait

PROFILE = ElectionProfile(settle=3.0, repeat=10.0)


@dataclass(frozen=True, slots=True)
class Office(Notice):
    """Somebody leads by its own claim."""

    leader: str
    term: int


class Worker:
    """One worker of a cluster, and what it may never take back."""

    def __init__(self, number: int, workers: int, disk: bytes | None) -> None:
        self.me = peer(number)
        self.everybody = tuple(map(peer, range(workers)))
        self.election = Election(self.me, Past.decode(disk), PROFILE)
        self.election.view(self.everybody, frozenset(), 0.0)

    @property
    def knows(self) -> tuple[int, str]:
        """The highest claim that it has heard."""
        return self.election.term, self.election.leader or ""

    def sees(self, but: Sequence[int], suspects: Sequence[int], now: float) -> Effects:
        """Others are gone from its view, or under suspicion."""
        alive = [name for name in self.everybody if name not in map(peer, but)]
        return self.does(lambda: self.election.view(alive, frozenset(map(peer, suspects)), now))

    def receive(self, sender: str, message: Message, now: float) -> Effects:
        return self.does(lambda: self.election.receive(sender, message, now))

    def handle_timeout(self, now: float) -> Effects:
        return self.does(lambda: self.election.handle_timeout(now))

    def hands_over(self, heir: PeerId) -> Effects:
        return self.does(lambda: self.election.hand_over(heir))

    def next_timeout(self) -> float | None:
        return self.election.next_timeout()

    def does(self, act: Callable[[], Effects]) -> Effects:
        before = self.knows
        effects = [self._told(effect, before) for effect in act()]
        assert self.knows >= before, f"{self.me} goes back from {before} to {self.knows}"
        return effects

    def _told(self, effect: Effect, before: tuple[int, str]) -> Effect:
        if not (isinstance(effect, LeaderChanged) and effect.leader == self.me):
            return effect
        assert effect.term > before[0], f"{self.me} claims term {effect.term}, and knows {before} already"
        return Office(self.me, effect.term)


class Cluster:
    """Workers that all see each other at first, and have never had a leader.

    Args:
        workers: how many.
        moves: what they may come to see, and when they wait.
        deaths: how many there may be.
        mortal: who may die; else everybody.
    """

    again = False

    def __init__(self, workers: int, moves: Sequence[Move], deaths: int = 0, mortal: Sequence[int] = ()) -> None:
        self.peers = [peer(number) for number in range(workers)]
        self.moves = moves
        self.deaths = deaths
        self.mortal = mortal or range(workers)
        self.offices: set[Office] = set()
        """All that were ever held."""

    def disk(self, who: int) -> bytes | None:
        return None

    def boot(self, who: int, disk: bytes | None) -> Worker:
        return Worker(who, len(self.peers), disk)

    def done(self, machine: Worker) -> bool:
        return False

    def view(self, machine: Worker) -> tuple[str, tuple[int, str]]:
        return machine.me, machine.knows

    def fact(self, notice: Notice) -> Office | None:
        return notice if isinstance(notice, Office) else None

    def check(self, views: Sequence[tuple[str, tuple[int, str]]], facts: Sequence[Office]) -> None:
        terms = {me: term for me, (term, _) in views}
        self.offices.update(facts)
        for office in facts:
            assert office.term <= terms[office.leader], f"{office} is forgotten by whoever held it"

    def calm(self, who: int, machine: Worker, now: float) -> Effects:
        """See everybody."""
        return [*machine.sees((), (), now), *machine.handle_timeout(now)]

    def settled(self, views: Sequence[tuple[str, tuple[int, str]]]) -> bool:
        known = {knows for _, knows in views}
        return len(known) == 1 and all(leader for _, leader in known)


def sees(who: int, *, but: Sequence[int] = (), suspects: Sequence[int] = (), uses: int = 1) -> Move:
    words = f"sees all but {list(but)}, and suspects {list(suspects)}"
    return Move(words, who, lambda machine, now: machine.sees(but, suspects, now), uses)


def hands_over(who: int, heir: int) -> Move:
    return Move(f"hands over to {heir}", who, lambda machine, now: machine.hands_over(peer(heir)))


def cut(who: int, other: int) -> list[Move]:
    """One loses sight of another, and sees it again."""
    return [sees(who, but=[other]), sees(who)]


SMALL = {
    "two, cut off from each other": Cluster(2, [wait(0), wait(1), *cut(0, 1), *cut(1, 0)], deaths=2),
    "a leader that goes": Cluster(3, [wait(0), *cut(1, 0), *cut(2, 0), sees(2, but=[0, 1])], deaths=1, mortal=[0]),
    "suspicions": Cluster(
        3, [wait(0), sees(1, but=[0]), sees(2, suspects=[1]), sees(2, but=[0], suspects=[1]), sees(2)], deaths=1
    ),
    "an heir": Cluster(3, [wait(0), hands_over(0, 2), *cut(1, 0), sees(2, but=[1])], deaths=1),
}
LARGE = {
    "three, cut off from each other": Cluster(
        3, [wait(0), wait(1), sees(0, but=[1, 2]), *cut(1, 0), *cut(2, 0)], deaths=1, mortal=[0]
    ),
}
LONG = bool(os.environ.get("EXHAUSTIVE"))
WORLDS = {**SMALL, **LARGE} if LONG else SMALL


@pytest.mark.timeout(7200 if LONG else 120)
@pytest.mark.parametrize("name", WORLDS)
def test_no_office_is_held_twice_and_from_every_state_all_end_with_one_leader(name: str) -> None:
    world = WORLDS[name]
    Explorer(world, most=10_000_000, peace=world, often=1).run()
    assert len(world.offices) >= 5, "nothing was tried that matters"
