"""What a path costs, and why that cost lets a distance vector work.

A path's metric is the sum of its links' costs, and every cost is at least one. That single property gives
both laws that matter (Sobrinho, "An Algebraic Theory of Dynamic Network Routing", 2005; Daggitt and Griffin,
"Rate of Convergence of Increasing Path-Vector Routing Protocols", 2018): extending a path makes it strictly
worse, so the protocol always comes to rest; and extending two paths by one link keeps their order, so it
comes to rest at the optimum. A transfer's time, `delay + size / bottleneck`, has the first property but not
the second: the node in the middle hides the path that would have been best for the node behind it. Pure
widest paths lack even the first, and never settle. So bandwidth is no part of the metric: there is one
instance of this additive algebra per bandwidth class instead (see `classes`).

A link's cost is its one-way delay, taken as half the smoothed round trip (measured without synchronised
clocks, as RFC 9616 does), plus the time that a relay needs to store and forward one message. Unlike RFC 9616
it is not flattened above 120 ms: here a path over the ocean twice must look worse than one over it once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from ictp2p.errors import LocalProtocolError

TICK: Final = 0.0005
"""Seconds per unit of metric: half a millisecond."""

INFINITY: Final = 2**32 - 1
"""The metric of no path; sums saturate here."""

PIECE: Final = 1 << 12
"""Bytes that a relay must have before it can pass them on: a control message, as most of them are. A transfer is
passed on as it comes (`bulk.splice`), and its bandwidth is what classes are for."""

RELAY: Final = 10
"""Units (5 ms) that each hop adds, so that a relay must earn its trouble. Every path has one hop more than
relays, so the surplus of one `RELAY` is the same for all of them and changes no comparison."""


@dataclass(frozen=True, slots=True)
class Link:
    """What is known of the link to a neighbour, in the direction away from us."""

    srtt: float
    """Smoothed round-trip time in seconds."""

    bandwidth: float | None = None
    """Bytes per second, or None while nobody has measured it."""

    def __post_init__(self) -> None:
        if not 0 <= self.srtt < math.inf:
            raise LocalProtocolError(f"link round trip {self.srtt!r} s is not a finite, non-negative number")
        if self.bandwidth is not None and not 0 < self.bandwidth < math.inf:
            raise LocalProtocolError(f"link bandwidth {self.bandwidth!r} B/s is not a finite, positive number")


class Distance(NamedTuple):
    """A sequence number and a metric: how fresh, then how far (RFC 8966 §2.4)."""

    seqno: int
    metric: int

    def better_than(self, other: Distance) -> bool:
        """Order distances: fresher first, then nearer. Strictly: equal ones are not better.

        This is not the order of the tuple, where a higher sequence number would be farther.
        """
        return self.seqno > other.seqno or (self.seqno == other.seqno and self.metric < other.metric)


def link_cost(link: Link) -> int:
    """The cost of a link in units, at least 1. Unknown bandwidth counts as unlimited: direct beats relayed."""
    forwarding = PIECE / link.bandwidth if link.bandwidth is not None else 0.0
    units = max(1.0, (link.srtt / 2 + forwarding) / TICK) + RELAY
    return math.ceil(units) if units < INFINITY else INFINITY


def extend(metric: int, cost: int) -> int:
    """The metric of a path one link longer."""
    return min(INFINITY, metric + cost)


def seconds(metric: int) -> float:
    """A path's delay in seconds."""
    return max(0, metric - RELAY) * TICK


def significant(old: int, new: int, fraction: float) -> bool:
    """Say whether a metric moved by more than `fraction` of itself: anything less is not worth a message."""
    return abs(new - old) > fraction * old
