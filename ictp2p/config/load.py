"""Where values come from: preset, TOML, environment, arguments."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ictp2p.config.checks import checked, in_words, truth, type_of, unknown
from ictp2p.config.table import ELSEWHERE, ENVIRONMENT_PREFIX, leaves, variable
from ictp2p.config.values import PRESETS, Config, Timeouts, check_layer
from ictp2p.errors import ConfigError

_TOKEN = variable("token")


def load(
    preset: str = "lan",
    *,
    toml: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """Put a configuration together; later arguments win over earlier ones.

    Args:
        preset: "local", "lan" or "wan".
        toml: a file of `name = value` lines, with tables `[local_timeouts]` and `[global_timeouts]`.
        env: the environment, usually `os.environ`; `ICTP2P_LOCAL_TIMEOUTS_STALL=5` sets one timeout.
        overrides: values by name, nested ones as mappings; those that are None are as if absent.

    Raises:
        ConfigError: a key is unknown, a value is not valid, or one that has no default is missing.
    """
    if preset not in PRESETS:
        raise ConfigError(f"preset {preset!r} is not known: use one of {', '.join(PRESETS)}")
    file = {} if toml is None else _read_toml(Path(toml), PRESETS[preset])
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    told = dict(env or {})
    if "token" in given and not told.get(_TOKEN):  # empty: no value that somebody meant, and hides nothing here
        told.pop(_TOKEN, None)
    return Config.made(PRESETS[preset], file, _read_environment(told), given)


def _read_toml(path: Path, base: Mapping[str, Any]) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise ConfigError(f"cannot read configuration {str(path)!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also a name with a zero byte, endless numbers, or brackets
        raise ConfigError(f"configuration {str(path)!r} is not TOML: {error}") from error
    try:
        check_layer(base, values)
    except ConfigError as error:
        raise ConfigError(f"configuration {str(path)!r}: {error}") from error
    return values


def _read_environment(env: Mapping[str, str]) -> dict[str, Any]:
    known = {variable(name): (name, f) for name, f in leaves()}
    values: dict[str, Any] = {}
    for key in sorted(key for key in env if key.startswith(ENVIRONMENT_PREFIX) and key not in ELSEWHERE):
        if key not in known:
            bare, *names = (each.removeprefix(ENVIRONMENT_PREFIX) for each in (key, *known))
            raise unknown("environment variable", bare, names, ENVIRONMENT_PREFIX)
        name, f = known[key]
        outer, _, inner = name.partition(".")
        owner, into = (Timeouts, values.setdefault(outer, {})) if inner else (Config, values)
        into[f.name] = checked(owner, f, _parse(key, env[key], type_of(owner, f.name)), key)
    return values


def _parse(key: str, text: str, kind: Any) -> Any:
    try:
        if kind is bool:
            return truth(text)
    except ConfigError as error:
        raise ConfigError(f"{key}={error}") from error
    try:
        if kind is int:
            return int(text)
        if kind in (float, float | None):
            return float(text)
    except ValueError:
        raise ConfigError(f"{key}={text!r} is not valid: it must be of type {in_words(kind)}") from None
    if kind == tuple[str, ...]:
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        if not parts:  # as of a variable that a script forgot to set: a mesh of one's own is not what it meant
            raise ConfigError(f"{key}={text!r} names nobody: unset it if that is meant")
        return parts
    return text
