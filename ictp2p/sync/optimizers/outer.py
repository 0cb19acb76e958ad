"""The outer optimizer: how an averaged pseudo-gradient moves the global parameters.

Every worker takes the outer step for itself, from the same average, and the digests of the results must agree: so the
step must give the same bits on every machine. Torch's own SGD fuses a multiplication with an addition where the
processor can, which rounds once instead of twice. `Nesterov` below therefore does one rounded operation at a time, as
IEEE 754 fixes it. Its form is torch's (and DiLoCo's, Douillard et al. 2023, with lr 0.7 and momentum 0.9):

    b <- mu b + delta;    theta <- theta - lr (delta + mu b),    with gain lr / (1 - mu)

which is neither heavy-ball nor the form normalised by (1 - mu). A plain `torch.optim.SGD` is replaced by it. Any other
torch optimizer may be given and is used as it is, by one thread alone: on processors of one kind its bits agree,
however many cores there are, and where they do not the round is aborted rather than applied differently. Its settings
are those that it was given with (`outer_schedule`).

The optimizer's state is part of the global state: a newcomer without the momentum would diverge at its first outer
step. Its tensors are therefore allocated before the first step, as zeros; `Outer` refuses an optimizer for which that
differs from what it would have allocated itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from ictp2p.concurrency.elementwise import elementwise
from ictp2p.concurrency.torch_threads import Job, each_alone
from ictp2p.errors import ConfigError, IctError, shown
from ictp2p.sync import options
from ictp2p.sync.optimizers.delayed import DelayedNesterov
from ictp2p.sync.optimizers.joint import JointOptimizer, kind
from ictp2p.sync.optimizers.outer_schedule import Given, OuterSchedule, Schedule
from ictp2p.sync.state.global_state import entry
from ictp2p.sync.state.local import local
from ictp2p.sync.state.manifest import Entry

OuterFactory = Callable[[list[torch.nn.Parameter]], Optimizer]
"""Makes an outer optimizer for the parameters that it is given."""


class Nesterov(Optimizer):
    """SGD with momentum, every operation rounded once, so that every IEEE 754 machine gets the same bits."""

    def __init__(self, params: Any, lr: float = 0.7, momentum: float = 0.9, nesterov: bool = True) -> None:
        """Set it up.

        Args:
            params: as for every torch optimizer.
            lr: learning rate, dimensionless, a number or a tensor of one; the total gain is `lr / (1 - momentum)`.
            momentum: decay of the momentum per outer step, in [0, 1).
            nesterov: look ahead (torch's form); heavy-ball otherwise.

        Raises:
            ConfigError: a value is out of range.
        """
        lr, momentum = options.rates(lr, momentum)
        nesterov = options.flag("nesterov", nesterov)
        super().__init__(params, {"lr": lr, "momentum": momentum, "nesterov": nesterov})
        self.phase = 1.0
        """How many phases of training the next gradients are of; see `_phases`."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step along the gradients."""
        elementwise(self.jobs())

    def jobs(self) -> list[Job]:
        """What a step does to each parameter that has a gradient: its tensors are that, the gradient, and what is kept.

        They are done with the settings of now.
        """
        return [(partial(self._step, settings), tensors) for settings, tensors in self._stepped()]

    def _stepped(self) -> Iterable[tuple[Mapping[str, Any], tuple[Tensor, ...]]]:
        """Each parameter that has a gradient, that, and its momentum if there is any, with the settings of its step."""
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    settings = {**group, "phase": self.phase}
                    yield settings, (param, param.grad, *self._buffers(param, group["momentum"]))

    def _step(self, settings: Mapping[str, Any], value: Tensor, delta: Tensor, *buffers: Tensor) -> None:
        move = self._move(delta, buffers, settings)
        lasts = move is delta or any(move is each for each in buffers)
        rate = settings["lr"]
        value.sub_(move.mul(rate) if lasts else move.mul_(rate))  # each new megabyte may be paged in

    def _buffers(self, param: Tensor, momentum: float) -> list[Tensor]:
        """The momentum of a parameter, if there is any."""
        if momentum == 0.0:
            return []
        state = self.state[param]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(param)
        return [state["momentum_buffer"]]

    def _move(self, delta: Tensor, buffers: Sequence[Tensor], settings: Mapping[str, Any]) -> Tensor:
        if not buffers:
            return delta
        buffer = buffers[0]
        momentum, nesterov, phase = (settings[key] for key in ("momentum", "nesterov", "phase"))
        if phase != 1.0:
            return _phases(buffer, delta, momentum, nesterov, phase)
        buffer.mul_(momentum).add_(delta)
        return buffer.mul(momentum).add_(delta) if nesterov else buffer


def plain(parameters: list[torch.nn.Parameter]) -> Nesterov:
    """Make the optimizer of who steps by the average itself: SGD of learning rate 1, without momentum."""
    return Nesterov(parameters, lr=1.0, momentum=0.0)


def _phases(buffer: Tensor, delta: Tensor, momentum: float, nesterov: bool, phases: float) -> Tensor:
    """Update the momentum, and give the move, as `phases` equal phases of `delta / phases` each would have done.

    With d = delta / p and m = mu^p, the recursion b <- mu b + d, taken p times, sums up to

        b_p = m b + d (1 - m) / (1 - mu)
        b_1 + ... + b_p = b mu (1 - m) / (1 - mu) + d (p - mu (1 - m) / (1 - mu)) / (1 - mu)

    which has a meaning for every positive p. Thus a phase may be longer or shorter than the one that the learning rate
    and the momentum were tuned for, and training as a whole goes the same way.
    """
    kept = momentum**phases
    gained = (1.0 - kept) / (1.0 - momentum)
    each = delta.div(phases)
    total = buffer.mul(momentum * gained).add_(each.mul((phases - momentum * gained) / (1.0 - momentum)))
    buffer.mul_(kept).add_(each.mul(gained))
    return total.mul_(momentum).add_(delta) if nesterov else total


def _made(factory: OuterFactory | None, parameters: Mapping[str, torch.nn.Parameter]) -> Optimizer:
    if factory is not None and not callable(factory):
        raise ConfigError(f"outer {shown(factory)} is neither an optimizer nor a function that makes one of parameters")
    try:
        optimizer = Nesterov(parameters.values()) if factory is None else factory(list(parameters.values()))
    except IctError:
        raise
    except Exception as error:
        raise ConfigError(
            f"outer {shown(factory)} failed to make an optimizer: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(optimizer, Optimizer):
        raise ConfigError(f"outer {shown(factory)} made {shown(optimizer)}, which is not an optimizer")
    return optimizer


def _check_step(optimizer: Optimizer) -> None:
    """Refuse one that wants the loss again and again: an outer step has an average, and nothing to evaluate.

    And one of several: an outer step has its own parameters in the groups, which the parts would go on without.
    """
    if isinstance(optimizer, JointOptimizer):
        raise ConfigError(f"outer {kind(optimizer)} is several optimizers: give one, with groups of its own settings")
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigError(f"outer {type(optimizer).__name__} calls a closure in its step, and a round has none")


_EXACT = (Nesterov, DelayedNesterov)
"""Optimizers that leave a gradient as it is, and step each element by itself, whatever the threads that torch has.

What is derived from them may do neither.
"""


class Outer:
    """An outer optimizer whose parameters and state live in named tensors that come with each step."""

    def __init__(
        self,
        made: Optimizer | OuterFactory | None,
        parameters: Mapping[str, torch.nn.Parameter],
        dtype: torch.dtype = torch.float32,
        schedule: OuterSchedule | None = None,
    ) -> None:
        """Adopt an optimizer.

        Args:
            made: an optimizer over the model's parameters, something that makes one, or None for DiLoCo's default.
            parameters: the model's parameters by name.
            dtype: in which the global parameters are kept.
            schedule: what the learning rates are multiplied by, round by round; None for always 1.

        Raises:
            ConfigError: it does not cover exactly these parameters, its step needs a closure, it is several, its
                state cannot be shared, or a learning rate is no finite number.
        """
        optimizer = made if isinstance(made, Optimizer) else _made(made, parameters)
        _check_step(optimizer)
        self._settings, self._optimizer = Given(optimizer), _exact(optimizer)
        self._schedule = Schedule(schedule)
        self._groups = _names(self._optimizer, parameters)
        metas = {name: local(parameter).to("meta", dtype) for name, parameter in parameters.items()}
        self._state = {name: _state_entries(name, meta, *self._made(name)) for name, meta in metas.items()}
        self.entries = tuple(e for kept in self._state.values() for e in kept.values())
        """Its state, as tensors of the global state."""

    @property
    def in_parts(self) -> bool:
        """Whether a step can be taken by some elements before others."""
        return type(self._optimizer) in _EXACT

    def touched(self, parameters: Iterable[str]) -> list[str]:
        """The tensors of the global state that a step of these parameters writes to."""
        return [name for p in parameters for name in (p, *(e.name for e in self._state[p].values()))]

    def describe(self) -> tuple[tuple[str, str], ...]:
        """What must be equal on every worker, in words."""
        lines = [("outer optimizer", type(self._optimizer).__name__)]
        for number, group in enumerate(self._optimizer.param_groups):
            kept = {key: options.scalar(group[key]) for key in sorted(group) if key != "params"}
            lines += [(f"outer {key}, group {number}", repr(value)) for key, value in kept.items()]
        return (*lines, *self._schedule.describe())

    def check(self) -> None:
        """See whether the settings of the optimizer that was given are still those that it is stepped with.

        Raises:
            ConfigError: one has another value by now.
        """
        self._settings.check()

    @torch.no_grad()
    def step(
        self,
        tensors: Mapping[str, Tensor],
        deltas: Mapping[str, Tensor],
        phase: float = 1.0,
        contributions: int = 1,
        rounds: int = 0,
    ) -> None:
        """Step parameters and state in `tensors`, in place, down the averaged pseudo-gradients.

        Args:
            tensors: the global state, by name.
            deltas: for each parameter that takes a step. They stay as they are: if a round was under way beside
                training, followers are handed them afterwards.
            phase: how long the phase was that made them, in phases of the length that the optimizer was tuned for.
                `Nesterov` takes the step that as many such phases would have taken; any other takes one.
            contributions: of how many clusters they are the mean; `DelayedNesterov` counts them.
            rounds: that the state has behind it which `tensors` begin from; the schedule goes by them.

        Raises:
            ConfigError: the schedule has no factor for them.
        """
        if self.in_parts:
            return elementwise(self.jobs(tensors, deltas, phase, contributions, rounds).values())
        with self._bound(tensors, deltas, phase, contributions, rounds) as optimizer:
            bound = {p: dict(state) for p, state in optimizer.state.items()}
            each_alone([(optimizer.step, ())])
        for param, state in bound.items():
            for key, tensor in state.items():
                _keep(tensor, optimizer.state[param][key])

    @torch.no_grad()
    def jobs(
        self, tensors: Mapping[str, Tensor], deltas: Mapping[str, Tensor], phase: float, contributions: int, rounds: int
    ) -> dict[str, Job]:
        """What `step` with these does to each parameter, where it can be done in parts: see `Nesterov.jobs`.

        Whatever is not of single elements is done here.

        Raises:
            ConfigError: as for `step`.
        """
        with self._bound(tensors, deltas, phase, contributions, rounds) as optimizer:
            assert isinstance(optimizer, Nesterov | DelayedNesterov)
            names = (name for names in self._groups for name in names if name in deltas)
            return dict(zip(names, optimizer.jobs(), strict=True))

    @contextmanager
    def _bound(
        self, tensors: Mapping[str, Tensor], deltas: Mapping[str, Tensor], phase: float, contributions: int, rounds: int
    ) -> Iterator[Optimizer]:
        """The optimizer, over these tensors and at the learning rates that the schedule has, for this context.

        One that is the program's own has what it was given with afterwards: a step of its own would else move what the
        mesh agreed on.
        """
        optimizer, factor = self._optimizer, self._schedule.at(rounds)
        if isinstance(optimizer, Nesterov):
            optimizer.phase = phase
        if isinstance(optimizer, DelayedNesterov):
            optimizer.contributions = contributions
        optimizer.state.clear()
        given = [(group, group["params"]) for group in optimizer.param_groups]
        rated = zip(optimizer.param_groups, self._settings.rates, strict=True)
        held = [(group, group["lr"], rate) for group, rate in rated if rate is not None]
        try:
            for group, names in zip(optimizer.param_groups, self._groups, strict=True):
                group["params"] = [self._bind(name, tensors, deltas[name]) for name in names if name in deltas]
            for group, _, rate in held:
                group["lr"] = rate * factor
            yield optimizer
        finally:
            for group, before, _ in held:
                group["lr"] = before
            for group, parameters in given:
                group["params"] = parameters

    def _bind(self, name: str, tensors: Mapping[str, Tensor], delta: Tensor) -> torch.nn.Parameter:
        param = torch.nn.Parameter(tensors[name], requires_grad=False)
        # Of any other optimizer nobody knows whether it works in the gradient, as some of torch's do over many tensors.
        param.grad = delta if self.in_parts else delta.clone()
        state = {key: tensors[kept.name] for key, kept in self._state[name].items()}
        if state:
            self._optimizer.state[param] = state
        return param

    def _made(self, name: str) -> tuple[type[Optimizer], dict[str, Any]]:
        """How to make such an optimizer for one parameter."""
        kind = type(self._optimizer)
        group = next(g for g, n in zip(self._optimizer.param_groups, self._groups, strict=True) if name in n)
        accepted = inspect.signature(kind).parameters
        return kind, {key: value for key, value in group.items() if key in accepted and key != "params"}


def _exact(optimizer: Optimizer) -> Optimizer:
    """Replace torch's SGD by its exactly rounded form, where there is one."""
    groups = optimizer.param_groups
    plain = all(not (g.get("weight_decay") or g.get("dampening") or g.get("maximize")) for g in groups)
    if type(optimizer) is not SGD or not plain:
        return optimizer
    kept = ("lr", "momentum", "nesterov")
    return Nesterov(
        [{"params": group["params"], **{key: options.scalar(group[key]) for key in kept}} for group in groups]
    )


def _names(optimizer: Optimizer, parameters: Mapping[str, torch.nn.Parameter]) -> list[list[str]]:
    known = {id(p): name for name, p in parameters.items()}
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    strange = sum(key not in known for key in held)
    left_out = [name for key, name in known.items() if key not in held]
    if strange or left_out:
        raise ConfigError(
            f"the outer optimizer must hold exactly the model's trainable parameters: "
            f"{strange} are not the model's, left out are {left_out[:3] or 'none'}"
        )
    return [[known[id(p)] for p in group["params"]] for group in optimizer.param_groups]


def _state_entries(name: str, param: Tensor, kind: type[Optimizer], settings: dict[str, Any]) -> dict[str, Entry]:
    """Find what the optimizer keeps for a parameter, by letting it take one step on a stand-in."""
    grown = _probe(kind, settings, param, {})
    state: dict[str, Any] = next(iter(grown.state.values()), {})
    tensors = {key: value for key, value in sorted(state.items()) if value is not None}
    odd = next((key for key, value in tensors.items() if not isinstance(value, Tensor)), None)
    if odd is not None:
        raise ConfigError(f"outer optimizer {kind.__name__} keeps {odd!r} as {type(tensors[odd]).__name__}, no tensor")
    zeros = {key: torch.zeros_like(value) for key, value in tensors.items()}
    if tensors and not _same(grown, _probe(kind, settings, param, zeros)):
        raise ConfigError(
            f"outer optimizer {kind.__name__} does not start from a state of zeros, so none can be shared"
        )
    return {key: entry(f"outer {key} of {name}", value) for key, value in tensors.items()}


def _probe(kind: type[Optimizer], settings: dict[str, Any], like: Tensor, state: dict[str, Tensor]) -> Optimizer:
    # Rows that are distributions, since a mirror map may accept nothing else.
    value = torch.full(like.shape, 1.0 / max([1, *like.shape[-1:]]), dtype=like.dtype, device="cpu")
    param = torch.nn.Parameter(value)
    optimizer = kind([param], **settings)
    before = [_in_words(group) for group in optimizer.param_groups]
    if state:
        optimizer.state[param] = state
    param.grad = torch.full_like(param, 0.5)
    with torch.device("cpu"):  # for what the optimizer makes by itself, wherever the program has tensors made
        optimizer.step()
    for was, now in zip(before, map(_in_words, optimizer.param_groups), strict=True):
        moved = next((key for key, value in now.items() if was.get(key) != value), None)
        if moved is not None:
            raise ConfigError(
                f"outer optimizer {kind.__name__} changes {moved!r} of its group in a step, from "
                f"{was.get(moved, 'nothing')} to {now[moved]}: only what it keeps in tensors of its state can be shared"
            )
    return optimizer


def _in_words(group: Mapping[str, Any]) -> dict[str, str]:
    return {key: repr(options.scalar(value)) for key, value in group.items() if key != "params"}


def _same(one: Optimizer, other: Optimizer) -> bool:
    def first(optimizer: Optimizer) -> Tensor:
        param: Tensor = optimizer.param_groups[0]["params"][0]
        return param

    return torch.equal(first(one), first(other))


def _keep(tensor: Tensor, now: Any) -> None:
    """An optimizer may put a new tensor in place of ours; the content belongs in ours."""
    if now is not tensor:
        tensor.copy_(now)


def wide(dtypes: Sequence[torch.dtype]) -> torch.dtype:
    """The dtype in which a model's global state is kept: float32, or float64 for a model that is all of that."""
    return torch.float64 if dtypes and all(d == torch.float64 for d in dtypes) else torch.float32
