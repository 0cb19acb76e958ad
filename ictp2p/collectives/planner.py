"""Choose the schedule: predict each candidate on the measured links, take the fastest, and say why.

Candidates are sets of trees: stars, the best ring, each parameter server, and trees grown over the graph. For each set
a linear program decides how much of the vector each tree carries (`packing`), which gives the time in the fluid
model; the longest way of a chunk through its trees is added, for at small sizes delay is all there is. Beside the
prediction stands a lower bound: a gap between the two is the planner's fault or the bound's, never unknown.

The coordinator plans once and the plan's bytes are agreed, so only it needs the measurements. Equal requests give
equal bytes on one platform.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ictp2p.collectives.bounds import Capacities, lower_bound
from ictp2p.collectives.exchange import STAGING_BYTES
from ictp2p.collectives.packing import pack
from ictp2p.collectives.plan import BROADCAST, Plan, Share
from ictp2p.collectives.schedules import parameter_server, ring, star, tree
from ictp2p.collectives.schedules.trees import Matrix, Tree, downward
from ictp2p.errors import ConfigError, NoRoute
from ictp2p.types import PeerId

MIN_CHUNK = 64 * 1024
MAX_CHUNK = 1024 * 1024
"""Bytes. At one MiB the cost per chunk vanishes beside the cost per byte; at 256 KiB sealing costs a third more."""
CHUNK_SECONDS = 0.01
"""A chunk should not occupy a link for longer: it delays what comes behind it by as much."""
NOMINAL = 1e9
"""Bytes/s assumed of a link when no link at all has been measured."""
MARGIN = 1.05
"""A more complicated schedule has to be faster by this factor. Candidates are tried in the order of simplicity."""
SLOW = 0.05
"""Trees are also tried without links slower than this share of the fastest: a little carried by them costs the delay
of a chunk on them."""
_WHOLE = frozenset({"star", "ring"})
"""Schedules that need every one of their trees."""
_DUST = 1e-3
_LINE = 64 * 1024


@dataclass(frozen=True, slots=True)
class LinkEstimate:
    """What is known of the way from one participant to another."""

    bandwidth: float | None = None
    """Bytes/s; None: not measured yet."""
    delay: float = 0.0
    """Seconds, one way."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is to be planned for."""

    participants: tuple[PeerId, ...]
    elements: int
    itemsize: int
    links: Mapping[tuple[PeerId, PeerId], LinkEstimate]
    """Directed; a pair that is missing cannot be connected, in that direction."""
    up: Mapping[PeerId, float] | None = None
    """Bytes/s that a participant can send in all; missing: as much as its links."""
    down: Mapping[PeerId, float] | None = None
    """Bytes/s that a participant can receive in all."""
    only: str | None = None
    """Consider only this kind of schedule."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan, and why it was chosen."""

    plan: Plan
    reason: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    kind: str
    trees: tuple[Tree, ...]
    parts: Matrix
    seconds: float
    chunk: int
    """Bytes."""


_ALONE = _Candidate("star", star.trees(1), np.ones(1), 0.0, MAX_CHUNK)


@dataclass(frozen=True, slots=True)
class _Graph:
    capacities: Capacities
    delay: Matrix


def plan(request: PlanRequest) -> Decision:
    """Plan an all-reduce.

    Raises:
        ConfigError: no participants, or one stands twice.
        NoRoute: some participant cannot be reached by the links that there are, or the asked kind does not fit them.
    """
    graph = _graph(request)
    size = float(request.elements * request.itemsize)
    if len(request.participants) == 1:
        return Decision(_build(request, _ALONE, 0.0), "star: there is one participant")
    candidates = [
        candidate
        for kind, trees in _families(graph)
        if request.only in (None, kind)
        for candidate in [_packed(kind, trees, graph, size)]
        if candidate is not None
    ]
    if not candidates:
        raise NoRoute(f"no {request.only or 'schedule'} connects {', '.join(request.participants)} by the links given")
    best = candidates[0]
    for candidate in candidates[1:]:
        if candidate.seconds * MARGIN < best.seconds:
            best = candidate
    bound = lower_bound(graph.capacities, size)
    return Decision(_build(request, best, bound), _reason(best, candidates, bound, len(request.links)))


def plan_broadcast(request: PlanRequest, root: PeerId) -> Decision:
    """Plan a copy from `root` to all others: a star, a chain along the best ring, or trees, by predicted time.

    Raises:
        ConfigError: `root` is not a participant.
        NoRoute: some participant cannot be reached.
    """
    if root not in request.participants:
        raise ConfigError(f"broadcast root {root} is not among {request.participants}")
    graph = _graph(request)
    origin = request.participants.index(root)
    size = float(request.elements * request.itemsize)
    candidates = [
        candidate
        for kind, trees in _families(graph)
        for candidate in [_packed(kind, tuple(downward(t) for t in trees if t.root == origin), graph, size)]
        if candidate is not None
    ]
    if len(request.participants) == 1:
        candidates = [_ALONE]
    if not candidates:
        raise NoRoute(f"{root} does not reach all of {', '.join(request.participants)} by the links given")
    best = min(candidates, key=lambda candidate: candidate.seconds)
    bound = size / max(float(graph.capacities.out()[origin]), 1e-9) if len(request.participants) > 1 else 0.0
    reason = _reason(best, candidates, bound, len(request.links))
    return Decision(_build(request, replace(best, kind=BROADCAST), bound), reason)


def _families(graph: _Graph) -> list[tuple[str, tuple[Tree, ...]]]:
    """List the sets of trees to consider, the simplest first."""
    width = graph.capacities.width
    size = len(width)
    cycle = ring.best_cycle(width, graph.delay)
    families = [("star", star.trees(size))]
    families += [("ring", ring.trees(cycle))] if cycle else []
    families += [("parameter_server", parameter_server.trees(size, server)) for server in range(size)]
    fast = np.where(width < SLOW * width.max(), 0.0, width)
    for graph_width in (width, fast):
        grown = tree.trees(graph_width, 10 if size <= 8 else 4 if size <= 16 else 2 if size <= 32 else 1)
        families += [("tree", (*grown, *_around(graph_width)))] if grown else []
    return families


def _around(width: Matrix) -> tuple[Tree, ...]:
    """Give the stars whose links are all there."""
    return tuple(t for t in star.trees(len(width)) if all(width[edge] > 0 for edge in t.edges()))


def _packed(kind: str, trees: Sequence[Tree], graph: _Graph, size: float) -> _Candidate | None:
    """Find the best shares for the trees that fit the graph, and how long they take; None if none fits."""
    width = graph.capacities.width
    fitting = tuple(t for t in trees if all(width[edge] > 0 for edge in t.edges()))
    if not fitting or (kind in _WHOLE and len(fitting) < len(trees)):
        return None
    rates = pack(*_resources(fitting, graph.capacities))
    total = float(rates.sum())
    parts = np.where(rates > _DUST * total, rates, 0.0)
    chosen = tuple(t for t, part in zip(fitting, parts, strict=True) if part)
    parts = parts[parts > 0] / parts.sum()
    chunk = _chunk_bytes(chosen, width)
    seconds = _fluid(chosen, parts, graph, size) + _latency(chosen, graph, min(chunk, size / len(chosen)))
    return _Candidate(kind, chosen, parts, seconds, chunk)


def _resources(trees: Sequence[Tree], capacities: Capacities) -> tuple[Matrix, Matrix]:
    loads = [t.load() for t in trees]
    columns = [np.concatenate([load.ravel(), load.sum(axis=1), load.sum(axis=0)]) for load in loads]
    return np.stack(columns, axis=1), np.concatenate([capacities.width.ravel(), capacities.up, capacities.down])


def _fluid(trees: Sequence[Tree], parts: Matrix, graph: _Graph, size: float) -> float:
    loads, capacity = _resources(trees, graph.capacities)
    used = loads @ parts * size
    return float(np.max(used[used > 0] / capacity[used > 0], initial=0.0))


def _latency(trees: Sequence[Tree], graph: _Graph, chunk: float) -> float:
    """Give the time of a chunk of so many bytes through the longest tree, storing it at every hop."""
    width = graph.capacities.width
    hop = graph.delay + np.divide(chunk, width, out=np.zeros_like(width), where=width > 0)
    return max(t.longest(hop) for t in trees)


def _graph(request: PlanRequest) -> _Graph:
    names = request.participants
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"participants {names!r} are none, or one stands twice")
    if request.elements < 0 or request.itemsize < 1:
        raise ConfigError(f"{request.elements} elements of {request.itemsize} bytes")
    known = sorted(link.bandwidth for link in request.links.values() if link.bandwidth)
    assumed = known[len(known) // 2] if known else NOMINAL
    width, delay = np.zeros((len(names), len(names))), np.zeros((len(names), len(names)))
    for i, source in enumerate(names):
        for j, target in enumerate(names):
            link = request.links.get((source, target)) if i != j else None
            if link is not None:
                width[i, j] = assumed if link.bandwidth is None else link.bandwidth
                delay[i, j] = link.delay
    up = np.array([(request.up or {}).get(name, np.inf) for name in names])
    down = np.array([(request.down or {}).get(name, np.inf) for name in names])
    return _Graph(Capacities(width, up, down), delay)


def _chunk_bytes(trees: Sequence[Tree], width: Matrix) -> int:
    """Size chunks by the slowest link in use, and so that at least four partials fit in the staging of each edge."""
    slowest = min(float(width[edge]) for t in trees for edge in t.edges())
    inward = max(sum(t.reduce_parents.count(node) for t in trees) for node in range(len(width)))
    room = STAGING_BYTES // (4 * max(1, inward))
    wanted = int(min(MAX_CHUNK, room, max(MIN_CHUNK, slowest * CHUNK_SECONDS)))
    return max(4096, wanted // 4096 * 4096)


def _build(request: PlanRequest, chosen: _Candidate, bound: float) -> Plan:
    cuts = cut(chosen.parts, request.elements, max(1, _LINE // request.itemsize))
    shares = tuple(
        Share(start, stop, t.root, t.reduce_parents, t.broadcast_parents)
        for t, start, stop in zip(chosen.trees, cuts, cuts[1:], strict=False)
    )
    chunk = max(1, chosen.chunk // max(request.itemsize, 4))
    seconds = max(chosen.seconds, bound)
    return Plan(chosen.kind, request.participants, shares, chunk, seconds, bound)


def cut(parts: Matrix, elements: int, line: int) -> list[int]:
    """Cut `elements` in proportion to `parts`, at multiples of `line` where shares are long enough.

    Largest remainders get what rounding leaves over, the lowest index first, so the cut is exact and reproducible.
    """
    unit = line if elements >= line * 8 * len(parts) else 1
    units = elements // unit
    exact = parts / parts.sum() * units
    whole = np.floor(exact).astype(np.int64)
    for index in np.argsort(-(exact - whole), kind="stable")[: int(units - whole.sum())]:
        whole[index] += 1
    ends = [int(end) * unit for end in np.cumsum(whole)]
    ends[-1] = elements
    return [0, *ends]


def _reason(best: _Candidate, candidates: Sequence[_Candidate], bound: float, links: int) -> str:
    others = sorted({c.kind: c.seconds for c in reversed(candidates) if c.kind != best.kind}.items())
    against = ", ".join(f"{kind} {seconds:.3g} s" for kind, seconds in others) or "nothing else fits"
    return f"{best.kind}: {best.seconds:.3g} s predicted over {links} links, bound {bound:.3g} s; against {against}"
