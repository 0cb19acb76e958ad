"""Faults as plain data, one by one and as a plan: what a failing run leaves behind, to be told to a world again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ictp2p.errors import ConfigError
from sim.faults import FAULTS, Fault
from sim.limits import DURATION, check


def to_dict(fault: Fault) -> dict[str, Any]:
    """A fault as plain data: its name under "fault", and the fields that are not at their default."""
    told: dict[str, Any] = {"fault": type(fault).__name__}
    for item in dataclasses.fields(fault):
        value = getattr(fault, item.name)
        if value != item.default:
            told[item.name] = list(value) if isinstance(value, tuple) else value
    return told


def from_dict(data: Mapping[str, Any]) -> Fault:
    """Read what `to_dict` wrote.

    Raises:
        ConfigError: there is no such fault, or a field is unknown, missing, or has a value that cannot be.
    """
    values = dict(data)
    name = values.pop("fault", None)
    kind = FAULTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ConfigError(f"fault {name!r} is not known: use one of {', '.join(FAULTS)}")
    _check_fields(name, kind, values)
    return kind(**values)


def _check_fields(name: str, kind: type[Fault], given: Mapping[str, Any]) -> None:
    fields = dataclasses.fields(kind)
    has = f"it has {', '.join(item.name for item in fields) or 'none'}"
    for key in given:
        if key not in (item.name for item in fields):
            raise ConfigError(f"fault {name} has no field {key!r}: {has}")
    missing = [item.name for item in fields if item.default is dataclasses.MISSING and item.name not in given]
    if missing:
        raise ConfigError(f"fault {name} lacks {', '.join(missing)}: {has}")


def moment(at: float, fault: Fault) -> float:
    """When a fault happens, in seconds.

    Raises:
        ConfigError: that is no time from now on.
    """
    check(f"fault {type(fault).__name__}: at", at, DURATION)
    return float(at)


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults and when they happen, in seconds from the start of the plan; sorted by time."""

    steps: tuple[tuple[float, Fault], ...] = ()

    @classmethod
    def of(cls, steps: Iterable[tuple[float, Fault]]) -> FaultPlan:
        """Sort steps into a plan; what stands at one time stays in the given order.

        Raises:
            ConfigError: a time cannot be.
        """
        return cls(tuple(sorted(((moment(at, fault), fault) for at, fault in steps), key=lambda step: step[0])))

    def __iter__(self) -> Iterator[tuple[float, Fault]]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def to_list(self) -> list[dict[str, Any]]:
        """As plain data, for TOML (`[[fault]]` tables) or JSON."""
        return [{"at": at, **to_dict(fault)} for at, fault in self.steps]

    @classmethod
    def from_list(cls, data: Iterable[Mapping[str, Any]]) -> FaultPlan:
        """Read what `to_list` wrote.

        Raises:
            ConfigError: a step is no fault, or has no time.
        """
        steps = []
        for item in data:
            if not isinstance(item, Mapping):
                raise ConfigError(f"{item!r} is no fault")
            values = dict(item)
            if "at" not in values:
                raise ConfigError(f"fault {values!r} needs `at`, seconds from the start")
            at = values.pop("at")
            steps.append((at, from_dict(values)))
        return cls.of(steps)

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(self.to_list())

    @classmethod
    def from_json(cls, text: str) -> FaultPlan:
        """Read what `to_json` wrote.

        Raises:
            ConfigError: the text is no JSON, or no plan.
        """
        try:
            steps = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"a fault plan must be JSON: {error}") from error
        if not isinstance(steps, list):
            raise ConfigError(f"a fault plan must be a list, not {steps!r}")
        return cls.from_list(steps)
