"""Which ranges of a leader's tensors belong to which group, and that followers are told of every element once."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from ictp2p.runtime.carried import Carried, gaps, shares
from ictp2p.sync.rounds.modules import NAME, Card, HeldModule
from ictp2p.sync.values import Grouping, Open, Participant, Spec, StateRef
from ictp2p.types import ClusterId, PeerId


def opened(grouping: Grouping, **notes: bytes) -> Open:
    parts = tuple(
        Participant(ClusterId(n), PeerId(f"{i:032x}"), 1, 1.0, note) for i, (n, note) in enumerate(notes.items())
    )
    spec = Spec("sync", "test", "float32", 1, "avg", "none", grouping=grouping)
    me = parts[0].leader
    return Open(bytes(8), (me,), StateRef(1, b"base", ()), me, 2, 1, spec, parts, b"", "", 1.0)


def note(behind: bool, *keys: int) -> bytes:
    held = tuple(HeldModule(bytes([key]) * 8, key, 2 * key) for key in sorted(keys))
    return msgpack.encode({NAME: Card(behind, held).encode()})


def test_a_pair_carries_all() -> None:
    whole, result = [torch.arange(6.0)], [torch.zeros(6)]
    found = shares(opened("pairs", a=b"", b=b"", c=b""), ClusterId("b"), whole, result, lambda key: ())
    ((_, part),) = found.items()
    assert part.inputs is whole
    assert part.outputs is result
    assert part.ranges == ((0, 6),)


def test_modules_lie_apart_by_hand() -> None:
    """B holds 2 and 3, is behind, and gets 2 of a; 3 is its own. Of its vector: 2 at 0, 3 at 2, what it gets at 5."""
    round_ = opened("modules", a=note(False, 1, 2), b=note(True, 2, 3))
    brought, result = torch.arange(5.0), torch.zeros(5 + 4 + 6)
    found = shares(round_, ClusterId("b"), [brought], [result], lambda key: ())
    assert {n: part.ranges for n, part in found.items()} == {1: [(0, 2)], 2: [(2, 5)], 3: [(5, 9)]}
    assert [t.tolist() for t in found[1].inputs] == [[0.0, 1.0]]
    found[3].outputs[0].fill_(7.0)
    assert result.tolist() == [0.0] * 5 + [7.0] * 4 + [0.0] * 6
    assert list(gaps(found.values(), 15)) == [(9, 15)]
    state = [torch.ones(2), torch.zeros(2)]
    given_ = shares(round_, ClusterId("a"), [torch.zeros(3)], [torch.zeros(3)], lambda key: state)
    assert given_[3].outputs == state
    assert given_[3].ranges == ()


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_every_element_is_told_of_once(sizes: list[int], data: st.DataObject) -> None:
    ends = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    ranges = [(ends[n], ends[n + 1]) for n in data.draw(st.sets(st.integers(0, len(sizes) - 1)).map(sorted))]
    part = Carried((), (), ranges)
    count = sum(stop - start for start, stop in ranges)
    cuts = sorted({0, count, *data.draw(st.lists(st.integers(0, count)))})
    told: list[int] = []
    tell = part.told(lambda start, stop: told.extend(range(start, stop)))
    for first, last in itertools.pairwise(cuts):
        tell(first, last)
    rest = [place for start, stop in gaps([part], ends[-1]) for place in range(start, stop)]
    assert told == [place for start, stop in ranges for place in range(start, stop)]
    assert sorted(told + rest) == list(range(ends[-1]))
