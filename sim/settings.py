"""What a scenario can be told with `--set key=value`: a frozen dataclass whose fields explain themselves.

A scenario declares its settings as a dataclass with `setting(...)` fields; the command line turns text into values
of the fields' types, and the help table is made from the same declaration.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from ictp2p.errors import ConfigError
from sim.limits import Limits

S = TypeVar("S")

_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def setting(
    default: Any,
    meaning: str,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    of: tuple[str, ...] = (),
) -> Any:
    """Declare a field.

    Args:
        default: its value if nothing is set; its type is the field's.
        meaning: one line, with the unit.
        least: smallest number allowed.
        above: number below all allowed ones.
        most: largest number allowed.
        of: texts allowed, if not all.
    """
    limits = Limits(least=least, above=above, most=most)
    return dataclasses.field(default=default, metadata={"meaning": meaning, "limits": limits, "of": of})


def made(kind: type[S], given: Mapping[str, object], whose: str) -> S:
    """Make settings of texts (or values, as a report has them).

    Raises:
        ConfigError: a key is unknown or a value cannot be; the message names both.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, object] = {}
    for key, value in given.items():
        if key not in fields:
            raise ConfigError(f"{whose} has no setting {key!r}: it has {', '.join(fields) or 'none'}")
        values[key] = _checked(fields[key], _read(fields[key], value, whose), whose)
    return kind(**values)


def rows(kind: type[Any]) -> list[tuple[str, str, str]]:
    """Name, default and meaning of each setting."""
    return [(field.name, _shown(field.default), field.metadata["meaning"]) for field in dataclasses.fields(kind)]


def told(settings: Any) -> dict[str, Any]:
    """The settings that are not at their default."""
    fields = dataclasses.fields(settings)
    return {f.name: getattr(settings, f.name) for f in fields if getattr(settings, f.name) != f.default}


def _read(field: dataclasses.Field[Any], value: object, whose: str) -> object:
    """Text as a value of the type that the field's default has."""
    kind: type[Any] = type(field.default)
    try:
        if kind is bool:
            return _TRUTHS[str(value).lower()]
        if kind is int:
            return int(str(value))
        return kind(value)
    except (KeyError, ValueError, TypeError, OverflowError):
        raise ConfigError(f"{whose}: {field.name}={value} is not {_KINDS[kind]}") from None


def _checked(field: dataclasses.Field[Any], value: Any, whose: str) -> object:
    of = field.metadata["of"]
    if of and value not in of:
        raise ConfigError(f"{whose}: {field.name}={value} is not one of {', '.join(of)}")
    if isinstance(value, (int, float)) and (why := field.metadata["limits"].objection(value)):
        raise ConfigError(f"{whose}: {field.name}={value} {why}")
    return value


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
