"""Clusters that compute different results from the same average: most go on, who is odd is told, nobody hangs."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ictp2p.machine import Effects
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.messages import Vote
from ictp2p.sync.rounds.notices import OddOneOut, RoundAborted, RoundCommitted, RoundPassed
from ictp2p.sync.rounds.wording import apart
from ictp2p.sync.values import Close, Open, outvoted
from ictp2p.types import ClusterId, PeerId
from tests.sync.rounds.rounds_mesh import A0, B0, C0, CALL, Mesh, peer

ROUNDS = 3
"""In a row that may be decided without a cluster for its digest, before it is told so."""


@dataclass
class Parted(Mesh):
    """Each cluster votes as its camp does, a while after it has the result, and is READY again after each round."""

    camps: dict[str, int] = field(default_factory=dict)
    lags: dict[str, float] = field(default_factory=dict)
    until: dict[str, int] = field(default_factory=dict)
    """From which round on a cluster votes as the first camp does."""
    calls_part: bool = True
    """Whether the camps differ in what a collective call gives, too."""

    def work(self, who: PeerId, opened: Open) -> None:
        name = self.name_of(who)
        parted = opened.spec.kind == "sync" or self.calls_part
        camp = self.camps.get(name, 0) if parted and opened.round < self.until.get(name, 10**9) else 0
        vote = Vote(0, opened.round, opened.attempt, b"digest %d of camp %d" % (opened.round, camp))
        self.count += 1
        heapq.heappush(self.queue, (self.now + self.lags.get(name, 0.0), self.count, who, who, vote))

    def name_of(self, who: PeerId) -> str:
        return next(name for name, leader in self.leaders.items() if leader == who)

    def do(self, who: PeerId, effects: Effects) -> None:
        super().do(who, effects)
        if any(isinstance(effect, OddOneOut) for effect in effects):
            self.training[self.name_of(who)] = False  # its policy has ended with the error
            self.view()

    def train(self, seconds: float) -> None:
        """Whoever trains and brings nothing brings something, from the agreed state."""
        end = self.now + seconds
        while self.now < end:
            for name, trains in self.training.items():
                if trains and self.rounds[self.leaders[name]].explain().startswith("not READY"):
                    self.bases[name] = self.value(self.leaders[name]).state.digest or self.bases[name]
                    self.ready(name)
            self.run(0.05)

    def committed(self, who: PeerId) -> list[list[str]]:
        return [[p.cluster for p in n.open.participants] for n in self.told(who, RoundCommitted)]  # type: ignore[attr-defined]


def parted(camps: dict[str, int], lags: dict[str, float] | None = None, until: dict[str, int] | None = None) -> Parted:
    made = Parted(dict.fromkeys(camps, 1), camps=camps, lags=lags or {}, until=until or {})
    made.found(peer("A", 0))
    return made


def told(m: Parted, name: str) -> list[OddOneOut]:
    return [n for n in m.told(m.leaders[name], OddOneOut) if isinstance(n, OddOneOut)]


CAMPS = st.lists(st.integers(0, 2), min_size=2, max_size=6)
LAGS = st.lists(st.sampled_from([0.0, 0.003, 0.4]), min_size=6, max_size=6)


@given(CAMPS, LAGS)
@example([0, 1], [0.0] * 6)
@example([0, 1, 0], [0.0] * 6)
@example([1, 0, 0], [0.0] * 6)
@example([1, 0, 0], [0.0, 0.0, 0.4, 0.0, 0.0, 0.0])
@example([1, 1, 0, 0, 0], [0.0] * 6)
@settings(max_examples=40, deadline=None)
def test_most_go_on_who_is_odd_is_told_and_nobody_waits_for_ever(camps: list[int], lags: list[float]) -> None:
    """Regression: the coordinator's cluster barred two that agreed with each other, and was alone from then on."""
    names = "ABCDEF"[: len(camps)]
    m = parted(dict(zip(names, camps, strict=True)), dict(zip("ABCDEF", lags, strict=True)))
    camp, size = Counter(camps).most_common(1)[0]
    staying = set(names)
    while len({m.camps[name] for name in staying}) > 1:
        m.train(1.0)
        staying = {name for name in names if not told(m, name)}
        assert m.now < 200.0, f"{staying} neither agree nor are told that they do not"
    assert staying, "somebody goes on"
    m.train(0.5)
    assert staying == {name for name in names if not told(m, name)}
    if 2 * size > len(names):
        assert staying == {name for name in names if m.camps[name] == camp}
        for name in staying:
            assert not m.told(m.leaders[name], RoundPassed)
    for name in staying:
        assert m.committed(m.leaders[name])[-1] == sorted(staying)


@pytest.mark.parametrize("odd", ["A", "B", "C"])
def test_the_odd_one_is_out_of_the_second_attempt_and_told_after_three_rounds(odd: str) -> None:
    """A is the coordinator's. Of three it loses to the two, as anybody would."""
    m = parted({name: int(name == odd) for name in "ABC"})
    m.train(5.0)
    others = [name for name in "ABC" if name != odd]
    (notice,) = told(m, odd)
    assert notice == OddOneOut(ROUNDS, (tuple(map(ClusterId, others)), (ClusterId(odd),)))
    witness = m.leaders[others[0]]
    aborts = [(n.open.round, n.open.attempt) for n in m.told(witness, RoundAborted)]  # type: ignore[attr-defined]
    assert aborts == [(n, 1) for n in range(1, ROUNDS + 1)]
    assert m.committed(witness)[: ROUNDS + 1] == [others] * (ROUNDS + 1)
    assert len(m.told(m.leaders[odd], RoundPassed)) == ROUNDS - 1


def test_a_result_that_is_odd_now_and_then_ends_nothing() -> None:
    m = parted({"A": 0, "B": 0, "C": 1}, until={"C": ROUNDS})
    m.train(5.0)
    assert not told(m, "C")
    assert len(m.told(C0, RoundPassed)) == ROUNDS - 1
    assert m.committed(C0)[-1] == ["A", "B", "C"]
    m.until = {}
    m.train(0.06)
    assert not told(m, "C"), "rounds in between that it was in are none in a row"


def test_a_call_that_all_agree_on_is_no_round_of_the_state() -> None:
    """Regression: a loop that shares its loss between two rounds was never told that its cluster is odd."""
    m = parted({"A": 0, "B": 0, "C": 1})
    m.calls_part = False
    for _ in range(ROUNDS + 1):
        for name in (name for name in "ABC" if m.training[name]):
            m.bases[name] = m.value(m.leaders[name]).state.digest or m.bases[name]
            m.ready(name)
        m.run(1.0)
        for name in (name for name in "ABC" if m.training[name]):
            m.ready(name, replace(CALL))
        m.run(1.0)
    (notice,) = told(m, "C")
    assert notice.rounds == ROUNDS
    assert m.committed(C0) == [["A", "B", "C"]] * (ROUNDS - 1), "those of the calls"


def test_everybody_hears_who_differs_from_whom() -> None:
    m = parted({"A": 0, "B": 1, "C": 0})
    m.train(1.0)
    for who in (A0, B0, C0):
        values = [n.value for n in m.told(who, Decided) if isinstance(n, Decided)]
        camps = [value.camps for value in values if isinstance(value, Close) and value.camps]
        assert set(camps) == {(("A", "C"), ("B",))}


def test_of_a_call_nobody_is_told_more_than_that_it_was_missed() -> None:
    """Its caller has the error of that one call, and may call on."""
    m = parted({"A": 0, "B": 0, "C": 1})
    for _ in range(ROUNDS + 2):
        for name in "ABC":
            m.ready(name, replace(CALL))
        m.run(2.0)
    assert not told(m, "C")
    assert len(m.told(C0, RoundPassed)) == ROUNDS + 2


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4), max_size=4))
def test_a_majority_is_more_than_half_of_those_who_voted(drawn: list[list[str]]) -> None:
    camps = sorted((tuple(map(ClusterId, camp)) for camp in drawn), key=lambda camp: -len(camp))
    voted = [name for camp in camps for name in camp]
    if camps and len(camps[0]) * 2 > len(voted):
        assert outvoted(camps) == {name for camp in camps[1:] for name in camp}
    else:
        assert outvoted(camps) == frozenset()


def test_in_words() -> None:
    a, b, c, d = map(ClusterId, "abcd")
    assert apart(((a, c), (b,))).startswith("the results of b differ from that of a, c; look for")
    assert apart(((a, c), (b, d))).startswith("the results of a, c and b, d differ, and none is that of most; look for")
