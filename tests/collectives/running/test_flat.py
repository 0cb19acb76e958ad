from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.collectives.running.flat import Flat
from ictp2p.errors import ConfigError


@given(st.lists(st.integers(0, 7), max_size=6), st.data())
def test_a_range_of_a_list_is_the_range_of_its_concatenation(sizes: list[int], data: st.DataObject) -> None:
    flat = Flat([torch.arange(size, dtype=torch.int32) + 100 * n for n, size in enumerate(sizes)])
    whole = [100 * n + element for n, size in enumerate(sizes) for element in range(size)]
    assert flat.elements == len(whole)
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    assert [int(x) for array in flat.arrays(start, stop) for x in array] == whole[start:stop]
    assert b"".join(flat.views(start, stop)) == np.array(whole[start:stop], np.int32).tobytes()


def test_writing_a_range_changes_the_tensors_themselves() -> None:
    tensors = [torch.zeros(2), torch.tensor(0.0), torch.zeros(2, 2)]
    Flat(tensors).write(1, 5, memoryview(np.arange(4, dtype=np.float32).tobytes()))
    assert [t.tolist() for t in tensors] == [[0, 0], 1, [[2, 3], [0, 0]]]


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_tensors_that_were_seen_as_one_can_be_freed_and_grow_again(dtype: torch.dtype, inference: bool) -> None:
    """Regression: FSDP1, which frees what it has gathered by resizing its storage, failed."""
    with torch.inference_mode(inference):
        tensor = torch.arange(4).to(dtype)
    views = Flat([tensor]).views(0, 4)
    assert bytes(views[0]) == bytes(tensor.view(torch.uint8).tolist())
    del views
    with torch.inference_mode(inference):
        tensor.untyped_storage().resize_(0)
        tensor.untyped_storage().resize_(4 * tensor.itemsize)


def test_what_is_seen_lives_as_long_as_it_is_seen() -> None:
    views = Flat([torch.full((1000,), 7, dtype=torch.uint8)]).views(0, 1000)
    others = [torch.zeros(1000, dtype=torch.uint8) for _ in range(100)]
    assert bytes(views[0]) == bytes([7]) * 1000
    assert not any(bytes(views[0]) == bytes(other.tolist()) for other in others)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 2)])
def test_tensors_of_inference_mode_are_written_in_place_without_it(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Regression: sums of halves were refused by torch in the middle of a collective, which ended its connection."""
    with torch.inference_mode():
        made = torch.zeros(shape, dtype=dtype)
        flat = Flat([made])
    for each in (flat, Flat([made])):
        for part in each.ranges(0, each.elements):
            part.add_(1)
    assert made.float().sum() == 2 * made.numel()


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([torch.zeros(2), torch.zeros(2, dtype=torch.int32)], "mix the types torch.float32, torch.int32"),
        ([torch.zeros(2, dtype=torch.complex64)], r"tensors\[0\] has type torch.complex64"),
        ([torch.zeros(2, dtype=torch.bool)], "torch.bool"),
        ([torch.zeros(2), torch.zeros(2, 2).T], r"tensors\[1\] of shape \(2, 2\) is not contiguous"),
        ([torch.zeros(2, device="meta")], "lies on meta"),
    ],
)
def test_what_cannot_be_reduced_is_named(tensors: list[torch.Tensor], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Flat(tensors)


SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=5)
"""Where tensors begin in a memory of 40 elements, and how many they have."""


@given(SPANS, SPANS)
def test_shared_memory_is_found_wherever_it_is(ours: list[tuple[int, int]], theirs: list[tuple[int, int]]) -> None:
    base = torch.zeros(40)
    one, other = (Flat([base[at : at + length] for at, length in spans]) for spans in (ours, theirs))
    elements = [{n for at, length in spans for n in range(at, at + length)} for spans in (ours, theirs)]
    assert one.overlaps(other) == other.overlaps(one) == bool(elements[0] & elements[1])
    for flat, spans, mine in zip((one, other), (ours, theirs), elements, strict=True):
        assert flat.overlaps(flat) == bool(mine)
        assert flat.tangled() == (len(mine) < sum(length for _, length in spans))


@given(SPANS, st.sampled_from([1, 3, 4]), st.data())
def test_tensors_may_lie_anywhere_and_nothing_beside_them_is_touched(
    spans: list[tuple[int, int]], shift: int, data: st.DataObject
) -> None:
    """In any order, one over the other, and not where a processor would like elements to begin."""
    base = torch.arange(200, dtype=torch.uint8)
    memory = base[shift : shift + 160].view(torch.float32) if shift == 4 else torch.from_numpy(_apart(base, shift))
    flat = Flat([memory[at : at + length] for at, length in spans])
    start = data.draw(st.integers(0, flat.elements))
    stop = data.draw(st.integers(start, flat.elements))
    numbers = [at + n for at, length in spans for n in range(length)][start:stop]
    before = memory.view(torch.uint8).view(-1, 4).clone()
    assert b"".join(flat.views(start, stop)) == before[numbers].numpy().tobytes()
    flat.write(start, stop, memoryview(bytes([255] * 4 * len(numbers))))
    before[numbers] = 255
    assert torch.equal(memory.view(torch.uint8).view(-1, 4), before)
    assert base[:shift].tolist() == list(range(shift))
    assert base[160 + shift :].tolist() == [*range(160 + shift, 200)]


@given(st.lists(st.tuples(st.sampled_from([-9, 0, 0, 0, 2]), st.integers(0, 4)), max_size=6))
def test_tensors_that_follow_each_other_in_memory_are_one_run(steps: list[tuple[int, int]]) -> None:
    """And no others: a run is one piece of memory, or what lies between two tensors would be written."""
    base, parts, at = torch.arange(200), list[torch.Tensor](), 100
    for gap, length in steps:
        at += gap
        parts.append(base[at : at + length])
        at += length
    flat = Flat(parts)
    runs = [array.tolist() for array in flat.arrays(0, flat.elements)]
    assert [number for run in runs for number in run] == [number for part in parts for number in part.tolist()]
    assert all(b == a + 1 for run in runs for a, b in pairwise(run))
    assert all(then[0] != now[-1] + 1 for now, then in pairwise(runs))
    assert flat.together(0, flat.elements) == (len(runs) == 1)


def _apart(base: torch.Tensor, shift: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.frombuffer(base.numpy().data, np.float32, 40, shift)
