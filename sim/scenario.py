"""What a scenario is, and how it is found and played: a Python file of `sim.scenarios`, or a file that a user wrote.

A scenario gets a `Stage`, builds a world on it, lets things happen, and says with `Stage.check` what must have been
seen. `play` gives a finished `Stage`, whether the scenario ended, a check failed or an invariant broke.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ictp2p.errors import ConfigError
from sim.invariants import Breach
from sim.scenarios import SCENARIOS
from sim.settings import made
from sim.stage import Stage, Told


@dataclass(frozen=True, slots=True)
class Scenario:
    """Something that can be played."""

    name: str
    help: str
    """What happens, and what must be seen."""
    settings: type[Any]
    """Dataclass of what can be set."""
    play: Callable[[Stage, Any], None]
    document: Mapping[str, Any] | None = None
    """The whole of a user's file, for reports; None for a scenario that is shipped."""

    @property
    def line(self) -> str:
        """The first line of the help text."""
        return self.help.strip().splitlines()[0]


def shipped(name: str) -> Scenario:
    """The scenario of this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in SCENARIOS:
        near = difflib.get_close_matches(name, SCENARIOS, 1)
        hint = f"did you mean {near[0]}? There are" if near else "use one of"
        raise ConfigError(f"scenario {name!r} is not known: {hint} {', '.join(SCENARIOS)}, or a .toml or .json file")
    module = importlib.import_module(f"sim.scenarios.{name}")
    return Scenario(name, inspect.getdoc(module) or "", module.Settings, module.play)


def found(name: str) -> Scenario:
    """The scenario that `name` means: a file if it looks like one, else one that is shipped.

    Raises:
        ConfigError: there is none, or the file is wrong.
    """
    if name.endswith((".toml", ".json")) or "/" in name:
        from sim import scenario_file

        return scenario_file.load(Path(name))
    return shipped(name)


def play(scenario: Scenario, seed: int, given: Mapping[str, object], *, told: Told | None = None) -> Stage:
    """Play a scenario.

    Args:
        scenario: what.
        seed: of everything.
        given: settings, as text or values.
        told: called with what happens as it happens.

    Raises:
        ConfigError: a setting cannot be.
    """
    settings = made(scenario.settings, given, scenario.name)
    stage = Stage(seed, told)
    began = time.perf_counter()
    try:
        scenario.play(stage, settings)
    except Breach as breach:
        stage.breach = str(breach)
    finally:
        stage.seconds = time.perf_counter() - began
    return stage
