"""Where hosts stand and what lies between them: sites, links, and whatever was cut.

A site is a cluster's place: its hosts share the access link (`up`, `down`), and inside it they see each other over
the site's own network. Between two sites there is one `Link` per direction, for good: it may be kept. What it says, and
everything else, may change while the world runs; whoever sends looks anew.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal

from sim.limits import DURATION, RATE, SHARE, check

How = Literal["blackhole", "reset"]


@dataclass(slots=True)
class Link:
    """One direction between two sites, or inside one. Change its fields at any time."""

    delay: float = 0.02
    """Seconds one way, at least."""
    jitter: float = 0.0
    """Mean of an exponential delay added to each message, seconds. Order within a connection is kept."""
    loss: float = 0.0
    """Probability that a segment is lost: a message then waits for TCP to send it again."""
    bandwidth: float = math.inf
    """Bytes per second that all bulk flows over it share."""
    corrupt: float = 0.0
    """Probability that a message arrives with a flipped bit."""
    swallows: bool = False
    """Whether packets that are larger than some hop carries get lost without a word (RFC 2923)."""
    window: float = math.inf
    """Bytes of one connection that may be under way: what the hosts' buffers allow. Several connections carry more."""

    def __post_init__(self) -> None:
        """Raises ConfigError, which names a value that cannot be."""
        for name in ("delay", "jitter"):
            check(f"link.{name}", getattr(self, name), DURATION)
        for name in ("loss", "corrupt"):
            check(f"link.{name}", getattr(self, name), SHARE)
        for name in ("bandwidth", "window"):
            check(f"link.{name}", getattr(self, name), RATE)


@dataclass(slots=True)
class Site:
    """One cluster's place."""

    name: str
    up: float = math.inf
    """Bytes per second that all bulk flows out of the site share."""
    down: float = math.inf
    """Bytes per second that all bulk flows into the site share."""
    nat: bool = False
    """Whether hosts outside cannot dial in."""
    lan: Link = field(default_factory=lambda: Link(delay=0.0001, bandwidth=1.25e9))

    def __post_init__(self) -> None:
        """Raises ConfigError, which names a value that cannot be."""
        check(f"{self.name}.up", self.up, RATE)
        check(f"{self.name}.down", self.down, RATE)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Nothing passes from `a` to `b` (hosts or sites, "*" for all); both ways unless `one_way`."""

    a: str
    b: str
    one_way: bool = False
    how: How = "blackhole"


class Topology:
    """Sites, hosts, links and barriers."""

    def __init__(self) -> None:
        self.default = Link()
        """For pairs of sites without a link of their own; copied when one is asked to change."""
        self.sites: dict[str, Site] = {}
        self.site_of: dict[str, str] = {}
        self.trunks: dict[tuple[str, str], list[str]] = {}
        """Shared trunks that a directed pair of sites passes."""
        self.trunk_bandwidth: dict[str, float] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._barriers: dict[Barrier, int] = {}
        self._blocked: dict[tuple[str, str], How | None] = {}

    def place(self, host: str, site: str) -> None:
        """Put a host in a site."""
        self.sites.setdefault(site, Site(site))
        self.site_of[host] = site

    def link(self, a: str, b: str) -> Link:
        """The link from site `a` to site `b`, to be read or changed."""
        if a == b:
            return self.sites[a].lan
        found = self._links.get((a, b))
        if found is None:
            found = self._links[a, b] = dataclasses.replace(self.default)
        return found

    def every_link(self) -> list[Link]:
        """All links that anybody asked for, those inside sites included."""
        return [*self._links.values(), *(site.lan for site in self.sites.values())]

    def between(self, source: str, target: str) -> Link:
        """The link from one host to another."""
        return self.link(self.site_of[source], self.site_of[target])

    def cut(self, barrier: Barrier) -> None:
        """Put up a barrier; the same one twice needs to be taken down twice."""
        self._barriers[barrier] = self._barriers.get(barrier, 0) + 1
        self._blocked.clear()

    def mend(self, barrier: Barrier) -> None:
        """Take a barrier down, if it is up."""
        left = self._barriers.pop(barrier, 0) - 1
        if left > 0:
            self._barriers[barrier] = left
        self._blocked.clear()

    def mend_between(self, a: str, b: str) -> None:
        """Take down every barrier between two names, whichever way it was put up."""
        for barrier in [x for x in self._barriers if {x.a, x.b} == {a, b}]:
            del self._barriers[barrier]
        self._blocked.clear()

    def mend_all(self) -> None:
        """Take down every barrier."""
        self._barriers.clear()
        self._blocked.clear()

    def blocked(self, source: str, target: str) -> How | None:
        """Whether packets from one host to another vanish, and how."""
        if not self._barriers:
            return None
        pair = (source, target)
        if pair not in self._blocked:
            hows = [barrier.how for barrier in self._barriers if self._covers(barrier, source, target)]
            self._blocked[pair] = None if not hows else "blackhole" if "blackhole" in hows else "reset"
        return self._blocked[pair]

    def _covers(self, barrier: Barrier, source: str, target: str) -> bool:
        there = self._named(barrier.a, source) and self._named(barrier.b, target)
        back = not barrier.one_way and self._named(barrier.a, target) and self._named(barrier.b, source)
        return source != target and (there or back)

    def _named(self, name: str, host: str) -> bool:
        return name in ("*", host, self.site_of.get(host))

    def resources(self, source: str, target: str) -> list[tuple[tuple[str, ...], float]]:
        """What a bulk flow from one host to another shares with others: names and bytes per second."""
        a, b = self.site_of[source], self.site_of[target]
        if a == b:
            return [
                (("lan", source, "out"), self.sites[a].lan.bandwidth),
                (("lan", target, "in"), self.sites[a].lan.bandwidth),
            ]
        shared: list[tuple[tuple[str, ...], float]] = [
            (("up", a), self.sites[a].up),
            (("down", b), self.sites[b].down),
            (("pair", a, b), self.link(a, b).bandwidth),
        ]
        shared += [(("trunk", name), self.trunk_bandwidth[name]) for name in self.trunks.get((a, b), ())]
        return [(name, capacity) for name, capacity in shared if capacity < math.inf]
