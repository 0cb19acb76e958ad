from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.collectives.running.flat import Flat
from ictp2p.collectives.running.sums import Adder, Weights, _before_line
from ictp2p.errors import ConfigError


@pytest.mark.parametrize(
    ("weights", "op", "dtype", "message"),
    [
        ([1.0, 0.0], "avg", torch.float32, "must be positive"),
        ([1.0, float("inf")], "avg", torch.float32, "finite"),
        ([1.0], "median", torch.float32, "'median' is not"),
        ([1.0], "band", torch.float32, "no bits"),
        ([1.0], "avg", torch.int32, "op='sum'"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights: list[float], op: str, dtype: torch.dtype, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Weights(weights, op, Flat([torch.zeros(1, dtype=dtype)]))


@pytest.mark.parametrize(
    ("weights", "factors", "divisor"),
    [([6, 4, 2], [3, 2, 1], 6), ([7, 7], [1, 1], 2), ([0.5, 0.5], [1, 1], 2), ([0.5, 1.5], [0.25, 0.75], 1)],
)
def test_common_factors_of_weights_are_dropped(weights: list[float], factors: list[float], divisor: float) -> None:
    scale = Weights(weights, "avg", Flat([torch.zeros(1)]))
    assert (scale.factors, scale.divisor) == (factors, divisor)
    assert Weights(weights, "sum", Flat([torch.zeros(1)])).divisor == 1


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.int64, torch.uint8]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("me", [0, 1, 2])
def test_a_root_adds_raw_and_partial_terms_with_their_weights_once(dtype: torch.dtype, me: int) -> None:
    op = "avg" if dtype.is_floating_point else "sum"
    tensors = [torch.tensor([1, 2, 3], dtype=dtype), torch.tensor([4, 5], dtype=dtype)]
    flat, outputs = Flat(tensors), Flat([torch.zeros_like(t) for t in tensors])
    adder = Adder(flat, outputs, Weights([1, 2, 3], op, flat), me, 8)
    wide = torch.float32 if flat.widened else dtype
    others = [n for n in range(3) if n != me]
    raw = bytearray(torch.tensor([10] * 4, dtype=dtype).view(torch.uint8).numpy().tobytes())
    partial = bytearray(torch.tensor([20] * 4, dtype=wide).view(torch.uint8).numpy().tobytes())
    adder.finish(1, 5, {others[0]: (memoryview(raw), True), others[1]: (memoryview(partial), False)})
    factors = [1, 2, 3] if op == "avg" else [1, 1, 1]
    total = [x * factors[me] + 10 * factors[others[0]] + 20 for x in (2, 3, 4, 5)]
    expected = (torch.tensor(total, dtype=wide) / 6 if op == "avg" else torch.tensor(total)).to(dtype)
    result = torch.cat([t.view(-1) for t in outputs.tensors])
    assert result[0] == 0
    assert torch.equal(result[1:], expected)
    assert torch.cat(tensors).tolist() == [1, 2, 3, 4, 5]


def test_sixteen_bit_sums_are_made_in_float32() -> None:
    flat = Flat([torch.full((4,), 256.0, dtype=torch.bfloat16)])
    adder = Adder(flat, Flat([torch.zeros(4, dtype=torch.bfloat16)]), Weights([1, 1], "sum", flat), 0, 4)
    one = bytearray(torch.ones(4, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes())
    body = memoryview(bytearray(16))
    adder.partial(0, 4, {1: (memoryview(one), True)}, body)
    assert np.frombuffer(body, np.float32).tolist() == [257.0] * 4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("me", [0, 1, 2])
def test_a_sum_that_is_passed_on_is_made_where_it_leaves_from_and_nowhere_else(dtype: torch.dtype, me: int) -> None:
    """Even where the outputs are the inputs, and wherever that place begins."""
    op = "avg" if dtype.is_floating_point else "sum"
    tensors = [torch.tensor([1, 2, 3], dtype=dtype), torch.tensor([4, 5], dtype=dtype)]
    flat = Flat(tensors)
    wide = torch.float32 if flat.widened else dtype
    adder = Adder(flat, flat, Weights([1, 2, 3], op, flat), me, 8, in_place=True)
    others = [n for n in range(3) if n != me]
    raw = bytearray(torch.tensor([10] * 4, dtype=dtype).view(torch.uint8).numpy().tobytes())
    passed = bytearray(torch.tensor([20] * 4, dtype=wide).view(torch.uint8).numpy().tobytes())
    room = memoryview(bytearray(4 + 4 * wide.itemsize))[4:]
    adder.partial(1, 5, {others[0]: (memoryview(raw), True), others[1]: (memoryview(passed), False)}, room)
    factors = [1, 2, 3] if op == "avg" else [1, 1, 1]
    total = [x * factors[me] + 10 * factors[others[0]] + 20 for x in (2, 3, 4, 5)]
    assert bytes(room) == torch.tensor(total, dtype=wide).view(torch.uint8).numpy().tobytes()
    assert torch.cat(tensors).tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("dtype", DTYPES)
@given(shift=st.integers(0, 70), cut=st.integers(0, 70), extra=st.integers(0, 70))
def test_long_ranges_that_begin_anywhere_are_added_whole(dtype: torch.dtype, shift: int, cut: int, extra: int) -> None:
    """Their first elements, up to a line of the cache, are added by themselves."""
    length = 128 * 1024 + extra
    whole, target = torch.arange(shift + length).to(dtype), torch.zeros(shift + length, dtype=dtype)
    flat, outputs = Flat([whole[shift:]]), Flat([target[shift:]])
    other = whole[shift + cut :]
    staged = {1: (memoryview(other.view(torch.uint8).numpy()), True)}
    Adder(flat, outputs, Weights([1, 1], "sum", flat), 0, length).finish(cut, length, staged)
    assert torch.equal(target[shift + cut :], other + other)
    assert not target[: shift + cut].any()


def test_a_long_range_is_written_from_the_beginning_of_a_line_on() -> None:
    memory = np.zeros(40_000, np.float32)
    for first in range(40):
        target = memory[first:]
        assert (target[_before_line(target) :].ctypes.data, _before_line(target[:100])) == (
            -(-target.ctypes.data // 64) * 64,
            0,
        )


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=5), st.sampled_from([1e-290, 1e-6, 1.0, 1e6, 1e290]))
def test_an_average_does_not_depend_on_the_unit_of_the_weights(parts: list[float], unit: float) -> None:
    weights = [part * unit for part in parts]
    flat, outputs = Flat([torch.full((4,), 1e6)]), Flat([torch.zeros(4)])
    others = {n: (memoryview(np.full(4, 1e6 + n, np.float32)).cast("B"), True) for n in range(1, len(weights))}
    Adder(flat, outputs, Weights(weights, "avg", flat), 0, 4).finish(0, 4, others)
    exact = sum(w / max(weights) * (1e6 + n) for n, w in enumerate(weights)) / sum(w / max(weights) for w in weights)
    assert torch.allclose(outputs.tensors[0].double(), torch.tensor(exact, dtype=torch.float64), rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_terms_are_added_in_the_order_of_participants(dtype: torch.dtype) -> None:
    """Whatever came first: 1 + huge - huge is 0 in float32, in any other order that a set of terms may have it is 1."""
    flat, outputs = Flat([torch.ones(4, dtype=dtype)]), Flat([torch.full((4,), 9.0, dtype=dtype)])
    adder = Adder(flat, outputs, Weights([1, 1, 1], "sum", flat), 0, 4)
    huge = torch.full((4,), 2.0**30, dtype=dtype)
    plus, minus = (bytearray(t.view(torch.uint8).numpy().tobytes()) for t in (huge, -huge))
    adder.finish(0, 4, {2: (memoryview(minus), True), 1: (memoryview(plus), True)})
    assert outputs.tensors[0].tolist() == [0.0] * 4


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.data())
def test_outputs_may_be_cut_elsewhere_than_inputs(lengths: list[int], data: st.DataObject) -> None:
    """Regression: as many pieces as the inputs have, holes between outputs included, were taken for the same pieces."""
    elements, inputs = sum(lengths), [torch.arange(length) + 10 * n for n, length in enumerate(lengths)]
    whole = torch.cat(inputs)
    starts = [0, *sorted(data.draw(st.sets(st.integers(1, elements), max_size=8)) - {elements})]
    joined = [stop - start for start, stop in pairwise([*starts, elements])]
    outputs = [torch.zeros(length, dtype=torch.int64) for length in joined]
    kept = [n for n in range(len(joined)) if data.draw(st.booleans())]
    flat = Flat(inputs)
    target = Flat.placed([(starts[n], outputs[n]) for n in kept], flat)
    adder = Adder(flat, target, Weights([1, 1], "sum", flat), 0, elements)
    for first in kept:
        last = next(n for n in range(first, len(joined) + 1) if n not in kept)
        start, stop = starts[first], [*starts, elements][data.draw(st.integers(first + 1, last))]
        adder.finish(start, stop, {1: (memoryview(whole[start:stop].numpy()).cast("B"), True)})
    for n, (start, output) in enumerate(zip(starts, outputs, strict=True)):
        assert torch.equal(output, whole[start : start + joined[n]] * (2 if n in kept else 0))
