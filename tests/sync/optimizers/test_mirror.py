from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.mirror import MirrorDescent
from ictp2p.sync.optimizers.outer import Nesterov, Outer
from ictp2p.sync.state.global_state import GlobalState, entry

VALUES = st.floats(-4.0, 4.0, width=32)
MOVES = arrays(np.float32, (5, 2, 3), elements=VALUES)


def walk(optimizer: torch.optim.Optimizer, param: torch.nn.Parameter, moves: np.ndarray[Any, Any]) -> torch.Tensor:
    for move in moves:
        param.grad = torch.from_numpy(move.copy()).reshape(param.shape)
        optimizer.step()
    return param.detach()


def simplex(weights: np.ndarray[Any, Any]) -> torch.nn.Parameter:
    rows = torch.from_numpy(np.abs(weights) + np.float32(0.01))
    return torch.nn.Parameter(rows / rows.sum(-1, keepdim=True))


@given(
    arrays(np.float32, (2, 3), elements=VALUES),
    MOVES,
    st.sampled_from([0.0, 0.5, 0.9]),
    st.booleans(),
)
def test_the_euclidean_map_is_sgd_bit_for_bit(
    start: np.ndarray[Any, Any], moves: np.ndarray[Any, Any], momentum: float, nesterov: bool
) -> None:
    ours, theirs = (torch.nn.Parameter(torch.from_numpy(start.copy())) for _ in range(2))
    mirrored = walk(MirrorDescent([ours], lr=0.7, momentum=momentum, nesterov=nesterov), ours, moves)
    assert torch.equal(mirrored, walk(Nesterov([theirs], lr=0.7, momentum=momentum, nesterov=nesterov), theirs, moves))


@given(arrays(np.float32, (2, 3), elements=VALUES), MOVES)
def test_the_entropic_map_keeps_distributions(start: np.ndarray[Any, Any], moves: np.ndarray[Any, Any]) -> None:
    param = simplex(start)
    end = walk(MirrorDescent([param], mirror="entropic"), param, moves)
    assert bool((end >= 0).all())
    torch.testing.assert_close(end.sum(-1), torch.ones(2))


@given(arrays(np.float32, (2, 3), elements=VALUES), arrays(np.float32, (2, 3), elements=VALUES))
def test_an_entropic_step_is_the_exponentiated_gradient(
    start: np.ndarray[Any, Any], move: np.ndarray[Any, Any]
) -> None:
    param = simplex(start)
    before = param.detach().double().numpy().copy()
    end = walk(MirrorDescent([param], lr=0.5, momentum=0.0, mirror="entropic"), param, move[None])
    expected = before * np.exp(-0.5 * move.astype(np.float64))
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(end.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_by_hand() -> None:
    # x = (1/4, 3/4); moves of (log 3, 0) divide the odds by 3: (1/12, 9/12) normalized is (1/10, 9/10).
    param = torch.nn.Parameter(torch.tensor([0.25, 0.75]))
    end = walk(
        MirrorDescent([param], lr=1.0, momentum=0.0, mirror="entropic"),
        param,
        np.array([[np.log(3.0), 0.0]], np.float32),
    )
    torch.testing.assert_close(end, torch.tensor([0.1, 0.9]))


def test_what_has_no_probability_gets_none() -> None:
    param = torch.nn.Parameter(torch.tensor([0.0, 0.5, 0.5]))
    end = walk(MirrorDescent([param], mirror="entropic"), param, np.full((3, 3), -2.0, np.float32))
    torch.testing.assert_close(end, torch.tensor([0.0, 0.5, 0.5]))


@given(arrays(np.float32, 6, elements=VALUES), arrays(np.float32, 6, elements=VALUES))
def test_the_p_norm_map_with_p_2_is_euclidean(start: np.ndarray[Any, Any], move: np.ndarray[Any, Any]) -> None:
    param = torch.nn.Parameter(torch.from_numpy(start.copy()))
    end = walk(MirrorDescent([param], lr=0.5, momentum=0.0, mirror="p-norm", p=2.0), param, move[None])
    np.testing.assert_allclose(end.numpy(), start - np.float32(0.5) * move, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0])
@given(start=arrays(np.float32, 6, elements=VALUES))
def test_no_move_changes_nothing_under_p_norm(p: float, start: np.ndarray[Any, Any]) -> None:
    param = torch.nn.Parameter(torch.from_numpy(start.copy()))
    end = walk(MirrorDescent([param], momentum=0.0, mirror="p-norm", p=p), param, np.zeros((1, 6), np.float32))
    np.testing.assert_allclose(end.numpy(), start, rtol=2e-3, atol=1e-4 * float(np.abs(start).max(initial=0.0)))


@pytest.mark.parametrize("mirror", ["euclidean", "p-norm"])
def test_an_empty_parameter_is_left_alone(mirror: Any) -> None:
    param = torch.nn.Parameter(torch.zeros(0, 3))
    assert walk(MirrorDescent([param], mirror=mirror), param, np.zeros((2, 0, 3), np.float32)).shape == (0, 3)


def test_maps_of_groups_are_settings_that_must_agree() -> None:
    mixing, rest = torch.nn.Parameter(torch.tensor([0.5, 0.5])), torch.nn.Parameter(torch.zeros(2))
    optimizer = MirrorDescent([{"params": [mixing], "mirror": "entropic"}, {"params": [rest]}])
    outer = Outer(optimizer, {"mixing": mixing, "rest": rest})
    described = dict(outer.describe())
    assert described["outer mirror, group 0"] == "'entropic'"
    assert described["outer mirror, group 1"] == "'euclidean'"


def test_the_outer_step_runs_in_the_global_state() -> None:
    mixing = torch.nn.Parameter(torch.tensor([0.25, 0.75]))
    outer = Outer(MirrorDescent([mixing], lr=1.0, momentum=0.0, mirror="entropic"), {"mixing": mixing})
    state = GlobalState([entry("mixing", mixing), *outer.entries])
    state.tentative["mixing"].copy_(mixing.detach())
    state.seal({})
    state.commit(0)
    tentative = state.begin()
    outer.step(tentative, {"mixing": torch.tensor([float(np.log(3.0)), 0.0])})
    torch.testing.assert_close(tentative["mixing"], torch.tensor([0.1, 0.9]))


@pytest.mark.parametrize(
    ("param", "settings", "match"),
    [
        (torch.tensor([0.5, 0.6]), {"mirror": "entropic"}, "a sum is 0.1"),
        (torch.tensor([-0.5, 1.5]), {"mirror": "entropic"}, "least value is -0.5"),
        (torch.tensor(1.0), {"mirror": "entropic"}, "no rows"),
        (torch.ones(2), {"mirror": "hyperbolic"}, "hyperbolic"),
        (torch.ones(2), {"mirror": np.zeros(3)}, r"mirror array\(\[0., 0., 0.\]\) is none of euclidean"),
        (torch.ones(2), {"mirror": "p-norm", "p": 1.0}, "p 1.0"),
        (torch.ones(2), {"p": "x"}, r"p 'x' is not in \(1, 2\]"),
        (torch.ones(2), {"p": None}, "p None"),
        (torch.ones(2), {"p": np.zeros(3)}, r"p array\(\[0., 0., 0.\]\)"),
        (torch.ones(2), {"p": 10**400}, r"p 1000.*\.\.\. is not in"),
        (torch.ones(2), {"lr": 0.0}, "0.0"),
        (torch.ones(2), {"momentum": 1.0}, "1.0"),
    ],
)
def test_what_makes_no_sense_is_refused(param: torch.Tensor, settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        MirrorDescent([torch.nn.Parameter(param)], **settings)


def test_the_bits_do_not_depend_on_the_threads_that_torch_has(request: pytest.FixtureRequest) -> None:
    """Nor where nobody else sees to it."""
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    value, *moves = np.random.default_rng(1).normal(size=(9, 300_001)).astype(np.float32)
    stepped = []
    for threads in (1, 2, 3, 5):
        torch.set_num_threads(threads)
        param = torch.nn.Parameter(torch.from_numpy(value.copy()))
        stepped.append(walk(MirrorDescent([param], mirror="p-norm"), param, np.stack(moves)))
    assert all(torch.equal(stepped[0], each) for each in stepped)
