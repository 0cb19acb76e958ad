"""Rounds, in every course that two clusters can take: each is decided once, what was voted for commits, and all end.

Two leaders, both of them voters, who stand READY, hold a result or withdraw, and die between any two effects, each with
the disk that it has at that moment and READY no more. What was said arrives once at most: else an old READY would begin
one attempt after the other, without end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ictp2p.machine import Effects, Notice
from ictp2p.sync.agreement.acceptor import Acceptor
from ictp2p.sync.agreement.chain import Agreement, Decided
from ictp2p.sync.rounds.machine import ClusterView, Contribution, PlanAnswer, Rounds
from ictp2p.sync.rounds.notices import RoundCommitted
from ictp2p.sync.rounds.restore import Stock
from ictp2p.sync.validity import follows
from ictp2p.sync.values import Close, Open, StateRef, Voters
from ictp2p.types import ClusterId
from tests.properties.adversary import SYNC
from tests.properties.exhaustive import Explorer
from tests.properties.voters import PROFILE, peer
from tests.properties.worlds import Even, Move, wait

QUIET = replace(PROFILE, anti_entropy=1e9, quorum_deadline=1e9, restore_after=1e9)
CLUSTERS = 2
BEGINNING = 1
FIRST = StateRef(1, b"initial", ())


class Mesh:
    """Clusters of one worker each, which all vote, and have agreed on a first state."""

    again = False

    def __init__(self, moves: Sequence[Move], deaths: int = 0, claimed: int = -1) -> None:
        self.peers = [peer(i) for i in range(CLUSTERS)]
        self.moves = moves
        self.deaths = deaths
        self.mortal = range(CLUSTERS)
        self._claimed = claimed

    def disk(self, who: int) -> bytes | None:
        acceptor = Acceptor(self.peers[who], None)
        acceptor.learn(BEGINNING, Voters(b"lineage!", tuple(self.peers), FIRST, self.peers[0]))
        return acceptor.persist().value

    def boot(self, who: int, disk: bytes | None) -> Rounds:
        me = self.peers[who]
        machine = Rounds(
            me,
            Agreement(me, disk, Even(), QUIET),
            QUIET,
            Even(),
            lambda request: PlanAnswer(b"plan", "only one"),
            lambda plan, participants: None,
            stock=lambda: Stock((1, FIRST.digest)),
        )
        machine.start(0.0)
        machine.view(views(), 0.0)
        return machine

    def done(self, machine: Rounds) -> bool:
        return self.view(machine) > FIRST.version

    def view(self, machine: Rounds) -> int:
        """Give the version that it knows to be agreed on."""
        return machine.tip[1].state.version if machine.tip is not None else 0

    def fact(self, notice: Notice) -> Notice | None:
        return notice if isinstance(notice, Decided | RoundCommitted) else None

    def check(self, views: Sequence[int], facts: Sequence[Notice]) -> None:
        decided = {}
        for fact in facts:
            if isinstance(fact, Decided):
                known = decided.setdefault(fact.slot, fact.value)
                assert known == fact.value, f"slot {fact.slot} was decided twice: {known} and {fact.value}"
        for slot, value in decided.items():
            if slot + 1 in decided:
                assert follows(value, decided[slot + 1]) is None
            if isinstance(value, Close) and value.committed:
                assert value.digest == result(value.round, value.attempt), f"nobody voted for {value.digest!r}"
        for fact in facts:
            if isinstance(fact, RoundCommitted):
                assert fact.close.committed, f"applied, and aborted: {fact.close}"
                assert fact.close in decided.values(), f"applied, and not decided: {fact.close}"
                assert (fact.close.round, fact.close.attempt) == (fact.open.round, fact.open.attempt)

    def calm(self, who: int, machine: Rounds, now: float) -> Effects:
        """Know the same, stand READY, hold results."""
        effects = [*machine.handle_timeout(now), *machine.view(views(self._claimed), now)]
        effects += [effect for other in self.peers for effect in machine.greet(other, now)]
        if not self.done(machine):
            effects += stand(who, 1 + (who == self._claimed)).act(machine, now) or []
        return effects + (hold(who).act(machine, now) or [])

    def settled(self, views: Sequence[int]) -> bool:
        return min(views) > FIRST.version


def views(claimed: int = -1) -> dict[ClusterId, ClusterView]:
    """Give what membership says: all live, and one leads by a second claim."""
    names = map(peer, range(CLUSTERS))
    return {
        ClusterId(f"c{i}"): ClusterView(name, 1 + (i == claimed), True, False, True, (name,))
        for i, name in enumerate(names)
    }


def result(round_: int, attempt: int) -> bytes:
    """Of each attempt there is another one."""
    return f"{round_}.{attempt}".encode()


def stand(who: int, term: int = 1) -> Move:
    def act(machine: Rounds, now: float) -> Effects:
        contribution = Contribution(ClusterId(f"c{who}"), peer(who), term, 1.0, SYNC, FIRST, b"")
        return machine.ready(contribution, now)

    return Move("stands READY", who, act)


def _bound(machine: Rounds) -> Open | None:
    """The attempt that it has a part in."""
    return machine._part.bound


def hold(who: int) -> Move:
    def act(machine: Rounds, now: float) -> Effects | None:
        bound = _bound(machine)
        if bound is None:
            return None
        return machine.completed(bound.round, bound.attempt, result(bound.round, bound.attempt), now)

    return Move("holds the result", who, act)


def withdraw(who: int) -> Move:
    return Move("withdraws", who, lambda machine, now: machine.withdraw(now))


def see_claim(who: int, of: int) -> Move:
    return Move(f"sees that {of} leads by another claim", who, lambda machine, now: machine.view(views(of), now))


_ALL = [stand(0), stand(1), hold(0), hold(1)]
SMALL = {
    "time passes": Mesh([*_ALL, wait(0)]),
    "two deaths": Mesh(_ALL, deaths=2),
    "a withdrawal": Mesh([*_ALL, withdraw(1)]),
    "a claim and a death": Mesh([*_ALL, see_claim(0, 1)], deaths=1, claimed=1),
    "a death, and time passes": Mesh([*_ALL, wait(0)], deaths=1),
}


@pytest.mark.parametrize("name", SMALL)
def test_in_no_course_is_a_round_decided_twice_or_of_no_vote_and_all_end_in_peace(name: str) -> None:
    world = SMALL[name]
    Explorer(world, most=100_000, peace=world).run()
