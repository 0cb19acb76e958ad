from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ictp2p.calls.heads import Flag, Head, Heads, Place
from ictp2p.sync.rosters.roster import Generation

A, B = b"a" * 32, b"b" * 32
SEVENTH = Place(1, 1, 7)


def heads(*given: tuple[int | Place, Flag], rank: int = 0, version: int = 0) -> Heads:
    places = (Place(1, 1, place) if isinstance(place, int) else place for place, _ in given)
    return Heads(tuple(Head(p, version, A, 1.0, flags) for p, (_, flags) in zip(places, given, strict=True)), rank)


def test_who_has_ended_the_last_call_hands_it_to_who_waits_for_it() -> None:
    found = heads((3, Flag.NONE), (4, Flag.ENDED), (4, Flag.NONE), rank=0)
    assert (found.giver, found.behind, found.needs, found.lost) == (1, (0,), True, False)
    assert not heads((3, Flag.NONE), (4, Flag.NONE), rank=1).needs


def test_who_is_two_calls_behind_is_lost() -> None:
    found = heads((2, Flag.NONE), (4, Flag.NONE), rank=0)
    assert (found.giver, found.lost, found.needs) == (None, True, False)
    assert not heads((2, Flag.NONE), (4, Flag.NONE), rank=1).lost


generations = st.tuples(st.integers(1, 9), st.integers(1, 9))


@given(st.integers(1, 9), generations, generations, st.integers(1, 9))
def test_who_slept_while_newcomers_began_is_in_another_sequence_than_they(
    calls: int, one: Generation, other: Generation, more: int
) -> None:
    """Regression: a first call that was in no round began one below its own, whose old answers it was handed."""
    assume(one != other)
    slept = heads((Place(), Flag.FRESH), (Place(), Flag.FRESH)).here(min(one, other))
    newcomer = heads((Place(), Flag.FRESH)).here(max(one, other))
    slept, newcomer = slept._replace(call=calls), newcomer._replace(call=more)
    found = heads((slept, Flag.NONE), (newcomer, Flag.NONE))
    assert found.lost
    assert (found.giver, found.behind) == (None, (0,))
    joined = heads((slept, Flag.NONE), (Place(), Flag.FRESH)).here((99, 1))
    assert joined == slept.next, "a newcomer takes its place from others"


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
    found = Heads(tuple(Head(SEVENTH, 0, A, 1.0, f, 3, k) for f, k in zip(flags, known, strict=True)), 0)
    assert found.witness == witness
    settled = Heads((*found.all, Head(SEVENTH, 0, A, 1.0, Flag.SAW, 5, 5)), 0)
    assert settled.witness is None, "it is accounted for"


def test_who_only_sees_others_off_waits_for_nothing() -> None:
    assert heads((3, Flag.ENDED), (4, Flag.NONE)).behind == ()


def test_a_newcomer_is_behind_nobody_and_is_shown_the_state_only_between_other_calls() -> None:
    newcomer = Head(Place(), 0, B, 1.0, Flag.FRESH | Flag.STATE)
    other = Head(SEVENTH, 3, A, 1.0, Flag.NONE)
    found = Heads((newcomer, other), 0)
    assert (found.behind, found.teacher, found.taught) == ((), 1, True)
    together = Heads((newcomer, Head(SEVENTH, 3, B, 1.0, Flag.STATE)), 0)
    assert together.teacher is None
    assert Heads((newcomer, Head(SEVENTH, 0, A, 1.0, Flag.NONE)), 0).teacher is None


flags = st.sampled_from([Flag.NONE, Flag.FRESH, Flag.ENDED])
lists = st.lists(st.tuples(st.integers(0, 4), flags), min_size=1, max_size=5)


@given(lists)
def test_all_workers_conclude_the_same_and_a_giver_has_what_is_needed(given: list[tuple[int, Flag]]) -> None:
    views = [heads(*given, rank=rank) for rank in range(len(given))]
    assert len({(v.giver, v.behind, v.moves, v.ended, v.newest, v.teacher) for v in views}) == 1
    giver = views[0].giver
    assert (giver is not None) == any(view.needs for view in views)
    assert giver is None or given[giver][0] == views[0].newest.call
    assert not any(view.needs and view.lost for view in views)


def test_a_head_survives_its_bytes() -> None:
    class Alone:
        rank = 0

        def all_gather(self, data: bytes) -> list[bytes]:
            return [data]

    from ictp2p.calls.heads import exchange

    head = Head(Place(2**40, 3, 2**33), 5, B, 0.25, Flag.MOVES | Flag.STATE, 7, 2**33)
    found = exchange(Alone(), head)  # type: ignore[arg-type]
    assert found.mine == head
    assert found.moves
