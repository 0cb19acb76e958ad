"""Candidates for a plan: sets of trees with their shares, and how long each should take.

The prediction is the time in the fluid model, or what the busiest participant's core needs for its bytes if that is
longer; plus the way of one chunk through its longest tree, plus what handling chunks costs the busiest participant,
plus the work of a codec. Of these nothing is taken to overlap: a prediction may be too long, and is so alike for all
candidates. Beside it stands by how much longer lines that hold each other back make it (`crowding`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ictp2p.collectives.channel import EAGER_BYTES
from ictp2p.collectives.codecs.prices import PRICES, Price
from ictp2p.collectives.planning import crowding, staging
from ictp2p.collectives.planning.packing import pack
from ictp2p.collectives.planning.schedules import star
from ictp2p.collectives.planning.schedules.forest import Forest, forest
from ictp2p.collectives.planning.schedules.trees import Cost, Matrix, Tree
from ictp2p.collectives.planning.topology import Topology
from ictp2p.collectives.running.windows import STAGING_BYTES

SLOW_CHUNK = 64 * 1024
"""Bytes, over slow links, unless shares are short for their ways."""
LEAST_CHUNK = 16 * 1024
"""Even then: a chunk costs a core as much however short it is."""
_IN_FLIGHT = 4
"""Chunks of a share for each hop of its way. At each its chunks wait for those of all others that share a line, so that
one of few chunks and many hops ends when these have come one after another: 67 shares over 26 hops took 3.8 times the
bound in chunks of 64 KiB, and 2.2 times in chunks of 16."""
CHUNK = 2 * 1024 * 1024
"""Bytes. What is done per chunk runs with cold caches, and shows: with half as much four ranks of one host take 3 to
11 % more CPU, sealed over TCP the most. At four MiB what is on its way over TCP falls out of the caches of some
processors, and two ranks took half as much CPU again as at one."""
CHUNK_SECONDS = 0.01
"""A chunk should not occupy a link for longer: it delays what comes behind it by as much."""
MESSAGE = 40e-6
"""Seconds of a core to send or receive a chunk, however short."""
HANDLING = 0.15e-9
"""Seconds of a core per byte that a participant sends or receives: half of what TCP costs both ends, and the adding."""
CROSSING = 0.09e-9
"""More of them per byte that arrives where several participants send: what they send together falls out of the caches
before it is added up. On one machine stars of 3, 4 and 6 took 0.08 to 0.095 CPU s more than rings did per GB."""
_DUST = 1e-3
"""A share smaller than this is left out: its chunk's way costs more than it saves."""
_LITTER = 0.002
"""If more than this is left out in all, the others are packed anew."""
_FILLED = 1 + 1e-9
"""Times what the even division loads it with, up to which a resource counts as filled."""
_AS_FAST = 1 - 1e-6
"""What the even division has to reach of the best one."""
_LINE = 64 * 1024
"""Bytes at whose multiples long shares are cut."""
_GRAIN = 1024
"""Elements of which a chunk has a multiple."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is planned: so many elements over such edges, at such a price."""

    topology: Topology
    elements: int
    itemsize: int
    price: Price
    room: Matrix
    """Bytes that each participant keeps for contributions at most."""

    @property
    def size(self) -> float:
        """Bytes of the whole vector."""
        return float(self.elements * self.itemsize)

    @property
    def cost(self) -> Cost:
        """Bytes on the wire per byte of the vector."""
        return Cost(self.price.contribution, self.price.partial, self.price.result)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Trees, and what each carries."""

    kind: str
    trees: tuple[Tree, ...]
    cuts: tuple[int, ...]
    """Elements at which the shares begin, and the end of the last."""
    chunk: int
    """Elements per chunk."""
    fluid: float
    """Seconds that the bytes take in the fluid model, if they are divided exactly as is meant."""
    seconds: float
    """Seconds in all."""
    rooms: tuple[int, ...]
    """Bytes for each contribution to each share, as `plan.Share`."""
    crowded: float = 0.0
    """Seconds in all, if full lines hold each other back."""
    way: float = 0.0
    """Seconds of a chunk up and down its longest way."""


def together(kind: str, trees: Sequence[Tree], job: Job) -> Candidate | None:
    """Give the trees the shares that make them fastest side by side; None if there are no trees."""
    if not trees:
        return None
    return shared(kind, trees, _even(trees, job), job)


def shared(kind: str, trees: Sequence[Tree], rates: Matrix, job: Job) -> Candidate:
    """Give the trees shares in proportion to `rates`, but none to those that hardly carry anything."""
    kept = rates > _DUST * rates.sum()
    trees = [tree for tree, keep in zip(trees, kept, strict=True) if keep]
    if rates[~kept].sum() > _LITTER * rates.sum():
        rates = pack(job.topology.loads(trees, job.cost), job.topology.capacity)
    else:
        rates = rates[kept]
    return _predict(kind, trees, rates, job)


def alone(kind: str, trees: Sequence[Tree], job: Job) -> Candidate | None:
    """Give the one of the trees that is fastest by itself, the first of several.

    Only those are predicted whose bytes and delays alone do not take longer than the fastest so far.
    """
    if not trees:
        return None
    least = _least(trees, job)
    best: tuple[float, int, Candidate] | None = None
    for index in np.argsort(least, kind="stable").tolist():
        if best is not None and least[index] > best[0]:
            break
        candidate = _predict(kind, [trees[index]], np.ones(1), job)
        if best is None or (candidate.seconds, index) < best[:2]:
            best = candidate.seconds, index, candidate
    return best and best[2]


def nobody_else(job: Job) -> Candidate:
    """Give the plan of a single participant."""
    return Candidate(
        "star", star.trees(1), (0, job.elements), max(_GRAIN, CHUNK // max(job.itemsize, 4)), 0.0, 0.0, (0,)
    )


def _predict(kind: str, trees: Sequence[Tree], parts: Matrix, job: Job) -> Candidate:
    exact = _paced(job.topology.carried(forest(trees), job.cost, parts / parts.sum()), job.topology.capacity)
    line = max(1, _LINE // job.itemsize)
    cuts = cut(parts, job.elements, line, job.price.block)
    used = [n for n in range(len(trees)) if cuts[n + 1] > cuts[n]] or [0]
    trees = tuple(trees[n] for n in used)
    cuts = [*(cuts[n] for n in used), job.elements]
    chunk = _chunk(forest(trees), job)
    return replace(predicted(kind, trees, cuts, chunk, job), fluid=exact * job.size)


def predicted(
    kind: str, trees: Sequence[Tree], cuts: Sequence[int], chunk: int, job: Job, rooms: tuple[int, ...] | None = None
) -> Candidate:
    """Predict trees of which each carries the elements between two cuts; with room as they need it, or as it is."""
    sizes, stacked = np.diff(cuts), forest(trees)
    fluid = _paced(job.topology.carried(stacked, job.cost, sizes), job.topology.capacity) * job.itemsize
    carried = _carried(stacked, sizes, job)
    busy = max(fluid, _handling(carried))
    ways = stacked.longest(hop(job, chunk))
    if rooms is None:
        rooms = _rooms(stacked, sizes, chunk, busy, ways, job)
    window = staging.windows(rooms, stacked.inward, _partial(chunk, job))
    busy = max(busy, staging.held_back(sizes / chunk, ways, window))
    beside = _latency(stacked, job, min(chunk, int(sizes.max()))) + _work(job)
    crowded = max(busy, crowding.crowded(carried, job.topology.up, job.topology.down)) + beside
    return Candidate(
        kind, tuple(trees), tuple(cuts), chunk, fluid, busy + beside, rooms, crowded, float(ways.max(initial=0.0))
    )


def in_one_shot(job: Job) -> float:
    """Predict the seconds in which everybody has sent all to everybody; infinite if a link is missing, or too much."""
    others = ~np.eye(job.topology.size, dtype=bool)
    if not 0 < job.size <= EAGER_BYTES or not (job.topology.width[others] > 0).all():
        return np.inf
    carried = np.where(others, job.size, 0.0)
    slowest = float((carried.sum(axis=1) / job.topology.up + carried.sum(axis=0) / job.topology.down).max(initial=0.0))
    way = float((job.topology.delay + carried / np.where(others, job.topology.width, 1.0)).max())
    return max(slowest, _handling(carried)) + way + MESSAGE * 2 * (job.topology.size - 1)


def needed(trees: Sequence[Tree], cuts: Sequence[int], chunk: int, seconds: float, job: Job) -> tuple[int, ...]:
    """Give the room of each share of trees that are not predicted here but take so many seconds."""
    stacked = forest(trees)
    return _rooms(stacked, np.diff(cuts), chunk, seconds, stacked.longest(hop(job, chunk)), job)


def _rooms(
    trees: Forest, sizes: npt.NDArray[np.int64], chunk: int, seconds: float, ways: Matrix, job: Job
) -> tuple[int, ...]:
    partial = _partial(chunk, job)
    return staging.divide(trees.inward, sizes / chunk * partial, seconds, ways, partial, job.room)


def _paced(load: Matrix, capacity: Matrix) -> float:
    """Give the seconds that the most loaded resource needs."""
    return float((load[load > 0] / capacity[load > 0]).max(initial=0.0))


def _least(trees: Sequence[Tree], job: Job) -> Matrix:
    """Give the seconds that each tree needs by itself at least: for its bytes, its delays, and its messages."""
    stacked, there = forest(trees), job.topology.capacity > 0
    loads = job.topology.loads(trees, job.cost)[there] / job.topology.capacity[there, None]
    ways = stacked.longest(MESSAGE + job.topology.delay)
    least: Matrix = loads.max(axis=0) * job.size + ways + MESSAGE * stacked.messages().max(axis=1)
    return least


def _partial(chunk: int, job: Job) -> int:
    return chunk * max(job.itemsize, 4)


def _latency(trees: Forest, job: Job, chunk: int) -> float:
    """Give the time of a first chunk through the longest tree, storing it at every hop, and of handling them all."""
    busiest = int(trees.messages().sum(axis=0).max())
    return float(trees.longest(hop(job, chunk)).max()) + MESSAGE * busiest


def hop(job: Job, chunk: int) -> Matrix:
    """Give the seconds of a chunk over each edge; of one that is not there, what it takes besides."""
    width = job.topology.width
    size = chunk * job.itemsize * max(job.cost)
    seconds: Matrix = MESSAGE + job.topology.delay + np.divide(size, width, out=np.zeros_like(width), where=width > 0)
    return seconds


def _carried(trees: Forest, sizes: npt.NDArray[np.int64], job: Job) -> Matrix:
    """Count the bytes that go from each participant to each."""
    sent = trees.costs(job.cost) * sizes[trees.tree] * job.itemsize
    carried = np.bincount(trees.edges, weights=sent, minlength=trees.size**2)
    return np.asarray(carried, dtype=np.float64).reshape(trees.size, trees.size)


def _handling(carried: Matrix) -> float:
    """Give the seconds that the busiest participant's core needs for the bytes that it sends and receives."""
    received, several = carried.sum(axis=0), (carried > 0).sum(axis=0) > 1
    seconds = HANDLING * (received + carried.sum(axis=1)) + CROSSING * received * several
    return float(seconds.max(initial=0.0))


def _work(job: Job) -> float:
    """Give the seconds of a core that a codec costs beyond the adding that is done in any case."""
    return job.price.seconds(job.size, job.topology.size) - PRICES["none"].seconds(job.size, job.topology.size)


def _even(trees: Sequence[Tree], job: Job) -> Matrix:
    """Pack the trees; of divisions that are as fast take the even one, in which all begin at once."""
    loads, capacity = job.topology.loads(trees, job.cost), job.topology.capacity
    together = loads.sum(axis=1)
    even = float((capacity[together > 0] / together[together > 0]).min(initial=np.inf))
    if 0 < even < np.inf and _AS_FAST * _most(loads, capacity, together, even) <= even * len(trees):
        return np.full(len(trees), even)
    rates = pack(loads, capacity)
    return np.full(len(trees), even) if _AS_FAST * rates.sum() <= even * len(trees) < np.inf else rates


def _most(loads: Matrix, capacity: Matrix, together: Matrix, even: float) -> float:
    """Bound the total rate of any packing, by the prices that are alike for all that the even one fills.

    Among hundreds of alike clusters this is the even one's own rate, and saves a program with as many columns.
    """
    filled = np.flatnonzero((together > 0) & (capacity <= _FILLED * even * together))
    cheapest = float((loads[filled] / capacity[filled, None]).sum(axis=0).min(initial=np.inf))
    return len(filled) / cheapest if cheapest > 0 else np.inf


def _chunk(trees: Forest, job: Job) -> int:
    """Size chunks by the slowest link in use, by shares and their ways, and so that some fit in each edge's staging."""
    slowest = float(job.topology.width[trees.source, trees.target].min(initial=np.inf))
    inward = int(trees.inward.sum(axis=0).max())
    room, speed = STAGING_BYTES // max(1, inward), slowest / max(job.cost)
    hops = float(trees.longest(np.ones((trees.size, trees.size))).max(initial=0.0))
    short = job.size / trees.count / max(1.0, _IN_FLIGHT * hops)
    least = min(max(LEAST_CHUNK, short), SLOW_CHUNK)
    wanted = min(CHUNK, room // 4, max(least, speed * CHUNK_SECONDS))
    grain = max(_GRAIN, job.price.block)
    return max(grain, int(wanted) // max(job.itemsize, 4) // grain * grain)


def cut(parts: Matrix, elements: int, line: int, block: int = 1) -> list[int]:
    """Cut `elements` in proportion to `parts`, at multiples of `line` where shares are long enough, else of `block`.

    Largest remainders get what rounding leaves over, the lowest index first, so the cut is exact and reproducible.
    """
    unit = line if elements >= line * 8 * len(parts) else block
    units = -(-elements // unit)
    exact = parts / parts.sum() * units
    whole = np.floor(exact).astype(np.int64)
    for index in np.argsort(-(exact - whole), kind="stable")[: int(units - whole.sum())]:
        whole[index] += 1
    return [0, *(min(int(end) * unit, elements) for end in np.cumsum(whole))]
