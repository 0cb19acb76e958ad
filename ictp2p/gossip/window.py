"""How fast a link is, by the transfers that went over it: a window of samples, of which the median is for plans.

A transfer that waited for its application says only that the link does *at least* that much, so it may raise an
estimate, never lowers one (Cardwell et al., BBR, 2016), and is none by itself: of a link that nobody has measured,
plans assume what the others have, or what it did at least if that is more. A median of many samples
would notice a changed link half a window too late, hence the shift rule: two samples in a row that agree with each
other and not with the median begin a new window (a slower one only if neither waited for its application), and so does
a single full-speed one that lasted for long. It is an average over so many round trips that no burst of other traffic
explains it; and who needs two would wait for two rounds, of which a link that has become slow makes the first one last.
A faster one that had the lines at both ends for itself, as a probe has, begins one alone as well, however short, and be
it that a round cut it short: what a link has carried it can carry, and in rounds it shows its share of a line.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf

from ictp2p.gossip.link_profile import LinkProfile


@dataclass(frozen=True, slots=True)
class Sample:
    """One transfer: bytes/s, when it ended, and whether it waited for its application."""

    rate: float
    at: float
    app_limited: bool


class Window:
    """The bandwidth samples of one direction."""

    def __init__(self, profile: LinkProfile) -> None:
        self._profile = profile
        self._samples: list[Sample] = []
        self._full_at = float("-inf")
        """When a sample last came from a sender that waited for nothing but the link."""
        self._least: Sample | None = None
        self._sorted: tuple[float, list[float], float | None] = (float("-inf"), [], None)
        """Until when they hold, the rates, and their median."""

    def ascending(self, now: float) -> list[float]:
        """The rates that count now, sorted."""
        if now >= self._sorted[0]:
            self._sort(now)
        return self._sorted[1]

    def median(self, now: float) -> float | None:
        """Their median, if there is any: asked for after each Hello."""
        if now >= self._sorted[0]:
            self._sort(now)
        return self._sorted[2]

    def fresh(self, now: float) -> bool:
        """Whether what is known is more than a lower bound, and recent."""
        return self._full_at > now - self._profile.horizon

    def at_least(self, now: float) -> float:
        """Bytes/s that transfers got which were limited by something else; 0 without any."""
        return self._least.rate if self._least is not None and self._counts(self._least, now) else 0.0

    def add(self, rate: float, seconds: float, app_limited: bool, now: float, *, alone: bool = False) -> None:
        """Take a sample, bytes/s over so many seconds, if it says anything new; `alone`: nothing shared its lines."""
        self._samples = [sample for sample in self._samples if self._counts(sample, now)]
        self._sort(now)
        known = self.median(now)
        if app_limited and known is None:
            if rate > self.at_least(now):
                self._least = Sample(rate, now, app_limited)
            return
        if app_limited and known is not None and rate <= known:
            return
        if len(self._samples) >= self._profile.samples:
            # The lowest makes room for a lower bound: dropping a higher one could lower the estimate.
            self._samples.remove(min(self._samples, key=lambda s: s.rate) if app_limited else self._samples[0])
        self._samples.append(Sample(rate, now, app_limited))
        self._sorted = (float("-inf"), [], None)
        self._full_at = self._full_at if app_limited else now
        if (
            known is not None
            and self._far(rate, known)
            and ((seconds >= self._profile.long and not app_limited) or (alone and rate > known))
        ):
            del self._samples[:-1]
        elif self._shifted():
            del self._samples[:-2]

    def _sort(self, now: float) -> None:
        counting = [sample for sample in self._samples if self._counts(sample, now)]
        until = min((sample.at for sample in counting), default=inf) + self._profile.horizon
        rates = sorted(sample.rate for sample in counting)
        self._sorted = (until, rates, quantile(rates, 0.5))

    def _counts(self, sample: Sample, now: float) -> bool:
        return sample.at > now - self._profile.horizon

    def _shifted(self) -> bool:
        if len(self._samples) < 3:
            return False
        *others, one, two = self._samples
        median = statistics.median(sample.rate for sample in others)
        low, high = sorted((one.rate, two.rate))
        agree = high <= low * (1.0 + self._profile.shift)
        slower = high < median and not (one.app_limited or two.app_limited)
        return agree and self._far(low, median) and self._far(high, median) and (low > median or slower)

    def _far(self, rate: float, median: float) -> bool:
        return abs(rate - median) > self._profile.shift * median


def quantile(ascending: Sequence[float], share: float) -> float | None:
    """Linear interpolation between the two nearest samples."""
    if not ascending:
        return None
    position = share * (len(ascending) - 1)
    lower = floor(position)
    upper = min(lower + 1, len(ascending) - 1)
    return ascending[lower] + (position - lower) * (ascending[upper] - ascending[lower])
