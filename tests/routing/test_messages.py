from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.routing.algebra import INFINITY
from ictp2p.routing.messages import HIGHEST, Advert, Key, RouteRequest, SeqnoRequest, Update, Wanted, keys, runs

ANY = Update | SeqnoRequest | RouteRequest
CELLS = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 10)), st.tuples(st.integers(0, 2), st.integers(0, 2))
)


@given(CELLS)
def test_runs_say_the_same_in_as_few_words_as_possible(cells: dict[Key, tuple[int, int]]) -> None:
    adverts = [Advert(*run) for run in runs(sorted(cells.items()))]
    assert {key: (a.seqno, a.metric) for a in adverts for key in keys(a, 11)} == cells
    for a, b in itertools.pairwise(adverts):
        assert (a.destination, a.last + 1, a.seqno, a.metric) != (b.destination, b.first, b.seqno, b.metric)


def test_classes_that_this_router_does_not_have_are_left_out() -> None:
    assert list(keys(Advert("d", 1, 31, 0, 0), 3)) == [("d", 1), ("d", 2)]
    assert list(keys(Advert("d", 2, 1, 0, 0), 3)) == []


@pytest.mark.parametrize(
    "message",
    [
        Update((Advert("d" * 63, 0, 10, HIGHEST, INFINITY),), full=True),
        SeqnoRequest((Wanted("d", 0, 0, HIGHEST + 1, 255),)),
        RouteRequest(),
    ],
)
def test_messages_survive_the_wire(message: ANY) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=ANY) == message


@pytest.mark.parametrize(
    "bad",
    [
        [1, [["", 0, 0, 0, 0]], False],
        [1, [["d" * 64, 0, 0, 0, 0]], False],
        [1, [["d", -1, 0, 0, 0]], False],
        [1, [["d", 0, 32, 0, 0]], False],
        [1, [["d", 0, 0, -1, 0]], False],
        [1, [["d", 0, 0, HIGHEST + 1, 0]], False],
        [2, [["d", 0, 0, HIGHEST + 2, 1]]],
        [1, [["d", 0, 0, 0, INFINITY + 1]], False],
        [1, [["d", 0, 0, 0, 1.5]], False],
        [1, [["d", 0, 0, 0]], False],
        [2, [["d", 0, 0, 0, 256]]],
        [2, "d"],
        [4],
    ],
)
def test_what_is_out_of_range_is_not_decoded(bad: list[object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(bad), type=ANY)
