"""Faults as plain data, one by one and as a plan: what a failing run leaves behind, to be told to a world again."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sim.faults import FAULTS, Fault


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
        ValueError: there is no such fault, or a field is unknown, missing, or of the wrong type.
    """
    values = dict(data)
    name = values.pop("fault", None)
    kind = FAULTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"fault {name!r} is not known: use one of {', '.join(FAULTS)}")
    hints = typing.get_type_hints(kind)
    for field_name, value in values.items():
        if field_name not in hints:
            raise ValueError(f"fault {name} has no field {field_name!r}")
        values[field_name] = _converted(f"{name}.{field_name}", hints[field_name], value)
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"fault {name}: {error}") from error


def _converted(where: str, hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin is Literal:
        if value in typing.get_args(hint):
            return value
    elif origin is tuple:
        if isinstance(value, (list, tuple)) and all(isinstance(x, str) for x in value):
            return tuple(value)
    elif hint is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif isinstance(hint, type) and type(value) is hint:
        return value
    raise ValueError(f"{where} cannot be {value!r}")


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults and when they happen, in seconds from the start of the plan; sorted by time."""

    steps: tuple[tuple[float, Fault], ...] = ()

    @classmethod
    def of(cls, steps: Iterable[tuple[float, Fault]]) -> FaultPlan:
        """Sort steps into a plan; what stands at one time stays in the given order."""
        return cls(tuple(sorted(((float(at), fault) for at, fault in steps), key=lambda step: step[0])))

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
            ValueError: a step is no fault, or has no time.
        """
        steps = []
        for item in data:
            values = dict(item)
            at = values.pop("at", None)
            if not isinstance(at, (int, float)) or isinstance(at, bool) or at < 0:
                raise ValueError(f"fault {dict(item)!r} needs `at`, seconds from the start")
            steps.append((float(at), from_dict(values)))
        return cls.of(steps)

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(self.to_list())

    @classmethod
    def from_json(cls, text: str) -> FaultPlan:
        """Read what `to_json` wrote."""
        return cls.from_list(json.loads(text))
