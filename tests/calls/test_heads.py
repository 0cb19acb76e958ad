from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.calls.heads import Flag, Head, Heads

A, B = b"a" * 32, b"b" * 32


def heads(*given: tuple[int, Flag], rank: int = 0, version: int = 0) -> Heads:
    return Heads(tuple(Head(number, version, A, 1.0, flags) for number, flags in given), rank)


def test_who_has_ended_the_last_call_hands_it_to_who_waits_for_it() -> None:
    found = heads((3, Flag.NONE), (4, Flag.ENDED), (4, Flag.NONE), rank=0)
    assert (found.giver, found.behind, found.needs, found.lost) == (1, (0,), True, False)
    assert not heads((3, Flag.NONE), (4, Flag.NONE), rank=1).needs


def test_who_is_two_calls_behind_is_lost() -> None:
    found = heads((2, Flag.NONE), (4, Flag.NONE), rank=0)
    assert (found.giver, found.lost, found.needs) == (None, True, False)
    assert not heads((2, Flag.NONE), (4, Flag.NONE), rank=1).lost


@given(st.integers(0, 9), st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))
def test_who_slept_while_newcomers_began_is_in_another_sequence_than_they(
    calls: int, first: int, later: int, more: int
) -> None:
    slept = heads((0, Flag.FRESH), (0, Flag.FRESH)).number(first) + calls
    newcomer = heads((0, Flag.FRESH)).number(first + later) + more
    found = heads((slept, Flag.NONE), (newcomer, Flag.NONE))
    assert found.lost
    assert (found.giver, found.behind) == (None, (0,))
    assert heads((slept, Flag.NONE), (0, Flag.FRESH)).number(99) == slept + 1, "a newcomer takes its number from others"


@pytest.mark.parametrize(
    ("flags", "witness"),
    [
        ((Flag.NONE, Flag.NONE, Flag.NONE), None),
        ((Flag.NONE, Flag.SAW, Flag.SAW), 1),
        ((Flag.NONE, Flag.SAW, Flag.SAW | Flag.TOLD), 2),
        ((Flag.SAW | Flag.TOLD, Flag.NONE, Flag.SAW), 2),
    ],
)
def test_who_saw_the_newest_round_shows_it_and_rather_one_that_knows_whose_tensors_are_in_it(
    flags: tuple[Flag, ...], witness: int | None
) -> None:
    known = (4, 5, 5)  # the first one has seen an older round
    found = Heads(tuple(Head(7, 0, A, 1.0, f, 3, k) for f, k in zip(flags, known, strict=True)), 0)
    assert found.witness == witness
    settled = Heads((*found.all, Head(7, 0, A, 1.0, Flag.SAW, 5, 5)), 0)
    assert settled.witness is None, "it is accounted for"


def test_who_only_sees_others_off_waits_for_nothing() -> None:
    assert heads((3, Flag.ENDED), (4, Flag.NONE)).behind == ()


def test_a_newcomer_is_behind_nobody_and_is_shown_the_state_only_between_other_calls() -> None:
    newcomer = Head(0, 0, B, 1.0, Flag.FRESH | Flag.STATE)
    other = Head(7, 3, A, 1.0, Flag.NONE)
    found = Heads((newcomer, other), 0)
    assert (found.behind, found.teacher, found.taught) == ((), 1, True)
    together = Heads((newcomer, Head(7, 3, B, 1.0, Flag.STATE)), 0)
    assert together.teacher is None
    assert Heads((newcomer, Head(7, 0, A, 1.0, Flag.NONE)), 0).teacher is None


flags = st.sampled_from([Flag.NONE, Flag.FRESH, Flag.ENDED])
lists = st.lists(st.tuples(st.integers(0, 4), flags), min_size=1, max_size=5)


@given(lists)
def test_all_workers_conclude_the_same_and_a_giver_has_what_is_needed(given: list[tuple[int, Flag]]) -> None:
    views = [heads(*given, rank=rank) for rank in range(len(given))]
    assert len({(v.giver, v.behind, v.moves, v.ended, v.newest, v.teacher) for v in views}) == 1
    giver = views[0].giver
    assert (giver is not None) == any(view.needs for view in views)
    assert giver is None or given[giver][0] == views[0].newest
    assert not any(view.needs and view.lost for view in views)


def test_a_head_survives_its_bytes() -> None:
    class Alone:
        rank = 0

        def all_gather(self, data: bytes) -> list[bytes]:
            return [data]

    from ictp2p.calls.heads import exchange

    head = Head(2**40, 5, B, 0.25, Flag.MOVES | Flag.STATE, 7, 2**33)
    found = exchange(Alone(), head)  # type: ignore[arg-type]
    assert found.mine == head
    assert found.moves
