"""How wide links and lines are: the most that each has carried.

In a round many links are at work at once, and each carries its share of the line that a cluster has to all others.
Planned by these shares every link is too narrow; planned by what links carry alone, all of them together are too wide,
for nobody says that they share a line. But a link that had its ends for itself (each probe has; `bulk.turns`) shows
both: how wide it is, and that the lines at its ends are as wide at least. So here a link is as wide as it ever was, a
line as the widest of its links (the hose model; Duffield et al. 2002), and a link that comes near the narrower of its
two lines is taken for that line. On simulated lines that nobody was told of such figures are within 2 % of what is true
after the first probes.

A line may be wider than any one link, where each pair has a bandwidth of its own. It is as wide at least as what all
its links carried together, which the first round shows: the bytes that its plan sends from there, or to there, over the
time that they took. Until then this is too careful, and what the planner finds without knowing of lines promises more,
and is put to the test (`proven`). And a link may have become slower than it ever was: a round that takes much longer
than it should makes the links that it used count as they are measured now, for some rounds, after which the most is
taken anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ictp2p.collectives.planning.planner import PlanRequest
from ictp2p.collectives.planning.topology import UNMEASURED, LinkEstimate, Pair
from ictp2p.types import PeerId

FEW = 16
"""Participants up to which a second plan costs no more than some tens of milliseconds."""
NEAR = 1 / 3
"""Part of its narrower line from which on a link is taken for as wide as that: of 56 links of eight clusters six were
probed at 0.3 to 0.7 of what they are, and a ring that goes around these took 8.3 s instead of 6. What truly is that
narrow is found out by the first round that takes much longer than it should (`slowed`). With 1/2 two of five meshes
had to do without the ring."""
UNKNOWN = 0.5
"""Part of that line for which a link counts that was never measured: better another, if there is one."""
FOLLOWED = 3
"""Rounds for which links count as measured after a round by them was slow: their figures have arrived by then."""
_ALL = PeerId("")
"""The other end of a line, which leads to all."""


class Lines:
    """Remembers what links have carried; every leader does, for any may have to plan."""

    def __init__(self) -> None:
        self._widest: dict[Pair, float] = {}
        self._measured: set[Pair] = set()
        """Those of them of which it is known how wide they are, and not only what they carry at least."""
        self._followed: dict[Pair, int] = {}
        """Until which round a link counts as it is measured."""
        self._together: dict[Pair, float] = {}
        """What all links from, or to, an end carried at once; the other half of the pair is empty."""
        self._doubted: set[Pair] = set()
        """Ends of which the next round is believed, be it less; which link it is that became slower is not known."""

    def saw(self, links: Mapping[Pair, LinkEstimate], number: int) -> None:
        """Note what is known of the links between the participants of the round `number`, before it moves anything."""
        self._followed = {pair: until for pair, until in self._followed.items() if number < until}
        direct = {pair: max(link.bandwidth or 0.0, link.at_least) for pair, link in links.items() if link.via is None}
        for pair, rate in direct.items():
            before = 0.0 if pair in self._followed else self._widest.get(pair, 0.0)
            self._widest[pair] = max(rate, before)
        self._measured |= {pair for pair in direct if links[pair].bandwidth}
        if len(self._widest) > 4 * FEW**2:
            self._widest = {pair: self._widest[pair] for pair in direct}
            self._measured &= direct.keys()

    def carried(self, moved: Iterable[tuple[Pair, float]], seconds: float) -> None:
        """Note how many bytes went over links in one round, and what that took: so much their ends carry at least."""
        sums: dict[Pair, float] = defaultdict(float)
        for (source, target), size in moved:
            sums[source, _ALL] += size
            sums[_ALL, target] += size
        for end, size in sums.items():
            self._together[end] = max(size / seconds, 0.0 if end in self._doubted else self._together.get(end, 0.0))
        self._doubted -= sums.keys()
        if len(self._together) > 4 * FEW:
            self._together = {end: self._together[end] for end in sums}
            self._doubted.clear()

    def slowed(self, links: Collection[Pair], number: int) -> None:
        """Take it that some of these links have become slower than they ever were; the round `number` showed it."""
        self._followed.update(dict.fromkeys(links, number + FOLLOWED))
        ends = {end for source, target in links for end in ((source, _ALL), (_ALL, target))}
        self._doubted |= ends & self._together.keys()

    def request(self, asked: PlanRequest) -> PlanRequest | None:
        """Ask for the same plan, with links and lines as wide as they ever were; None where that tells nothing."""
        if not 2 < len(asked.participants) <= FEW:
            return None
        up, down = self._ends(asked)
        if not up:
            return None
        up.update(asked.up)
        down.update(asked.down)
        links = {pair: self._as_wide(pair, link, up, down) for pair, link in asked.links.items()}
        return replace(asked, links=links, up=up, down=down)

    def _ends(self, asked: PlanRequest) -> tuple[dict[PeerId, float], dict[PeerId, float]]:
        up: dict[PeerId, float] = {}
        down: dict[PeerId, float] = {}
        sources, targets = ({pair[end] for pair in self._measured} for end in (0, 1))
        for pair in asked.links:
            rate = self._widest.get(pair, 0.0)
            if 0.0 < rate < UNMEASURED:
                source, target = pair
                up[source], down[target] = max(rate, up.get(source, 0.0)), max(rate, down.get(target, 0.0))
        up = {source: rate for source, rate in up.items() if source in sources}
        down = {target: rate for target, rate in down.items() if target in targets}
        for source in up:
            up[source] = max(up[source], self._together.get((source, _ALL), 0.0))
        for target in down:
            down[target] = max(down[target], self._together.get((_ALL, target), 0.0))
        return up, down

    def _as_wide(
        self, pair: Pair, link: LinkEstimate, up: Mapping[PeerId, float], down: Mapping[PeerId, float]
    ) -> LinkEstimate:
        source, target = pair
        line = min((ends[end] for ends, end in ((up, source), (down, target)) if end in ends), default=0.0)
        if link.via is not None or link.bandwidth == 0.0 or not line:
            return link
        rate = self._widest.get(pair, 0.0)
        if rate >= NEAR * line:
            return replace(link, bandwidth=line)
        return replace(link, bandwidth=rate if pair in self._measured else UNKNOWN * line)
