"""What fits is taken, however it is cut; what does not is the caller's error, and is named before anything is sent."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ictp2p.collectives.plan import GROUPS, MAX_CHUNK_ELEMENTS, NO_PARENT, REDUCE, Plan, Share, check
from ictp2p.collectives.running.fitting import MAX_CHUNK_BYTES, check_fit, check_plan, placed, scaled
from ictp2p.collectives.running.flat import Flat
from ictp2p.errors import ConfigError
from tests.collectives.planning.drawn_plans import plans

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int8)


def cut(data: st.DataObject, whole: torch.Tensor) -> list[torch.Tensor]:
    """The same memory in pieces, some of them empty."""
    ends = data.draw(st.lists(st.integers(0, len(whole)), max_size=4).map(sorted))
    return [whole[a:b] for a, b in pairwise([0, *ends, len(whole)])]


def alone(elements: int, chunk: int) -> Plan:
    """One participant and one share."""
    return Plan("star", ("0" * 32,), (Share(0, elements, 0, (NO_PARENT,), (NO_PARENT,)),), chunk, 0.0, 0.0)


@given(plans(), st.sampled_from(TYPES), st.data())
def test_what_a_plan_was_made_for_is_taken_however_it_is_cut(
    plan: Plan, dtype: torch.dtype, data: st.DataObject
) -> None:
    vector = torch.zeros(plan.elements, dtype=dtype)
    source, target = (Flat(cut(data, each)) for each in (vector, torch.zeros_like(vector)))
    me = data.draw(st.integers(0, len(plan.participants) - 1))
    check_plan(plan, me, source)
    lengths, others = ([len(t) for t in flat.tensors] for flat in (source, target))
    if lengths == others:
        check_fit(plan, me, source, target)
        return
    odd = next(n for n, (a, b) in enumerate(zip([*lengths, 0], [*others, 0], strict=False)) if a != b)
    with pytest.raises(ConfigError, match=rf"number {odd} has {[*others, 0][odd]} elements, not {[*lengths, 0][odd]}$"):
        check_fit(plan, me, source, target)


def test_a_plan_of_groups_is_none_for_a_vector() -> None:
    """Nothing would be done with it, and what happens to lie in the outputs taken for the result."""
    with pytest.raises(ConfigError, match="each of its groups has a vector of its own"):
        check_plan(Plan(GROUPS, ("0" * 32,), (), 1, 0.0, 0.0), 0, Flat([torch.zeros(25)]))


@given(plans(), st.integers(0, 100))
def test_a_plan_for_another_number_of_elements_is_refused(plan: Plan, elements: int) -> None:
    source = Flat([torch.zeros(elements)])
    if elements == plan.elements:
        check_plan(plan, 0, source)
        return
    with pytest.raises(
        ConfigError, match=f"the plan does not fit: shares cover {plan.elements} elements of {elements}"
    ):
        check_plan(plan, 0, source)


@given(plans(), st.integers(-10, 10))
def test_who_is_not_in_the_plan_is_refused(plan: Plan, me: int) -> None:
    source, size = Flat([torch.zeros(plan.elements)]), len(plan.participants)
    if 0 <= me < size:
        check_plan(plan, me, source)
        return
    with pytest.raises(ConfigError, match=f"index {me} is not among {size} participants"):
        check_plan(plan, me, source)


def test_what_is_wrong_with_a_plan_itself_is_said() -> None:
    with pytest.raises(ConfigError, match="the plan does not fit: share 0: reduce tree is not rooted at 7"):
        check_plan(Plan("star", ("0" * 32,), (Share(0, 9, 7, (NO_PARENT,), (NO_PARENT,)),), 9, 0.0, 0.0), 0, nine())


@given(st.integers(1, MAX_CHUNK_ELEMENTS), st.sampled_from(TYPES))
@pytest.mark.parametrize("more", [0, 1])
def test_no_chunk_is_longer_than_a_connection_holds_be_it_a_sum(more: int, chunk: int, dtype: torch.dtype) -> None:
    """Halves are added up in float32, and travel so: it is the sum's bytes that count."""
    source = Flat([torch.zeros(5, dtype=dtype)])
    bytes_each = torch.float32.itemsize if dtype == torch.bfloat16 else dtype.itemsize
    for elements in {chunk, min(MAX_CHUNK_BYTES // bytes_each + more, MAX_CHUNK_ELEMENTS)}:
        if elements * bytes_each <= MAX_CHUNK_BYTES:
            check_plan(alone(5, elements), 0, source)
            continue
        with pytest.raises(ConfigError, match=f"chunks of {elements * bytes_each} bytes exceed {MAX_CHUNK_BYTES}"):
            check_plan(alone(5, elements), 0, source)


def nine(dtype: torch.dtype = torch.float32) -> Flat:
    return Flat([torch.zeros(9, dtype=dtype)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bfloat16])
def test_outputs_of_another_type_are_refused_with_both(dtype: torch.dtype) -> None:
    with pytest.raises(ConfigError, match=f"outputs of {dtype} differ from inputs of torch.float32"):
        check_fit(alone(9, 9), 0, nine(), nine(dtype))


@given(plans(), st.lists(st.floats(0.5, 9), max_size=7))
def test_there_is_one_weight_for_each_participant(plan: Plan, weights: list[float]) -> None:
    size, source = len(plan.participants), nine()
    assert scaled(plan, None, "avg", source).factors == [1.0] * size
    if len(weights) == size:
        assert len(scaled(plan, weights, "avg", source).factors) == size
        return
    for op in ("avg", "sum"):
        with pytest.raises(ConfigError, match=f"^{len(weights)} weights for {size} participants"):
            scaled(plan, weights, op, source)


@pytest.mark.parametrize(
    ("weights", "op", "message"),
    [([-3.0], "avg", r"weights \(-3\.0,\) must be positive"), ([1.0], "mean", "op 'mean' is not one of avg, sum")],
)
def test_weights_and_operations_that_are_none_are_named(weights: list[float], op: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scaled(alone(9, 9), weights, op, nine())


@st.composite
def scattered(draw: st.DrawFn) -> tuple[Plan, int, list[range]]:
    """A plan whose results stay at their roots, one of its participants, and the elements that it is the root of."""
    plan = draw(plans())
    shares = tuple(structs.replace(share, broadcast_parents=share.reduce_parents) for share in plan.shares)
    plan = structs.replace(plan, kind=REDUCE, shares=shares)
    assert check(plan, plan.participants, plan.elements) is None
    me = draw(st.integers(0, len(plan.participants) - 1))
    return plan, me, [range(s.start, s.stop) for s in shares if s.root == me and s.stop > s.start]


@given(scattered(), st.sampled_from(TYPES), st.data())
def test_outputs_have_their_place_in_the_vector_and_nothing_else_has_room(
    case: tuple[Plan, int, list[range]], dtype: torch.dtype, data: st.DataObject
) -> None:
    plan, me, mine = case
    source = Flat([torch.zeros(plan.elements, dtype=dtype)])
    whole = torch.zeros(sum(map(len, mine)), dtype=dtype)
    pieces = placed(plan, me, Flat(cut(data, whole)))
    vector = Flat.placed(pieces, source)
    at = [element for run in mine for element in run]
    for place, element in enumerate(at):
        vector.ranges(element, element + 1)[0].fill_(place)
    assert whole.tolist() == list(range(len(at))), "an output is elsewhere in the vector, or is a copy"
    there = {start + n for start, piece in pieces for n in range(len(piece))}
    assert there == set(at)
    assert sum(len(piece) for _, piece in pieces) == len(there), "room is there twice"


@given(scattered(), st.integers(-12, 12), st.data())
def test_too_few_outputs_and_too_many_are_refused(
    case: tuple[Plan, int, list[range]], more: int, data: st.DataObject
) -> None:
    plan, me, mine = case
    expected = sum(map(len, mine))
    outputs = Flat(cut(data, torch.zeros(max(0, expected + more))))
    if outputs.elements == expected:
        placed(plan, me, outputs)
    elif outputs.elements > expected:
        over = sum(end > expected for end in accumulate(map(len, outputs.tensors)))
        with pytest.raises(ConfigError, match=f"^{over} outputs more .* for participant {me}$"):
            placed(plan, me, outputs)
    else:
        at = [element for run in mine for element in run][outputs.elements]
        stop = next(run.stop for run in mine if at in run)
        with pytest.raises(ConfigError, match=rf"outputs do not fit elements \[{at}, {stop}\) of the plan"):
            placed(plan, me, outputs)
