"""What a scenario file says, once all of it has been checked.

A value that cannot be is named with its place, and so is a name of nobody, before anything runs: a fault that harms
nobody would else pass for one that did no harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ictp2p.core.overlay import COMPLETE
from ictp2p.errors import ConfigError
from ictp2p.types import cluster_id
from sim.faults import Corrupt, Join, Loss, SetBandwidth, SetDelay, Swallow
from sim.fields import Fields
from sim.limits import DURATION, LASTING, RATE, WORKERS, Limits
from sim.plan import FaultPlan, to_dict


@dataclass(frozen=True, slots=True)
class Cluster:
    """A `[[cluster]]`."""

    name: str
    options: Mapping[str, Any]
    compute: float


@dataclass(frozen=True, slots=True)
class Link:
    """A `[[link]]`."""

    a: str
    b: str
    one_way: bool
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trunk:
    """A `[[trunk]]`."""

    name: str
    bandwidth: float
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """What must be seen for the run to have gone well."""

    version: int
    after_faults: int
    within: float
    participants: tuple[str, ...]
    recovery: bool


@dataclass(frozen=True, slots=True)
class Document:
    """A file that was found to be right."""

    about: str
    seconds: float
    profile: str
    elements: int
    elide: bool
    spare: bool
    full_mesh: int
    everywhere: Mapping[str, Any]
    clusters: tuple[Cluster, ...]
    links: tuple[Link, ...]
    trunks: tuple[Trunk, ...]
    faults: FaultPlan
    expected: Expected


def read_document(document: Mapping[str, Any]) -> Document:
    """Check a document, and give what it says.

    Raises:
        ConfigError: something in it cannot be.
    """
    top = Fields("", document)
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
    read = Document(
        about=about,
        seconds=run.number("seconds", 120.0, LASTING),
        profile=run.text("profile", "wan", of=("local", "lan", "wan")),
        elements=run.count("elements", 64, Limits(least=1, most=2**40)),
        elide=run.flag("elide", False),
        spare=run.flag("spare", False),
        full_mesh=run.count("full_mesh", COMPLETE, Limits(least=2)),
        everywhere=_read_link_values(top.table("links")),
        clusters=clusters,
        links=tuple(_read_link(table, names) for table in top.tables("link")),
        trunks=tuple(_read_trunk(table, names) for table in top.tables("trunk")),
        faults=_read_faults(top.tables("fault"), clusters),
        expected=_read_expected(top.table("expect"), names),
    )
    run.done()
    top.done()
    return read


def _read_cluster(table: Fields, compute: float) -> Cluster:
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
    return Cluster(name, {**options, **({"at": None} if joins_later else {})}, own_compute)


def _read_link(table: Fields, names: list[str]) -> Link:
    ends = [_cluster_of(table, key, table.text(key), names, any_=True) for key in ("a", "b")]
    one_way = table.flag("one_way", False)
    return Link(ends[0], ends[1], one_way, _read_link_values(table))


def _read_link_values(table: Fields) -> dict[str, Any]:
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
    table.done()
    return values


def _read_trunk(table: Fields, names: list[str]) -> Trunk:
    name, bandwidth = table.text("name"), table.number("bandwidth", limits=RATE)
    pairs: list[tuple[str, str]] = []
    for pair in table.items("pairs"):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(end, str) for end in pair):
            raise table.wrong("pairs", f"has {pair!r}, which is no pair of clusters")
        pairs.append((_cluster_of(table, "pairs", pair[0], names), _cluster_of(table, "pairs", pair[1], names)))
    table.done()
    if not pairs:
        raise table.wrong("pairs", "must name who shares the trunk")
    return Trunk(name, bandwidth, tuple(pairs))


def _read_expected(table: Fields, names: list[str]) -> Expected:
    expected = Expected(
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


def _read_faults(tables: list[Fields], clusters: tuple[Cluster, ...]) -> FaultPlan:
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
