"""The table of parameters: one row per value that can be set, made from the fields themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from ictp2p.config.checks import type_of
from ictp2p.config.values import PRESETS, Config, Timeouts

ENVIRONMENT_PREFIX = "ICTP2P_"
"""Before the upper-case name of a parameter, as in `ICTP2P_BULK_RATE`."""


ELSEWHERE = frozenset({"ICTP2P_HOST", "ICTP2P_SEALED"})
"""Variables of the same prefix that are no parameters of a peer: process groups read them (`torch_backend.options`),
and one job may have both."""


class Parameter(NamedTuple):
    """One row of the table of parameters."""

    name: str
    unit: str
    default: str
    meaning: str
    how: str


def parameters(preset: str = "lan") -> list[Parameter]:
    """Every parameter, with its default under a preset, for the documentation and `ictp2p config`."""
    return [
        Parameter(name, f.metadata["unit"], _default(PRESETS[preset], name, f), f.metadata["meaning"], _how(name))
        for name, f in leaves()
    ]


def leaves() -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Every value that can be set, by name; a timeout is named by its set and itself."""
    for outer in fields(Config):
        if type_of(Config, outer.name) is Timeouts:
            yield from ((f"{outer.name}.{inner.name}", inner) for inner in fields(Timeouts))
        else:
            yield outer.name, outer


def variable(name: str) -> str:
    """The environment variable that sets a parameter."""
    return ENVIRONMENT_PREFIX + name.replace(".", "_").upper()


def _how(name: str) -> str:
    outer, _, inner = name.partition(".")
    line = f"`{inner} = ...` under `[{outer}]`" if inner else f"`{outer} = ...`"
    return f"{line}, or {variable(name)}"


def _default(preset: Mapping[str, Any], name: str, of: dataclasses.Field[Any]) -> str:
    outer, _, inner = name.partition(".")
    value = preset.get(outer, of.default)
    value = getattr(value, inner) if inner else value
    if value is dataclasses.MISSING:
        return "required"
    if value in (None, "", ()):
        return "not set"
    return f"{value:g}" if isinstance(value, float) else str(value)


def page() -> str:
    """The documentation page `docs/parameters.md`."""
    presets = {name: {row.name: row.default for row in parameters(name)} for name in PRESETS}
    heads = ("parameter", "unit", *(f"`{name}`" for name in presets), "meaning", "how to set")
    rows = [
        (f"`{row.name}`", row.unit, *(presets[name][row.name] for name in presets), row.meaning, row.how)
        for row in parameters()
    ]
    table = [heads, ("---",) * len(heads), *rows]
    return "\n".join([_HEAD, *("| " + " | ".join(cells) + " |" for cells in table)])


HOW_TO_LOAD = """\
Config.local(...), Config.lan(...) and Config.wan(...) take arguments, and read neither a file nor ICTP2P_*.
A set of timeouts is a mapping there, as in Config.wan(global_timeouts={"stall": 30.0}, ...); the others stay.
ictp2p.config.load("wan", toml="peer.toml", env=os.environ, overrides={"rank": 1}) reads them all; later ones win.
"""
"""What a file and the environment need to count at all."""

_HEAD = """# Every parameter

Generated from `ictp2p/config/values.py`, which is what runs: `ictp2p config --markdown > docs/parameters.md`.
The three columns of defaults are those of `Config.local`, `Config.lan` and `Config.wan`, which take arguments and
read neither a file nor `ICTP2P_*`. To have a TOML file or the environment read as well, say so:

```python
import os

from ictp2p.config import load

config = load("wan", toml="peer.toml", env=os.environ, overrides={"rank": 1})
```

Later sources win: preset, TOML file, environment, overrides. An unknown name is an error in each of them.
A set of timeouts is a table in TOML, and a mapping in Python, as in `Config.wan(global_timeouts={"stall": 30.0}, ...)`;
what it does not name stays as the preset has it. A file:

```toml
cluster = "oslo"
join = ["train.zurich.example:7450"]  # nobody to join: leave the line out
data_dir = "peer"

[global_timeouts]
stall = 30
```
"""
