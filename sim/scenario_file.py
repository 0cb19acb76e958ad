"""A user's own scenario: clusters, links, shared trunks, a workload and a fault script in one TOML file.

`docs/simulator.md` explains the format and has a complete example. JSON with the same tables does as well, which is
what programs write. `document` reads and checks it; here its world is built, its faults are done, and what it expects
is looked for.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ictp2p.errors import ConfigError
from sim import mesh
from sim.document import Document, Expected, read_document
from sim.faults import Corrupt
from sim.invariants.recovery import Recovery
from sim.plan import to_dict
from sim.scenario import Scenario
from sim.settings import setting
from sim.stage import Stage
from sim.world import World


@dataclass(frozen=True, slots=True)
class Settings:
    """What `--set` can change; 0 or nothing: as the file has it."""

    seconds: float = setting(0.0, "virtual seconds to run for", least=0)
    compute: float = setting(0.0, "seconds of an inner phase, in all clusters", least=0)
    profile: str = setting("", "the peers' timeouts", of=("", "local", "lan", "wan"))


def load(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        ConfigError: it cannot be read, or something in it cannot be.
    """
    try:
        text = path.read_text()
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"scenario file {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # bad TOML, JSON, or UTF-8, or brackets without end
        raise ConfigError(f"scenario file {path}: {error}") from error
    try:
        return read(document, path.stem)
    except ConfigError as error:
        raise ConfigError(f"scenario file {path}: {error}") from error


def read(document: Mapping[str, Any], name: str) -> Scenario:
    """Make a scenario of a document.

    Raises:
        ConfigError: something in it cannot be.
    """
    file = read_document(document)
    return Scenario(name, file.about, Settings, lambda stage, settings: _play(stage, file, settings), document)


def opened(document: Mapping[str, Any], stage: Stage) -> World:
    """Build the world of a document and let nothing happen in it yet.

    Raises:
        ConfigError: something in the document cannot be.
    """
    return _build(stage, read_document(document), Settings())


def _play(stage: Stage, file: Document, settings: Settings) -> None:
    seconds = settings.seconds or file.seconds
    _check_end(file, seconds)
    world = _build(stage, file, settings)
    for at, fault in file.faults:
        world.run_to(at)
        if at > 0 and not world.history:
            stage.snapshot("before the first fault")
        world.inject(fault)
    world.run_to(seconds)
    _expect(stage, file)


def _check_end(file: Document, seconds: float) -> None:
    """Refuse a run that would end before all of it has happened, and be taken for one in which it did no harm."""
    ending = f"after the run's end at {seconds:g} s, and would not happen: raise run.seconds, or --set seconds="
    for at, fault in file.faults:
        if at > seconds:
            raise ConfigError(f"fault {to_dict(fault)['fault']} at {at:g} s is {ending}")
    for cluster in file.clusters:
        if (cluster.options["at"] or 0.0) > seconds:
            raise ConfigError(f"cluster {cluster.name} comes at {cluster.options['at']:g} s, which is {ending}")


def _build(stage: Stage, file: Document, settings: Settings) -> World:
    world = stage.open(
        profile=settings.profile or file.profile,
        elide=file.elide,
        spare_quorum=file.spare,
        full_mesh=file.full_mesh,
        encrypt=_garbles(file),
        state_bytes=4 * file.elements,
    )
    world.links(**file.everywhere)
    for cluster in file.clusters:
        compute = settings.compute or cluster.compute
        world.cluster(cluster.name, compute=compute, elements=file.elements, **cluster.options)
    for link in file.links:
        world.link(link.a, link.b, one_way=link.one_way, **link.values)
    for trunk in file.trunks:
        world.trunk(trunk.name, trunk.pairs, trunk.bandwidth)
    return world


def _garbles(file: Document) -> bool:
    """Whether bits may flip on the way: then bulk bytes are sealed, for nothing else notices."""
    links = [file.everywhere, *(link.values for link in file.links)]
    return any("corrupt" in values for values in links) or any(isinstance(fault, Corrupt) for _, fault in file.faults)


def _expect(stage: Stage, file: Document) -> None:
    if file.expected.recovery:
        _expect_recovery(stage)
    elif any(cluster.options["train"] for cluster in file.clusters):
        _expect_rounds(stage, file.expected)
    else:
        stage.world.run_until(stage.world.believes_all, within=file.expected.within, what="everybody knows everybody")
        stage.check("everybody knows everybody", True)
    stage.snapshot("at the end")


def _expect_recovery(stage: Stage) -> None:
    recovery = Recovery(stage.world)
    recovery.run()
    for rule, taken in recovery.seconds.items():
        stage.check(f"{rule} after the last fault", True, seen=f"{taken:.1f} s")


def _expect_rounds(stage: Stage, expected: Expected) -> None:
    world, within = stage.world, expected.within
    last = world.history[-1][0] if world.history else 0.0
    missing = expected.after_faults - len(stage.committed(last))
    if missing > 0:
        stage.await_commits(missing, within=within)
    if expected.participants:
        wanted, names = sorted(expected.participants), ", ".join(expected.participants)
        what = f"a round with {names} and nobody else"
        world.run_until(lambda: _last(stage) == wanted, within=within, step=1.0, what=what)
        stage.check("the last round had the right clusters", True, seen=" ".join(_last(stage)))
    mesh.settle(stage, within=within)
    done, least = len(stage.committed(last)), expected.after_faults
    stage.check("rounds after the last fault", done >= least, seen=done, wanted=least)
    version = world.version()
    stage.check("version of the state", version >= expected.version, seen=version, wanted=expected.version)
    mesh.check_counted(stage)


def _last(stage: Stage) -> list[str]:
    """Who took part in the last round."""
    return sorted(stage.committed()[-1].participants) if stage.committed() else []
