"""The settings of the outer optimizer: fixed once a policy has it, but for a schedule that the policy itself follows.

A learning rate that a program's loop sets depends on when that loop ran, and the loop does not see every round. A
cluster that was late goes on to a newer state, and brings its training to the very next round, within one inner step:
it would step at the rate of an older state, to another digest than all others, and miss that round as well, and so on.
A schedule is therefore asked in the outer step, for the number of rounds that the agreed state has behind it. Whoever
starts from that state steps at the same rate, late or not, newcomer or not; and since checkpoints hold that number, it
goes on where it was after a restart, which the version does not: that is 1 in each new mesh.

What is set by hand on the optimizer that was given would be right on some clusters and late on others, or is not looked
at any more because our exactly rounded form has taken its place. It is refused, by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from ictp2p.errors import ConfigError, shown
from ictp2p.sync import options

OuterSchedule = Callable[[int], float]
"""The factor of the outer learning rates after so many rounds, as in torch's `LambdaLR`."""
_MOST = 1e30
"""Greatest factor: finite in single precision."""
_COMPARED = (0, 1, 10, 100, 1000, 10000, 100000)
"""Rounds for which the schedules of all workers are held against each other before they begin: functions cannot be."""


class Schedule:
    """By what the learning rates of an outer step are multiplied.

    Args:
        factor: tells; None for always 1.

    Raises:
        ConfigError: it cannot be called, or what it gives for a training's first round is no factor.
    """

    def __init__(self, factor: OuterSchedule | None = None) -> None:
        if factor is not None and not callable(factor):
            raise ConfigError(
                f"outer_schedule {shown(factor)} is not callable: give a function that takes the number of rounds so "
                "far and returns the factor of the outer learning rate"
            )
        self._factor = factor
        self.at(0)

    def at(self, rounds: int) -> float:
        """The factor in the step from a state with so many rounds behind it.

        In single precision, since of a cosine two machines may differ in the last digit of a double.

        Raises:
            ConfigError: there is none: all workers would step to the same NaN, and agree on it.
        """
        if self._factor is None:
            return 1.0
        try:
            factor = options.scalar(self._factor(rounds))
        except Exception as error:
            raise ConfigError(f"outer_schedule({rounds}) failed: {type(error).__name__}: {error}") from error
        name, words = f"outer_schedule({rounds}) =", f"a number from 0 to {_MOST:g}"
        options.number(name, factor, lambda f: 0.0 <= f <= _MOST, words)
        return torch.tensor(float(factor), dtype=torch.float32, device="cpu").item()

    def describe(self) -> list[tuple[str, str]]:
        """What must be equal on every worker, in words."""
        if self._factor is None:
            return []
        return [(f"outer schedule, round {rounds}", self._in_words(rounds)) for rounds in _COMPARED]

    def _in_words(self, rounds: int) -> str:
        try:
            return repr(self.at(rounds))
        except ConfigError:  # beyond the last round that it knows; whoever comes that far is told
            return "none"


class Given:
    """What an outer optimizer was given with.

    Args:
        given: by the program.

    Raises:
        ConfigError: a learning rate is no finite number.
    """

    def __init__(self, given: Optimizer) -> None:
        self._given = given
        self._groups = [_settings(group) for group in given.param_groups]
        for group in self._groups:
            if group.get("lr") is not None:
                words = "finite, and 0 or more"
                options.number("outer learning rate", group["lr"], lambda lr: 0.0 <= lr < math.inf, words)

    @property
    def rates(self) -> Sequence[float | None]:
        """The learning rate of each group, if it has one."""
        return [group.get("lr") for group in self._groups]

    def check(self) -> None:
        """See whether they are what they were.

        Raises:
            ConfigError: one has another value by now.
        """
        why = "outer settings stay as they were when the policy was made; a rate that changes is an outer_schedule"
        if len(self._given.param_groups) != len(self._groups):
            raise ConfigError(f"outer has {len(self._given.param_groups)} groups, not {len(self._groups)}: {why}")
        for number, (group, was) in enumerate(zip(self._given.param_groups, self._groups, strict=True)):
            for key, value in was.items():
                now = options.scalar(group.get(key))
                if now != value:
                    raise ConfigError(f"outer {key} of group {number} is {now!r} now, and was {value!r}: {why}")


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: options.scalar(value) for key, value in group.items() if key != "params"}
