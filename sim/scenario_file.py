"""A user's own scenario: clusters, links, shared trunks, a workload and a fault script in one TOML file.

`docs/simulator.md` explains the format and has a complete example. JSON with the same tables does as well, which is
what programs write. Everything is checked before anything runs: a value that cannot be is named with its place.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ictp2p.core.overlay import COMPLETE
from ictp2p.errors import ConfigError
from ictp2p.types import cluster_id
from sim import mesh
from sim.faults import Corrupt, Join, Loss, SetBandwidth, SetDelay, Swallow
from sim.fields import Fields
from sim.invariants.recovery import Recovery
from sim.limits import DURATION, LASTING, RATE, WORKERS, Limits
from sim.plan import FaultPlan, to_dict
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


@dataclass(frozen=True, slots=True)
class _Cluster:
    name: str
    options: Mapping[str, Any]
    compute: float


@dataclass(frozen=True, slots=True)
class _Link:
    a: str
    b: str
    one_way: bool
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Trunk:
    name: str
    bandwidth: float
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Expected:
    version: int
    after_faults: int
    within: float
    participants: tuple[str, ...]
    recovery: bool


@dataclass(frozen=True, slots=True)
class _File:
    """A file that was found to be right."""

    about: str
    seconds: float
    profile: str
    elements: int
    elide: bool
    spare: bool
    full_mesh: int
    everywhere: Mapping[str, Any]
    clusters: tuple[_Cluster, ...]
    links: tuple[_Link, ...]
    trunks: tuple[_Trunk, ...]
    faults: FaultPlan
    expected: _Expected


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
    file = _read(Fields("", document))
    return Scenario(name, file.about, Settings, lambda stage, settings: _play(stage, file, settings), document)


# ---------------------------------------------------------------- reading


def _read(top: Fields) -> _File:
    about = top.text("about", "A scenario of a user's own.").strip()
    if not about:
        raise top.wrong("about", "must say something")
    run = top.table("run")
    default_compute = run.number("compute", 10.0, LASTING)
    clusters = tuple(_read_cluster(table, default_compute) for table in top.tables("cluster"))
    names = [cluster.name for cluster in clusters]
    if not names:
        raise ConfigError("cluster is missing: a world needs at least one [[cluster]]")
    for n, name in enumerate(names):
        if name in names[:n]:
            raise ConfigError(f"cluster[{n}].name = {name!r} is there already")
    if clusters[0].options["at"] != 0.0:
        raise ConfigError("cluster[0] founds the mesh: it must be there from the start")
    file = _File(
        about=about,
        seconds=run.number("seconds", 120.0, LASTING),
        profile=run.text("profile", "wan", of=("local", "lan", "wan")),
        elements=run.count("elements", 64, Limits(least=1, most=2**40)),
        elide=run.flag("elide", False),
        spare=run.flag("spare", False),
        full_mesh=run.count("full_mesh", COMPLETE, Limits(least=2)),
        everywhere=_read_link_values(top.table("links"), finish=True),
        clusters=clusters,
        links=tuple(_read_link(table, names) for table in top.tables("link")),
        trunks=tuple(_read_trunk(table, names) for table in top.tables("trunk")),
        faults=_read_faults(top.tables("fault"), clusters),
        expected=_read_expected(top.table("expect"), names),
    )
    run.done()
    top.done()
    return file


def _read_cluster(table: Fields, compute: float) -> _Cluster:
    name = table.text("name")
    try:
        cluster_id(name)
    except ConfigError as error:
        raise table.wrong("name", f"cannot be: {error}") from error
    joins_later = table.flag("waits", False)
    if joins_later and table.has("at"):
        raise table.wrong("at", "and waits cannot both be: a cluster that waits comes by a Join fault")
    options = {
        "workers": table.count("workers", 2, WORKERS),
        "up": table.number("up", math.inf, RATE),
        "down": table.number("down", math.inf, RATE),
        "nat": table.flag("nat", False),
        "train": table.flag("train", True),
        "at": table.number("at", 0.0, DURATION),
    }
    own_compute = table.number("compute", compute, LASTING)
    table.done()
    return _Cluster(name, {**options, **({"at": None} if joins_later else {})}, own_compute)


def _read_link(table: Fields, names: list[str]) -> _Link:
    ends = [_cluster_of(table, key, table.text(key), names, any_=True) for key in ("a", "b")]
    one_way = table.flag("one_way", False)
    return _Link(ends[0], ends[1], one_way, _read_link_values(table, finish=True))


def _read_link_values(table: Fields, *, finish: bool) -> dict[str, Any]:
    read: dict[str, Callable[[], Any]] = {
        "delay": lambda: table.number("delay", limits=DURATION),
        "jitter": lambda: table.number("jitter", limits=DURATION),
        "bandwidth": lambda: table.number("bandwidth", limits=RATE),
        "loss": lambda: table.share("loss", 0.0),
        "corrupt": lambda: table.share("corrupt", 0.0),
        "swallows": lambda: table.flag("swallows", False),
        "window": lambda: table.number("window", limits=RATE),
    }
    values = {key: get() for key, get in read.items() if table.has(key)}
    if finish:
        table.done()
    return values


def _read_trunk(table: Fields, names: list[str]) -> _Trunk:
    name, bandwidth = table.text("name"), table.number("bandwidth", limits=RATE)
    pairs: list[tuple[str, str]] = []
    for pair in table.items("pairs"):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(end, str) for end in pair):
            raise table.wrong("pairs", f"has {pair!r}, which is no pair of clusters")
        pairs.append((_cluster_of(table, "pairs", pair[0], names), _cluster_of(table, "pairs", pair[1], names)))
    table.done()
    if not pairs:
        raise table.wrong("pairs", "must name who shares the trunk")
    return _Trunk(name, bandwidth, tuple(pairs))


def _read_expected(table: Fields, names: list[str]) -> _Expected:
    expected = _Expected(
        version=table.count("version", 2),
        after_faults=table.count("after_faults", 1),
        within=table.number("within", 120.0, LASTING),
        participants=tuple(_cluster_of(table, "participants", x, names) for x in table.texts("participants")),
        recovery=table.flag("recovery", False),
    )
    table.done()
    return expected


def _cluster_of(table: Fields, key: str, name: str, names: list[str], *, any_: bool = False) -> str:
    if name not in names and not (any_ and name == "*"):
        raise table.wrong(key, f"names {name!r}, which is no cluster: use one of {', '.join(names)}")
    return name


def _read_faults(tables: list[Fields], clusters: tuple[_Cluster, ...]) -> FaultPlan:
    steps = []
    for n, table in enumerate(tables):
        try:
            plan = FaultPlan.from_list([table.raw()])
        except ConfigError as error:
            raise ConfigError(f"fault[{n}]: {error}") from error
        steps += list(plan)
    plan = FaultPlan.of(steps)
    workers = {cluster.name: cluster.options["workers"] for cluster in clusters}
    for join in [fault for _, fault in plan if isinstance(fault, Join) and fault.cluster in workers]:
        workers[join.cluster] += join.workers  # a bound: the first one may only wake those who wait
    for at, fault in plan:
        told = to_dict(fault)
        for key, value in told.items():
            for name in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
                _check_name(f"fault {told['fault']} at {at:g} s: {key}", key, name, workers, fault)
    joins = {fault.cluster for _, fault in plan if isinstance(fault, Join)}
    idle = [cluster.name for cluster in clusters if cluster.options["at"] is None and cluster.name not in joins]
    if idle:
        raise ConfigError(f"cluster {idle[0]!r} waits for a Join fault, and there is none that names it")
    return plan


_OF_LINKS = (SetBandwidth, SetDelay, Loss, Corrupt, Swallow)
"""Faults of what is between clusters, and of no host."""


def _check_name(where: str, key: str, name: str, workers: Mapping[str, int], fault: object) -> None:
    """Whether a fault's field names somebody who is there."""
    cluster, slash, number = name.partition("/")
    is_host = bool(slash) and cluster in workers and number.isdecimal() and int(number) < workers[cluster]
    is_cluster = name in workers
    is_end = is_cluster or name == "*" or (is_host and not isinstance(fault, _OF_LINKS))
    wanted = {
        "host": is_host,
        "hosts": is_host,
        "cluster": is_cluster,
        "name": is_host or is_cluster,
        "side": is_host or is_cluster,
        "a": is_end,
        "b": is_end or (isinstance(fault, SetBandwidth) and name in ("up", "down")),
    }
    if not wanted.get(key, True):
        raise ConfigError(f"{where} = {name!r} is not there: the clusters are {', '.join(workers)}")


# ---------------------------------------------------------------- playing


def _play(stage: Stage, file: _File, settings: Settings) -> None:
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


def _check_end(file: _File, seconds: float) -> None:
    """Refuse a run that would end before all of it has happened, and be taken for one in which it did no harm."""
    ending = f"after the run's end at {seconds:g} s, and would not happen: raise run.seconds, or --set seconds="
    for at, fault in file.faults:
        if at > seconds:
            raise ConfigError(f"fault {to_dict(fault)['fault']} at {at:g} s is {ending}")
    for cluster in file.clusters:
        if (cluster.options["at"] or 0.0) > seconds:
            raise ConfigError(f"cluster {cluster.name} comes at {cluster.options['at']:g} s, which is {ending}")


def opened(document: Mapping[str, Any], stage: Stage) -> World:
    """Build the world of a document and let nothing happen in it yet.

    Raises:
        ConfigError: something in the document cannot be.
    """
    return _build(stage, _read(Fields("", document)), Settings())


def _build(stage: Stage, file: _File, settings: Settings) -> World:
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


def _garbles(file: _File) -> bool:
    """Whether bits may flip on the way: then bulk bytes are sealed, for nothing else notices."""
    links = [file.everywhere, *(link.values for link in file.links)]
    return any("corrupt" in values for values in links) or any(isinstance(fault, Corrupt) for _, fault in file.faults)


def _expect(stage: Stage, file: _File) -> None:
    world, expected = stage.world, file.expected
    if expected.recovery:
        recovery = Recovery(world)
        recovery.run()
        for rule, taken in recovery.seconds.items():
            stage.check(f"{rule} after the last fault", True, seen=f"{taken:.1f} s")
        stage.snapshot("at the end")
        return
    trains = any(cluster.options["train"] for cluster in file.clusters)
    last = world.history[-1][0] if world.history else 0.0
    if not trains:
        world.run_until(world.believes_all, within=expected.within, what="everybody knows everybody")
        stage.check("everybody knows everybody", True)
    else:
        missing = expected.after_faults - len(stage.committed(last))
        if missing > 0:
            stage.await_commits(missing, within=expected.within)
        if expected.participants:
            world.run_until(
                lambda: _last(stage) == sorted(expected.participants), within=expected.within, step=1.0,
                what=f"a round with {', '.join(expected.participants)} and nobody else",
            )  # fmt: skip
            stage.check("the last round had the right clusters", True, seen=" ".join(_last(stage)))
        mesh.settle(stage, within=expected.within)
        done = len(stage.committed(last))
        stage.check(
            "rounds after the last fault", done >= expected.after_faults, seen=done, wanted=expected.after_faults
        )
        version = world.version()
        stage.check("version of the state", version >= expected.version, seen=version, wanted=expected.version)
        mesh.check_counted(stage)
    stage.snapshot("at the end")


def _last(stage: Stage) -> list[str]:
    """Who took part in the last round."""
    return sorted(stage.committed()[-1].participants) if stage.committed() else []
