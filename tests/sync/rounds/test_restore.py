"""When the coordinator goes back to an older version of the state, and when it must not."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.messages import Holding
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.notices import StateAdvanced, StateMissing, StateRestored, StateStale
from ictp2p.sync.rounds.participant import Contribution, Part
from ictp2p.sync.rounds.restore import NOTHING, Finding, Held, Survey, restoring
from ictp2p.sync.rounds.sight import ClusterView, Sight
from ictp2p.sync.validity import follows
from ictp2p.sync.values import Restore, Spec, StateRef, Voters
from ictp2p.types import ClusterId, PeerId

PROFILE = replace(RoundProfile.local(), restore_after=10.0, anti_entropy=1.0)
A, B, C, D = (PeerId(f"{n:032x}") for n in range(4))
LOST = StateRef(7, b"seven", (D,))
TIP = Voters(b"lineage!", (A, B, C), LOST, A, 3, 2)


@dataclass
class Office:
    """Coordinator A's survey of B and C, which vote too, and of D, which held the state."""

    mine: Held = NOTHING
    answers: dict[PeerId, Held] = field(default_factory=dict)
    dead: set[PeerId] = field(default_factory=set)
    suspected: set[PeerId] = field(default_factory=set)
    profile: RoundProfile = PROFILE
    now: float = 0.0
    unready: set[PeerId] = field(default_factory=set)
    """Whose workers may yet bring a checkpoint."""
    seen: dict[PeerId, int] = field(default_factory=dict)
    """From which version on each has seen them agreed on, where that is not all."""

    def __post_init__(self) -> None:
        self.sight = Sight(A, PROFILE.voter_grace, 0.0)
        ready, seen = (lambda: A not in self.unready), (lambda: self.seen.get(A, 0))
        self.survey = Survey(A, self.profile, self.sight, lambda: self.mine, ready, seen)
        self.alarms: list[StateMissing] = []
        self.asked: list[PeerId] = []
        self.view()

    def view(self) -> None:
        self.sight.update(
            {
                ClusterId(f"c{p[-1]}"): ClusterView(p, 1, p not in self.dead, p in self.suspected, True, (p,))
                for p in (A, B, C, D)
            },
            0.0,
        )

    def look(self) -> Finding:
        found = self.survey.look(TIP, self.now)
        for peer in found.ask:
            self.asked.append(peer)
            if peer in self.answers:
                answer = Holding(9, *self.answers[peer], peer not in self.unready, self.seen.get(peer, 0))
                self.survey.heard(peer, answer, self.now)
        if found.alarm is not None:
            self.alarms.append(found.alarm)
        return self.survey.look(TIP, self.now) if found.ask else found

    def until(self, seconds: float) -> Finding:
        """Look whenever the survey wants to be asked, until it has something to propose or the time is over."""
        end = self.now + seconds
        while True:
            found = self.look()
            assert found.wake is None or found.wake > self.now
            if found.source is not None or found.wake is None or found.wake > end:
                self.now = self.now if found.source is not None else end
                return found
            self.now = found.wake


def test_a_state_that_the_coordinator_holds_is_never_asked_for() -> None:
    office = Office(mine=(7, b"seven"))
    assert office.until(100.0) == Finding()
    assert office.asked == []


def test_equal_bytes_are_the_state_whatever_version_they_were() -> None:
    assert Office(mine=(3, b"seven")).until(100.0) == Finding()


def test_one_holder_among_those_who_live_is_enough_and_is_asked_again() -> None:
    office = Office(answers={B: (6, b"six"), C: NOTHING, D: (7, b"seven")})
    assert office.until(50.0).source is None
    assert office.asked.count(D) > 10
    assert office.alarms == []


def test_the_newest_version_that_somebody_holds_comes_next_once_the_time_is_over() -> None:
    office = Office(mine=(5, b"five"), answers={B: (6, b"six"), C: (6, b"six")}, dead={D})
    found = office.until(100.0)
    assert office.now == PROFILE.restore_after
    assert (found.source, found.holders) == ((6, b"six"), (B, C))
    value = restoring(TIP, TIP.voters, A, found)
    assert value is not None
    assert value.state == StateRef(8, b"six", (B, C))
    assert follows(TIP, value) is None
    assert [(a.ref.version, a.source) for a in office.alarms] == [(7, 6)]


def test_other_bytes_under_the_lost_version_are_no_state_to_go_back_to() -> None:
    """Regression: it was proposed that version 7 stand in for version 7, which is refused, at every input again."""
    office = Office(mine=(6, b"six"), answers={B: (7, b"other"), C: (5, b"five")}, dead={D})
    found = office.until(100.0)
    assert (found.source, found.holders) == ((6, b"six"), (A,))
    value = restoring(TIP, TIP.voters, A, found)
    assert value is not None
    assert follows(TIP, value) is None


def test_nothing_is_proposed_before_a_quorum_of_the_voters_has_said_what_it_holds() -> None:
    office = Office(mine=(6, b"six"), dead={D})
    found = office.until(1000.0)
    assert found.source is None
    assert "have yet to say" in found.reason
    office.answers[C] = NOTHING
    assert office.until(PROFILE.anti_entropy).source == (6, b"six")


def test_an_answer_counts_only_for_a_while() -> None:
    office = Office(mine=(6, b"six"), answers={B: NOTHING}, dead={D})
    office.until(5.0)
    del office.answers[B]
    assert office.until(1000.0).source is None


def test_a_holder_that_nobody_calls_dead_is_given_the_same_time_again() -> None:
    for kind in ("suspected", "silent"):
        office = Office(mine=(6, b"six"), answers={B: NOTHING, C: NOTHING})
        if kind == "suspected":
            office.suspected = {D}
            office.view()
        assert office.until(100.0).source == (6, b"six")
        assert office.now == 2 * PROFILE.restore_after
    office = Office(mine=(6, b"six"), answers={B: NOTHING, C: NOTHING})
    assert office.until(PROFILE.restore_after + 1).source is None
    office.dead = {D}
    office.view()
    assert office.look().source == (6, b"six")


def test_where_all_are_back_without_it_nobody_is_waited_for() -> None:
    """Regression: a worker that was killed as the only holder, and started again, halted all for `restore_after`."""
    answers = {B: (5, b"five"), C: NOTHING, D: NOTHING}
    office = Office(mine=(6, b"six"), answers=answers)
    assert office.until(100.0).source == (6, b"six")
    assert office.now == 3 * PROFILE.anti_entropy < PROFILE.restore_after
    for case in (
        Office(mine=(6, b"six"), answers=answers, dead={D}),
        *(Office(mine=(6, b"six"), answers={p: a for p, a in answers.items() if p != one}) for one in (B, C, D)),
        *(Office(mine=(6, b"six"), answers=answers, unready={one}) for one in (A, B, C, D)),
        Office(mine=(6, b"six"), answers=answers, seen=dict.fromkeys((A, B, C, D), LOST.version + 1)),
    ):
        assert case.until(PROFILE.restore_after - 1).source is None, case
        assert case.until(100.0).source == (6, b"six")
    for one in (A, B, C, D):
        seen = {other: LOST.version if other == one else LOST.version + 1 for other in (A, B, C, D)}
        lived = Office(mine=(6, b"six"), answers=answers, seen=seen)
        assert lived.until(PROFILE.restore_after - 1).source == (6, b"six"), "one who was there is enough"
    never = Office(mine=(6, b"six"), answers=answers, profile=replace(PROFILE, restore_after=math.inf))
    assert never.until(10000.0).source is None


def test_a_holder_that_returns_begins_the_time_anew() -> None:
    office = Office(mine=(6, b"six"), answers={B: NOTHING, C: NOTHING}, dead={D})
    office.until(9.0)
    office.dead, office.answers[D] = set(), (7, b"seven")
    office.view()
    office.until(4.0)
    office.dead = {D}
    office.view()
    began = office.now
    assert office.until(100.0).source == (6, b"six")
    assert office.now >= began + PROFILE.restore_after


def test_the_word_of_the_dead_does_not_count() -> None:
    office = Office(mine=(5, b"five"), answers={B: NOTHING, C: NOTHING, D: (6, b"six")})
    office.until(9.0)
    office.dead = {D}
    office.view()
    assert office.until(100.0).source == (5, b"five")


def test_somebody_who_is_further_knows_of_a_later_decision() -> None:
    office = Office(mine=(6, b"six"), answers={B: (8, b"eight"), C: NOTHING}, dead={D})
    assert office.until(100.0).source is None


def test_another_coordinator_begins_the_time_anew() -> None:
    office = Office(mine=(6, b"six"), answers={B: NOTHING, C: NOTHING}, dead={D})
    office.until(9.0)
    office.survey.reset()
    assert office.until(9.0).source is None


def test_of_states_that_were_brought_along_the_one_that_most_have_is_taken() -> None:
    office = Office(mine=(0, b"mine"), answers={B: (0, b"theirs"), C: (0, b"theirs")}, dead={D})
    found = office.until(100.0)
    assert (found.source, found.holders) == ((0, b"theirs"), (B, C))


@given(
    held=st.lists(st.tuples(st.integers(0, 6), st.sampled_from([b"x", b"y"])), min_size=4, max_size=4),
    speak=st.sets(st.sampled_from([B, C, D])),
)
def test_the_newest_version_is_gone_back_to_however_many_hold_an_older_one(
    held: list[Held], speak: set[PeerId]
) -> None:
    """Of checkpoints too: they are held as the version that they are of."""
    office = Office(mine=held[0], answers=dict(zip((B, C, D), held[1:], strict=True)))
    office.answers = {peer: answer for peer, answer in office.answers.items() if peer in speak or peer == B}
    found = office.until(100.0)
    known = {A: held[0], **office.answers}
    assert found.source is not None
    assert found.source[0] == max(version for version, _ in known.values())
    assert set(found.holders) == {peer for peer, each in known.items() if each == found.source}


def test_where_nobody_holds_anything_it_says_so_and_waits() -> None:
    office = Office(answers={B: NOTHING, C: NOTHING}, dead={D})
    found = office.until(1000.0)
    assert found.source is None
    assert "`load` a checkpoint; a new training takes empty data folders" in found.reason
    assert [a.source for a in office.alarms] == [None]
    office.answers[B] = (0, b"from a checkpoint")
    assert office.until(PROFILE.anti_entropy).source == (0, b"from a checkpoint")


def test_it_may_be_told_never_to_go_back() -> None:
    office = Office(
        mine=(6, b"six"), answers={B: NOTHING, C: NOTHING}, dead={D}, profile=replace(PROFILE, restore_after=math.inf)
    )
    assert office.until(10000.0).source is None
    assert len(office.alarms) == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"source": 7}, "cannot stand in"),
        ({"state": StateRef(7, b"six", (B,))}, "version 8"),
        ({"state": StateRef(9, b"six", (B,))}, "version 8"),
        ({"state": StateRef(8, b"six", ())}, "providers"),
        ({"state": StateRef(8, b"", (B,))}, "version 8"),
    ],
)
def test_a_restore_that_cannot_be_is_refused(change: dict[str, object], named: str) -> None:
    value = Restore(b"lineage!", (A, B, C), StateRef(8, b"six", (B,)), A, 3, 2, 6, "lost")
    assert follows(TIP, value) is None
    assert named in str(follows(TIP, msgspec.structs.replace(value, **change)))


def test_a_contribution_does_not_stand_through_a_restore_of_its_own_base() -> None:
    """Its bytes are agreed again, but under a number from which nobody could tell whether it was counted meanwhile."""
    part = Part(A, lambda plan, participants: None)
    spec = Spec("sync", "diloco", "float32", 1, "avg", "none")
    before = Voters(b"lineage!", (A,), StateRef(6, b"six", (A,)), A, 3, 2)
    assert part.stand(Contribution(ClusterId("a"), A, 1, 1.0, spec, before.state), before) == []
    agreed = StateRef(8, b"six", (A,))
    notices = part.decided(Restore(b"lineage!", (A,), agreed, A, 3, 2, 6, "7 is lost"))
    assert [type(n) for n in notices] == [StateRestored, StateAdvanced, StateStale]
    assert part.standing is None
    assert part.stand(Contribution(ClusterId("a"), A, 1, 1.0, spec, agreed), TIP) == [StateStale(LOST)]
