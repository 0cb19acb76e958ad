"""What is kept of the chain for those who are behind, and what each is sent of it."""

from __future__ import annotations

from dataclasses import replace

from ictp2p.sync.agreement.history import History
from ictp2p.sync.messages import Decision
from ictp2p.sync.values import genesis
from tests.sync.agreement.agreeing import LINEAGE, PROFILE, A, B

KEPT = 4
VALUE = genesis(LINEAGE, A)


def history(newest: int, first: int = 0) -> History:
    made = History(replace(PROFILE, history=KEPT))
    for slot in range(first, newest + 1):
        made.add(slot, VALUE)
    return made


def slots(lesson: list[Decision]) -> list[int]:
    return [each.slot for each in lesson]


def test_who_is_a_little_behind_is_sent_all_that_it_misses_and_who_is_far_behind_the_newest() -> None:
    assert slots(history(9).lesson(B, 5, 0.0)) == [6, 7, 8, 9]
    assert slots(history(9).lesson(B, 4, 0.0)) == [9]
    assert slots(history(9).lesson(B, -1, 0.0)) == [9]


def test_a_lesson_is_not_sent_again_before_an_answer_can_have_come() -> None:
    chain = history(3)
    assert slots(chain.lesson(B, 1, 0.0)) == [2, 3]
    assert slots(chain.lesson(B, 1, 0.0)) == []
    chain.add(4, VALUE)
    assert slots(chain.lesson(B, 1, 0.0)) == [4], "only what came since"
    assert slots(chain.lesson(B, 1, PROFILE.retry)) == [2, 3, 4]


def test_a_lesson_is_sent_again_at_once_where_it_cannot_have_arrived() -> None:
    chain = history(3)
    chain.lesson(B, 1, 0.0)
    chain.lost(B)
    assert slots(chain.lesson(B, 1, 0.0)) == [2, 3], "its connection is another one"
    assert slots(chain.lesson(B, 0, 0.0)) == [1, 2, 3], "it knows less than it did"


def test_a_history_has_no_gap() -> None:
    chain = history(3)
    chain.add(7, VALUE)
    assert (chain.oldest, chain.value(3), chain.value(7)) == (7, None, VALUE)
    assert slots(chain.lesson(B, 5, 0.0)) == [7]
