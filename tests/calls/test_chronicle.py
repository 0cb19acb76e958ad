from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from ictp2p.calls.chronicle import Chronicle, Unseen
from ictp2p.errors import RoundMissed
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.values import Close, Open, Participant, Spec, StateRef, Value
from ictp2p.types import ClusterId, PeerId

ME, MATE, OTHER = PeerId("1" * 32), PeerId("2" * 32), PeerId("3" * 32)
HERE, THERE = ClusterId("here"), ClusterId("there")
STATE = StateRef(0, b"", ())
Kind = Literal["sync", "reduce", "broadcast", "barrier"]


def opened(number: int, *leaders: PeerId, kind: Kind = "reduce", attempt: int = 1) -> Open:
    parts = tuple(Participant(THERE if p == OTHER else HERE, p, 1, 1.0) for p in leaders)
    spec = Spec(kind, "all_reduce", "float32", 4, "avg", "none")
    return Open(b"lineage.", (OTHER,), STATE, OTHER, number, attempt, spec, parts, b"", "", 1.0)


def closed(number: int, committed: bool = True, attempt: int = 1) -> Close:
    holders = (OTHER,) if committed else ()
    return Close(b"lineage.", (OTHER,), STATE, OTHER, number, attempt, committed, b"d", "", holders)


def after(*values: Value, settled: int | None = 0) -> Chronicle:
    chronicle = Chronicle(ME, HERE)
    if settled is not None:
        chronicle.settle(settled)
    for slot, value in enumerate(values):
        chronicle.notice(Decided(slot, value))
    return chronicle


def test_a_round_without_this_cluster_is_missed_until_it_is_settled() -> None:
    chronicle = after(opened(1, OTHER), closed(1))
    assert chronicle.missed == 1
    chronicle.settle()
    assert chronicle.missed is None


def test_a_round_that_this_peer_leads_is_answered_by_leading_it() -> None:
    assert after(opened(1, ME, OTHER), closed(1)).missed is None


def test_a_round_that_a_mate_led_is_missed_unless_its_answer_came() -> None:
    chronicle = after(opened(1, MATE, OTHER), closed(1))
    assert chronicle.missed == 1, "the mate died before it told anybody"
    chronicle.settle(1)
    assert chronicle.missed is None


def given_up(*before: Value, then: tuple[Value, ...] = (), settled: int | None = 0) -> Chronicle:
    """A call began, saw what is `before`, and ended with an error; the next one begins, and there is more."""
    chronicle = after(settled=settled)
    for calls, values in enumerate((before, then)):
        chronicle.begin()
        for slot, value in enumerate(values, 100 * calls):
            chronicle.notice(Decided(slot, value))
        if not calls:
            chronicle.give_up()
    return chronicle


@pytest.mark.parametrize("settled", [0, None])
@pytest.mark.parametrize("heard", ["before", "after"])
def test_what_a_call_that_was_given_up_is_in_is_not_for_the_next_one(heard: str, settled: int | None) -> None:
    """Regression: the retry was taken for the others' next call, whose result came out wrong everywhere."""
    values = (opened(1, ME, OTHER), closed(1))
    chronicle = given_up(*values, settled=settled) if heard == "before" else given_up(*values[:1], then=values[1:])
    assert chronicle.missed == 1
    unseen = chronicle.answer(values[0].spec)
    assert unseen is not None
    assert (unseen.opened, unseen.close) == values, "but it is the answer of the call that is made again"
    chronicle.settle(1)
    assert chronicle.missed is None


def test_what_comes_after_a_call_that_was_given_up_is_answered_by_leading_it() -> None:
    assert given_up(opened(1, ME, OTHER), then=(closed(1, committed=False), opened(1, ME, attempt=2))).missed is None
    done = opened(1, ME, OTHER, attempt=2), closed(1, attempt=2)
    assert given_up(opened(1, ME, OTHER), then=(closed(1, committed=False), *done)).missed is None
    assert given_up(then=(opened(1, ME, OTHER), closed(1))).missed is None


def test_a_newcomer_whose_call_is_in_a_round_that_it_hears_of_later_is_none_any_more() -> None:
    chronicle = given_up(settled=None)
    chronicle.give_up()
    for slot, value in enumerate((opened(1, ME, OTHER), closed(1))):
        chronicle.notice(Decided(slot, value))
    chronicle.begin()
    assert not chronicle.newcomer
    assert chronicle.missed == 1


def test_what_was_accounted_for_is_nobodys_answer() -> None:
    values = (opened(1, ME, OTHER), closed(1))
    chronicle = after(values[0])
    chronicle.settle(1)  # whoever led it may hear of its end before this does
    chronicle.notice(Decided(1, values[1]))
    assert chronicle.answer(values[0].spec) is None


def test_a_newcomer_that_gave_up_before_it_was_in_a_round_is_one_still() -> None:
    assert given_up(opened(1, OTHER), closed(1), opened(2, OTHER), settled=None).newcomer
    assert not given_up(opened(1, OTHER), closed(1), opened(2, ME, OTHER), settled=None).newcomer


def test_an_aborted_round_is_nothing_to_miss() -> None:
    assert after(opened(1, OTHER), closed(1, committed=False)).missed is None


def test_rounds_of_the_shared_state_are_not_missed_here() -> None:
    assert after(opened(1, OTHER, kind="sync"), closed(1)).missed is None


def test_decisions_that_were_skipped_count_as_missed() -> None:
    assert after(opened(1, ME), closed(1), opened(4, ME)).missed == 3
    assert after(opened(1, ME), closed(2)).missed == 2


def made(version: int, value: Value) -> Value:
    """The value, of a mesh whose state has this version by it."""
    return msgspec.structs.replace(value, state=StateRef(version, b"", ()))


@pytest.mark.parametrize(
    ("version", "newest", "missed"),
    [(2 + 5, opened(7, OTHER), None), (2 + 6, closed(7), None), (2 + 4, opened(7, OTHER), 6), (2 + 5, closed(7), 7)],
)
def test_decisions_that_were_skipped_in_a_training_are_of_no_call(
    version: int, newest: Value, missed: int | None
) -> None:
    """Regression: who was away for some rounds of its policy was told that it had missed the call after it."""
    chronicle = after(made(2, opened(1, ME)), made(2, closed(1)), made(version, newest))
    assert chronicle.missed == missed


def test_who_started_after_a_round_that_its_mates_missed_has_missed_it_with_them() -> None:
    newcomer = after(opened(4, OTHER), settled=None)
    assert newcomer.known == 0, "it was promised none"
    newcomer.settle(1)
    newcomer.owe(2, None, 0.0, fresh=True)
    assert newcomer.missed == 2
    assert newcomer.answer(SPEC) is None
    newcomer.settle()
    newcomer.owe(2, None, 0.0, fresh=True)
    assert newcomer.missed is None


def test_who_saw_a_round_that_its_mates_have_no_answer_to_may_have_it() -> None:
    chronicle = after(opened(1, MATE, OTHER), closed(1))
    assert chronicle.known == 1
    chronicle.owe(1, None, 0.0, fresh=False)
    assert chronicle.answer(SPEC) is not None


LOST = Unseen(opened(5, MATE, OTHER), closed(5), (MATE, ME))
"""A round that this worker was in, in this life or before, and whose answer its cluster has not."""


@pytest.mark.parametrize(
    "seen", [(), (opened(6, OTHER),), (closed(5),), (closed(5), opened(6, OTHER)), (LOST.opened, LOST.close)]
)
def test_who_started_after_a_round_may_have_its_answer_by_what_a_mate_shows(seen: tuple[Value, ...]) -> None:
    """Regression: the whole cluster had an error, though its answer was to be had and a mate knew of which round."""
    chronicle = after(*seen, settled=None)
    chronicle.settle(4)
    chronicle.owe(5, LOST, 0.0, fresh=True)
    assert chronicle.known == 5
    assert chronicle.answer(SPEC) == LOST
    with pytest.raises(RoundMissed):
        chronicle.refuse_if_missed()
    chronicle.notice(Decided(9, LOST.opened))
    chronicle.notice(Decided(10, LOST.close))
    assert chronicle.answer(SPEC) == LOST, "it is the same round, though it is heard of as well"
    chronicle.settle()
    assert (chronicle.answer(SPEC), chronicle.missed) == (None, None)


def test_what_a_mate_shows_is_no_way_around_rounds_that_this_worker_knows_to_have_missed() -> None:
    chronicle = after(opened(7, OTHER), closed(7))
    chronicle.owe(5, LOST, 0.0, fresh=False)
    assert chronicle.answer(SPEC) is None
    assert after(opened(4, OTHER), closed(4), LOST.opened, LOST.close).seen is None
    assert after(LOST.opened, LOST.close).seen == msgspec.structs.replace(LOST, workers=())


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("newcomer", [True, False])
def test_who_was_in_a_round_in_a_former_life_is_not_in_it(newcomer: bool, heard: bool, told: bool) -> None:
    """Nobody can tell by the names of those whose tensors are in it."""
    chronicle = after(settled=4)
    if told:
        chronicle.told(1, LOST.opened.participants, (MATE, ME))
    for slot, value in enumerate((LOST.opened, LOST.close) if heard else ()):
        chronicle.notice(Decided(slot, value))
    chronicle.owe(5, LOST, 0.0, fresh=newcomer)
    assert chronicle.absent == (5 if newcomer and not told else 0)


def test_who_has_led_its_first_round_was_in_it() -> None:
    chronicle = after(settled=None)
    chronicle.acts((ME, MATE))
    for slot, value in enumerate((opened(5, ME, OTHER), closed(5))):
        chronicle.notice(Decided(slot, value))
    chronicle.owe(5, None, 0.0, fresh=True)
    assert chronicle.absent == 0


def test_a_newcomer_has_missed_nothing() -> None:
    chronicle = after(opened(1, OTHER), closed(1), settled=None)
    assert chronicle.newcomer
    assert chronicle.missed is None
    chronicle.settle()
    assert (chronicle.newcomer, chronicle.missed) == (False, None)


def test_the_attempt_in_which_one_was_refused_is_found() -> None:
    chronicle = after(opened(1, OTHER))
    before = chronicle.opened
    assert chronicle.opened_after(None, 0.0) is before
    assert chronicle.opened_after(before, 0.0) is None


SPEC = opened(1, OTHER).spec


def test_a_round_with_this_cluster_that_a_dead_mate_led_has_an_answer_to_be_had() -> None:
    chronicle = after(opened(1, MATE, OTHER), closed(1))
    assert chronicle.answer(SPEC) == Unseen(opened(1, MATE, OTHER), closed(1), ())
    assert chronicle.answer(opened(1, OTHER, kind="barrier").spec) is None, "it was another call"
    chronicle.settle()
    assert chronicle.answer(SPEC) is None


def test_a_round_that_this_peer_led_and_did_not_see_the_end_of_has_one_too() -> None:
    chronicle = after(opened(1, ME, OTHER), closed(1))
    assert chronicle.answer(SPEC) is not None
    chronicle.settle()
    assert (chronicle.answer(SPEC), chronicle.settled) == (None, 1)


def test_there_is_no_answer_in_a_round_without_us_nor_in_one_of_several() -> None:
    assert after(opened(1, OTHER), closed(1)).answer(SPEC) is None
    assert after(opened(1, MATE), closed(1), opened(2, OTHER), closed(2)).answer(SPEC) is None
    assert after(opened(1, OTHER), closed(1), opened(2, MATE), closed(2)).answer(SPEC) is None
    assert after(opened(1, MATE), closed(1), opened(4, MATE), closed(4)).answer(SPEC) is None
    assert after(opened(1, MATE), closed(1, attempt=2)).answer(SPEC) is None


def test_the_round_at_whose_end_a_newcomer_finds_the_mesh_hides_no_answer_from_it() -> None:
    """Regression: it was taken for one of which half was not seen, and the newcomer brought the same once more."""
    newcomer = after(closed(4), opened(5, ME, OTHER), closed(5), settled=None)
    assert newcomer.answer(SPEC) == Unseen(opened(5, ME, OTHER), closed(5), ())
    assert after(closed(4), opened(5, ME, OTHER), closed(5)).answer(SPEC) is None
    assert after(closed(4), closed(5), opened(6, ME), closed(6), settled=None).answer(SPEC) is None


def test_decisions_that_were_skipped_are_forgotten_once_they_are_settled() -> None:
    chronicle = after(opened(1, MATE), closed(1), opened(4, MATE), closed(4))
    chronicle.settle(3)
    assert chronicle.answer(SPEC) == Unseen(opened(4, MATE), closed(4), ())


def test_whose_tensors_are_in_a_round_is_known_to_who_brought_them() -> None:
    chronicle = after()
    chronicle.acts((ME, MATE))
    chronicle.notice(Decided(1, opened(1, ME, OTHER)))
    chronicle.acts((ME,))  # in the next group, before it knows how that ended
    chronicle.notice(Decided(2, closed(1)))
    unseen = chronicle.answer(SPEC)
    assert unseen is not None
    assert unseen.workers == (ME, MATE)


@pytest.mark.parametrize(
    ("attempt", "leader", "settled", "known"),
    [(2, MATE, None, (MATE, ME)), (1, MATE, None, ()), (0, MATE, None, ()), (2, OTHER, None, ()), (2, MATE, 1, ())],
)
def test_whose_tensors_are_in_a_round_is_known_to_who_was_told_of_that_attempt(
    attempt: int, leader: PeerId, settled: int | None, known: tuple[PeerId, ...]
) -> None:
    """Regression: who had acted under that leader in the call before took a sum without its tensors for its own."""
    chronicle, begun = after(), opened(2, MATE, OTHER, attempt=2)
    chronicle.acts((MATE, ME))
    chronicle.told(attempt, opened(2, leader, OTHER).participants, (MATE, ME))
    for slot, value in enumerate((opened(1, MATE), closed(1))):
        chronicle.notice(Decided(slot, value))
    chronicle.settle(settled or 0)
    chronicle.settle(1)
    if settled is None:
        chronicle.told(attempt, opened(2, leader, OTHER).participants, (MATE, ME))
    for slot, value in enumerate((begun, closed(2, attempt=2))):
        chronicle.notice(Decided(2 + slot, value))
    unseen = chronicle.answer(SPEC)
    assert unseen is not None
    assert unseen.workers == known


def test_what_was_decided_before_a_newcomers_call_is_not_its_answer() -> None:
    chronicle = after(opened(1, MATE), closed(1), settled=None)
    assert chronicle.answer(SPEC) is not None
    chronicle.begin()
    assert chronicle.answer(SPEC) is None
    chronicle.notice(Decided(2, opened(2, MATE)))
    chronicle.notice(Decided(3, closed(2)))
    assert chronicle.answer(SPEC) is not None
