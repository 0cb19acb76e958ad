from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.delayed import DelayedNesterov
from ictp2p.sync.optimizers.outer import Nesterov, Outer
from ictp2p.sync.state.global_state import GlobalState, entry

F = np.float32
MOVES = arrays(np.float32, (9, 3), elements=st.floats(-4.0, 4.0, width=32))


def walk(optimizer: torch.optim.Optimizer, param: torch.nn.Parameter, moves: np.ndarray[Any, Any]) -> torch.Tensor:
    for move in moves:
        param.grad = torch.from_numpy(move.copy())
        optimizer.step()
    return param.detach()


@given(MOVES, st.sampled_from([0.0, 0.5, 0.9]))
def test_applied_every_step_it_is_nesterov_bit_for_bit(moves: np.ndarray[Any, Any], momentum: float) -> None:
    ours, theirs = (torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5])) for _ in range(2))
    delayed = walk(DelayedNesterov([ours], momentum=momentum, every=1), ours, moves)
    assert torch.equal(delayed, walk(Nesterov([theirs], momentum=momentum), theirs, moves))


@given(MOVES, st.integers(2, 4))
def test_every_step_is_the_papers(moves: np.ndarray[Any, Any], every: int) -> None:
    theta, buffer, held = np.array([1.0, -2.0, 0.5], F), np.zeros(3, F), np.zeros(3, F)
    param = torch.nn.Parameter(torch.from_numpy(theta.copy()))
    optimizer = DelayedNesterov([param], lr=0.7, momentum=0.9, every=every)
    for number, move in enumerate(moves, 1):
        held = held + move
        if number % every == 0:
            buffer = F(0.9) * buffer + held / F(every)
            theta = theta - F(0.7) * (F(0.9) * buffer + move / F(every))
            held = np.zeros(3, F)
        else:
            theta = theta - F(0.7) * (move / F(every))
        np.testing.assert_array_equal(walk(optimizer, param, move[None]).numpy(), theta)


@given(MOVES, st.sampled_from([0.0, 0.5, 0.9]), st.integers(1, 7))
def test_all_at_once_it_is_nesterov_bit_for_bit(moves: np.ndarray[Any, Any], momentum: float, every: int) -> None:
    ours, theirs = (torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5])) for _ in range(2))
    optimizer = DelayedNesterov([ours], momentum=momentum, every=every)
    optimizer.contributions = every
    assert torch.equal(walk(optimizer, ours, moves), walk(Nesterov([theirs], momentum=momentum), theirs, moves))


def test_several_at_once_by_hand() -> None:
    # every=4, lr 1, momentum 1/2, gradient 1. Of one: 1/4. Of two: 2/4. Of two: h = 5, b = 5/4, and 2/4 + 5/8.
    # All four: b = 5/8 + 1, and 1 + 13/16.
    param = torch.nn.Parameter(torch.zeros(1))
    optimizer = DelayedNesterov([param], lr=1.0, momentum=0.5, every=4)
    found = []
    for number in (1, 2, 2, 4):
        optimizer.contributions = number
        found.append(float(walk(optimizer, param, np.ones((1, 1), F))))
    assert found == [-0.25, -0.75, -1.875, -3.6875]


@pytest.mark.parametrize("before", [0, 1])
def test_of_more_clusters_than_expected_the_step_is_a_whole_one(before: int) -> None:
    """Without momentum, gradient 1: half a step of one of two expected, then a whole one of five, however many came."""
    param = torch.nn.Parameter(torch.zeros(1))
    optimizer = DelayedNesterov([param], lr=1.0, momentum=0.0, every=2)
    for contributions in [1] * before + [5]:
        optimizer.contributions = contributions
        walk(optimizer, param, np.ones((1, 1), F))
    assert float(param.detach()) == -1.0 - 0.5 * before


def test_by_hand() -> None:
    # Gradient 1 each time, every=2, lr 1, momentum 1/2: 1/2; then b = 1 and 1/2 + 1/2; 1/2; then b = 3/2, 1/2 + 3/4.
    param = torch.nn.Parameter(torch.zeros(1))
    optimizer = DelayedNesterov([param], lr=1.0, momentum=0.5, every=2)
    found = [float(walk(optimizer, param, np.ones((1, 1), F))) for _ in range(4)]
    assert found == [-0.5, -1.5, -2.0, -3.25]


def test_what_it_counts_is_part_of_the_global_state() -> None:
    param = torch.nn.Parameter(torch.zeros(1))
    outer = Outer(DelayedNesterov([param], lr=1.0, momentum=0.5, every=2), {"w": param})
    state = GlobalState([entry("w", param), *outer.entries])
    state.seal({})
    state.commit(0)
    for number in range(1, 5):
        outer.step(state.begin(outer.touched(["w"])), {"w": torch.ones(1)})
        state.seal({})
        state.commit(number)
    assert float(state.committed["w"]) == -3.25
    assert {e.name for e in outer.entries} == {f"outer {k} of w" for k in ("count", "held", "momentum_buffer")}


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"lr": 0.0}, "0.0"),
        ({"lr": "x"}, "learning rate 'x'"),
        ({"momentum": 1.0}, "1.0"),
        ({"momentum": "x"}, "momentum 'x'"),
        ({"every": 0}, "every 0"),
        ({"every": 1.5}, "every 1.5"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        DelayedNesterov([torch.nn.Parameter(torch.ones(1))], **settings)
