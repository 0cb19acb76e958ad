"""The random networks that planners are measured on: each is drawn from a fresh seed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest
from ictp2p.collectives.planning.topology import Trunk
from ictp2p.types import PeerId

MEGABIT = 1e6 / 8

Rng = np.random.Generator


@dataclass(frozen=True)
class Drawn:
    """A network of which only the delays are not known yet: rates are bytes/s."""

    width: np.ndarray
    """Of each pair; 0 where there is no link."""
    up: np.ndarray | None = None
    """Of each access line, outward; None: they do not limit."""
    down: np.ndarray | None = None
    trunks: tuple[tuple[np.ndarray, float], ...] = ()
    """What pairs share, and its rate."""
    region: np.ndarray | None = None
    """Where each participant is; None: all in one place."""

    def delays(self, near: float, across: float) -> np.ndarray:
        """Give the seconds one way of each pair: so many inside of a region, and so many from one to another."""
        where = np.zeros(len(self.width)) if self.region is None else self.region
        return np.where(where[:, None] == where, near, across)

    def asked(self, who: tuple[PeerId, ...], delays: np.ndarray, elements: int) -> PlanRequest:
        """Put this network to the planner as it is, for so many float32."""
        present = [(i, j) for i, j in itertools.permutations(range(len(who)), 2) if self.width[i, j] > 0]
        links = {(who[i], who[j]): LinkEstimate(float(self.width[i, j]), float(delays[i, j])) for i, j in present}
        trunks = tuple(
            Trunk(tuple((who[i], who[j]) for i, j in present if over[i, j]), rate) for over, rate in self.trunks
        )
        up, down = (dict(zip(who, () if line is None else line, strict=False)) for line in (self.up, self.down))
        return PlanRequest(who, elements, 4, links, up, down, trunks)


def hose(size: int, rng: Rng) -> Drawn:
    """Only access links limit, alike in both directions, 20 Mbit/s to 2 Gbit/s."""
    caps = MEGABIT * 20 * 100 ** rng.random(size)
    return Drawn(np.full((size, size), 1e10), caps, caps)


def hose_asymmetric(size: int, rng: Rng) -> Drawn:
    """Only access links limit, and each direction has its own."""
    up, down = (MEGABIT * 20 * 50 ** rng.random(size) for _ in range(2))
    return Drawn(np.full((size, size), 1e10), up, down)


def access(size: int, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Draw access links of 100 Mbit/s to 2 Gbit/s, each direction by itself."""
    return MEGABIT * 100 * 20 ** rng.random(size), MEGABIT * 100 * 20 ** rng.random(size)


def pairs(size: int, rng: Rng) -> Drawn:
    """Every pair has a bandwidth of its own, 20 Mbit/s to 1 Gbit/s, and nothing else limits (none is like that)."""
    return Drawn(MEGABIT * 20 * 50 ** rng.random((size, size)))


def dense(size: int, rng: Rng) -> Drawn:
    """Pairs and access links limit."""
    return Drawn(pairs(size, rng).width, *access(size, rng))


def regions(size: int, rng: Rng) -> Drawn:
    """Two to four regions; a line of 100 Mbit/s to 1 Gbit/s from each to each; 1 to 10 Gbit/s per pair inside."""
    count = int(rng.integers(2, 5))
    where = np.arange(size) % count
    width = MEGABIT * 1000 * 10 ** rng.random((size, size))
    lines = tuple(
        ((where[:, None] == a) & (where == b), MEGABIT * 100 * 10 ** rng.random())
        for a, b in itertools.permutations(range(count), 2)
    )
    up, down = access(size, rng)[0] * 5, access(size, rng)[1] * 5
    return Drawn(width, up, down, lines, where)


def oceans(size: int, rng: Rng) -> Drawn:
    """Two to six regions; 80 to 800 Mbit/s per pair inside, a fiftieth of that across; access links limit as well."""
    where = np.arange(size) % int(rng.integers(2, 7))
    width = MEGABIT * rng.uniform(80, 800, (size, size)) / np.where(where[:, None] == where, 1, 50)
    up, down = (MEGABIT * rng.uniform(240, 1600, size) for _ in range(2))
    return Drawn(width, up, down, region=where)


def sparse(size: int, rng: Rng) -> Drawn:
    """A third of the directed pairs is connected, and a random cycle; access links limit as well."""
    whole = dense(size, rng)
    there = rng.random((size, size)) < 0.35
    order = rng.permutation(size)
    there[order, np.roll(order, -1)] = True
    return replace(whole, width=np.where(there, whole.width, 0.0))


def nat(size: int, rng: Rng) -> Drawn:
    """A third cannot be reached by each other, only by the rest (who accept connections)."""
    whole = dense(size, rng)
    behind = rng.random(size) < 0.34
    behind[rng.integers(size)] = False
    return replace(whole, width=np.where(behind[:, None] & behind, 0.0, whole.width))


def trunk(size: int, rng: Rng) -> Drawn:
    """Two sites behind one shared line in each direction."""
    side = np.arange(size) < max(1, size // 2)
    lines = [MEGABIT * 50 * 10 ** rng.random() for _ in range(2)]
    shared = ((side[:, None] & ~side, lines[0]), (~side[:, None] & side, lines[1]))
    width = MEGABIT * 200 * 10 ** rng.random((size, size))
    return Drawn(width, *access(size, rng), shared, side)


NETWORKS: dict[str, Callable[[int, Rng], Drawn]] = {
    draw.__name__: draw for draw in (hose, hose_asymmetric, dense, pairs, regions, oceans, sparse, nat, trunk)
}


def drawn(name: str, size: int, seed: int) -> Drawn:
    """Draw a network of this kind."""
    return NETWORKS[name](size, np.random.default_rng([seed, size, sum(name.encode())]))
