from __future__ import annotations

from typing import Literal

from ictp2p.calls.chronicle import Chronicle
from ictp2p.sync.agreement import Decided
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


def test_an_aborted_round_is_nothing_to_miss() -> None:
    assert after(opened(1, OTHER), closed(1, committed=False)).missed is None


def test_rounds_of_the_shared_state_are_not_missed_here() -> None:
    assert after(opened(1, OTHER, kind="sync"), closed(1)).missed is None


def test_decisions_that_were_skipped_count_as_missed() -> None:
    assert after(opened(1, ME), closed(1), opened(4, ME)).missed == 3
    assert after(opened(1, ME), closed(2)).missed == 2


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
