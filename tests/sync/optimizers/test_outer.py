from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.delayed import DelayedNesterov
from ictp2p.sync.optimizers.mirror import MirrorDescent
from ictp2p.sync.optimizers.outer import Nesterov, Outer, wide
from ictp2p.sync.state.global_state import GlobalState, entry

F = np.float32


def state_of(outer: Outer, parameters: dict[str, torch.nn.Parameter]) -> GlobalState:
    return GlobalState([*(entry(n, p) for n, p in parameters.items()), *outer.entries])


def walk(made: Any, deltas: list[torch.Tensor]) -> torch.Tensor:
    """Several outer steps, each from the committed state, through the double buffer."""
    parameters = {"w": torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))}
    outer = Outer(made(list(parameters.values())) if made else None, parameters)
    state = state_of(outer, parameters)
    state.tentative["w"].copy_(parameters["w"].detach())
    state.seal({})
    state.commit(0)
    for number, delta in enumerate(deltas):
        outer.step(state.begin(), {"w": delta})
        state.rollback()
        outer.step(state.begin(), {"w": delta})
        state.seal({})
        state.commit(number + 1)
    return state.committed["w"].clone()


DELTAS = [torch.tensor([0.25, -1.0, 3.0]) / (n + 1) for n in range(5)]
OPTIMIZERS: list[Any] = [
    lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.9, nesterov=True),
    lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.9),
    lambda p: torch.optim.SGD(p, lr=1.0),
    lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, weight_decay=0.1),
    lambda p: torch.optim.AdamW(p, lr=0.1),
    lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.5),
]


@pytest.mark.parametrize("made", OPTIMIZERS)
def test_steps_with_named_state_equal_those_of_the_optimizer_itself(made: Any) -> None:
    param = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
    optimizer = made([param])
    for delta in DELTAS:
        param.grad = delta.clone()
        optimizer.step()
    torch.testing.assert_close(walk(made, DELTAS), param.detach())


@pytest.mark.parametrize("made", [torch.optim.SGD, Nesterov, DelayedNesterov, MirrorDescent])
def test_a_learning_rate_may_be_a_tensor_as_in_torch(made: Any) -> None:
    walks = [walk(lambda p, rate=rate: made(p, lr=rate), DELTAS) for rate in (0.5, torch.tensor(0.5))]
    assert torch.equal(*walks)
    parameters = {"w": torch.nn.Parameter(torch.zeros(3))}
    said = [
        Outer(made(parameters.values(), lr=rate), parameters).describe()
        for rate in (0.70001, torch.tensor(0.70001, dtype=torch.float64))
    ]
    assert said[0] == said[1]
    assert ("outer lr, group 0", "0.70001") in said[1]


@given(
    arrays(F, (4, 5), elements=st.floats(-8, 8, width=32)),
    st.sampled_from([0.0, 0.5, 0.9]),
    st.sampled_from([0.4, 0.7, 1.0]),
    st.booleans(),
)
@settings(max_examples=100)
def test_nesterov_rounds_each_operation_once(deltas: Any, momentum: float, lr: float, nesterov: bool) -> None:
    """Torch's form, b <- mu b + delta, theta -= lr (delta + mu b), to the bit in NumPy's float32."""
    param = torch.nn.Parameter(torch.ones(5))
    optimizer = Nesterov([param], lr, momentum, nesterov)
    theta, buffer = np.ones(5, F), np.zeros(5, F)
    for delta in deltas:
        param.grad = torch.from_numpy(delta.copy())
        optimizer.step()
        buffer = buffer * F(momentum) + delta
        move = delta if not momentum else buffer * F(momentum) + delta if nesterov else buffer
        theta = theta - move * F(lr)
    np.testing.assert_array_equal(param.detach().numpy(), theta)


def test_a_constant_pseudo_gradient_gains_lr_over_one_minus_momentum() -> None:
    param = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = Nesterov([param], 0.7, 0.9)
    for _ in range(300):
        before = param.item()
        param.grad = torch.ones(1, dtype=torch.float64)
        optimizer.step()
    assert before - param.item() == pytest.approx(7.0)


def test_the_default_is_dilocos() -> None:
    parameters = {"w": torch.nn.Parameter(torch.zeros(2))}
    assert dict(Outer(None, parameters).describe()) == {
        "outer optimizer": "Nesterov",
        "outer lr, group 0": "0.7",
        "outer momentum, group 0": "0.9",
        "outer nesterov, group 0": "True",
    }
    assert [e.name for e in Outer(None, parameters).entries] == ["outer momentum_buffer of w"]


def test_groups_keep_their_own_settings() -> None:
    parameters = {"w": torch.nn.Parameter(torch.ones(1)), "v": torch.nn.Parameter(torch.ones(1))}
    groups = [{"params": [parameters["v"]], "lr": 0.5}, {"params": [parameters["w"]], "lr": 0.25}]
    outer = Outer(torch.optim.SGD(groups), parameters)
    tensors = {"w": torch.ones(1), "v": torch.ones(1)}
    outer.step(tensors, {"w": torch.ones(1), "v": torch.ones(1)})
    assert (tensors["w"].item(), tensors["v"].item()) == (0.75, 0.5)


class Counting(torch.optim.SGD):
    """Keeps a number that is no tensor."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for param in self.param_groups[0]["params"]:
            self.state[param]["count"] = 1


class CountingInGroup(torch.optim.SGD):
    """Keeps a number in its group, as Prodigy and the schedule-free ones do."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1


class Decaying(torch.optim.SGD):
    """Sets its own learning rate."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        for group in self.param_groups:
            group["lr"] *= 0.5


class Replacing(Nesterov):
    """Puts new tensors in place of its state."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        before = {p: state["momentum_buffer"].clone() for p, state in self.state.items()}
        super().step()
        for param, state in self.state.items():
            ours = state["momentum_buffer"]
            state["momentum_buffer"] = ours.clone()
            if param in before:
                ours.copy_(before[param])


def test_state_that_the_optimizer_replaces_is_kept() -> None:
    torch.testing.assert_close(walk(lambda p: Replacing(p), DELTAS), walk(None, DELTAS), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda p: torch.optim.SGD(p[:1], lr=1.0), r"left out are \['v'\]"),
        (lambda p: torch.optim.SGD([*p, torch.nn.Parameter(torch.ones(1))], lr=1.0), "1 are not the model's"),
        (lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9, dampening=0.5), "does not start from a state of zeros"),
        (lambda p: Counting(p, lr=1.0), "'count' as int"),
        (lambda p: CountingInGroup(p, lr=1.0), "CountingInGroup changes 'k' of its group in a step, from nothing to 1"),
        (lambda p: Decaying(p, lr=1.0), r"Decaying changes 'lr' of its group in a step, from 1\.0 to 0\.5"),
        (lambda p: Nesterov(p, lr=0.0), "learning rate 0.0"),
        (lambda p: torch.optim.SGD(p, lr=float("nan")), "learning rate nan"),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=1.5), "momentum 1.5"),
        (lambda p: Nesterov([{"params": p, "lr": -1.0}]), "learning rate -1.0"),
        (lambda p: Nesterov(p, lr=float("inf")), "learning rate inf"),
        (lambda p: Nesterov(p, lr="x"), "learning rate 'x'"),  # type: ignore[arg-type]
        (lambda p: Nesterov(p, momentum=None), "momentum None"),  # type: ignore[arg-type]
        (lambda p: Nesterov(p, lr=torch.tensor([1.0, 1.0])), "learning rate tensor"),  # type: ignore[arg-type]
        (lambda p: Nesterov(p, lr=torch.tensor(-1.0)), "learning rate -1.0"),  # type: ignore[arg-type]
        (lambda p: Nesterov(p, nesterov="x"), "nesterov 'x'"),  # type: ignore[arg-type]
        (lambda p: Nesterov(p, momentum=1.0), r"momentum 1.0 is not in \[0, 1\)"),
    ],
)
def test_what_cannot_be_shared_is_refused(made: Any, named: str) -> None:
    parameters = {"w": torch.nn.Parameter(torch.ones(1)), "v": torch.nn.Parameter(torch.ones(1))}
    with pytest.raises(ConfigError, match=named):
        Outer(made, parameters)


def test_the_state_is_kept_in_float32_unless_all_is_float64() -> None:
    assert wide([torch.bfloat16, torch.float32]) == torch.float32
    assert wide([torch.float64, torch.float64]) == torch.float64
    assert wide([torch.float64, torch.float32]) == torch.float32


@pytest.mark.parametrize("phase", [1.0, 2.5])
def test_a_step_in_pieces_is_the_step_of_the_whole(monkeypatch: pytest.MonkeyPatch, phase: float) -> None:
    """Also where several threads have part in it."""
    stepped = []
    for piece, cores in ((4_000, 1), (28, 1), (28, 3)):
        monkeypatch.setattr("ictp2p.concurrency.elementwise._PIECE", piece)
        monkeypatch.setattr("ictp2p.concurrency.elementwise._THREAD", piece)
        monkeypatch.setattr("ictp2p.concurrency.torch_threads._cores", lambda cores=cores: cores)
        generator = torch.Generator().manual_seed(1)
        param = torch.nn.Parameter(torch.randn(10, 10, generator=generator))
        outer = Nesterov([param])
        outer.phase = phase
        for _ in range(3):
            param.grad = torch.randn(10, 10, generator=generator)
            outer.step()
        stepped.append(param.detach().clone())
    assert torch.equal(stepped[0], stepped[1])
    assert torch.equal(stepped[0], stepped[2])


def normalize(optimizer: torch.optim.Optimizer) -> None:
    """Have gradients be a part of their norm, and powers: neither is rounded as IEEE 754 has it."""
    for param in optimizer.param_groups[0]["params"]:
        param.grad.copy_(param.grad.abs().pow(1.3).div(param.grad.abs().pow(1.5).sum()))


class Normalized(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        normalize(self)
        super().step()


class NormalizedNesterov(Nesterov):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        normalize(self)
        super().step()


@pytest.mark.parametrize(
    "made",
    [
        lambda p: Normalized(p, lr=0.5),
        lambda p: NormalizedNesterov(p),
        lambda p: MirrorDescent(p, mirror="p-norm"),
    ],
)
def test_the_bits_do_not_depend_on_the_threads_that_torch_has(made: Any, request: pytest.FixtureRequest) -> None:
    """Regression: hosts that differed in nothing but their cores could not agree on a round."""
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    generator = torch.Generator().manual_seed(1)
    value, delta = (torch.randn(300_001, generator=generator) for _ in range(2))
    stepped = []
    for threads in (1, 2, 3, 5):
        torch.set_num_threads(threads)
        parameters = {"w": torch.nn.Parameter(value.clone())}
        outer = Outer(made([*parameters.values()]), parameters)
        state = state_of(outer, parameters)
        state.tentative["w"].copy_(value)
        outer.step(state.tentative, {"w": delta})
        stepped.append(state.tentative["w"].clone())
    assert all(torch.equal(stepped[0], each) for each in stepped)


class InTheGradient(torch.optim.SGD):
    """Adds its decay where the gradient is."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for param in self.param_groups[0]["params"]:
            param.grad.add_(param.detach(), alpha=0.5)
        super().step()


@pytest.mark.parametrize(
    "made",
    [
        *OPTIMIZERS,
        lambda p: Nesterov(p, momentum=0.0),
        lambda p: Nesterov(p),
        lambda p: DelayedNesterov(p, every=2),
        lambda p: MirrorDescent(p),
        lambda p: InTheGradient(p, lr=0.5),
    ],
)
def test_the_average_is_left_as_it_came(made: Any) -> None:
    """It is handed to followers after the step, where training went on under the round."""
    deltas = [delta.clone() for delta in DELTAS]
    walk(made, deltas)
    for delta, was in zip(deltas, DELTAS, strict=True):
        torch.testing.assert_close(delta, was, rtol=0, atol=0)
