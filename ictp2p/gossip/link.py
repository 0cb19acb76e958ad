"""What is known of one link: how it was measured, what it was last told to be, and when it is worth a probe.

It outlasts the connection (`hellos.Talk`), since what a line carries does not change with who speaks on it. Which link
is probed when, of all that want to be, is for `links` to say: there is one line for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ictp2p.gossip.hellos import Talk
from ictp2p.gossip.link_profile import LinkProfile
from ictp2p.gossip.window import Window
from ictp2p.types import Direction, Transfer

_LOOK = 0.5
"""Seconds of a link's best that show whether it has recovered, if that is some round trips."""
_SOON = 4.0
"""Seconds that a line may take for a probe."""
_FALLEN = 0.6
"""Part of what a link carried once below which it is looked at again, as `core.doubts` does of lines."""


@dataclass(frozen=True, slots=True)
class LinkMeasurement:
    """What is known of one link. None: nothing yet."""

    bandwidth_out: float | None = None
    """Median, bytes/s."""
    bandwidth_in: float | None = None
    at_least_out: float = 0.0
    """Bytes/s that it carried while something else was the limit: all that is known where there is no median."""
    at_least_in: float = 0.0
    srtt: float | None = None
    """Smoothed round trip, seconds."""
    rttvar: float | None = None
    """Its mean deviation, seconds."""
    min_rtt: float | None = None
    """Least round trip of the last ten minutes, seconds."""
    loss: float = 0.0
    """Share of Hellos that went missing, 0 to 1."""


class Link:
    """What outlasts a connection, and the connection if there is one."""

    def __init__(self, profile: LinkProfile) -> None:
        self._profile = profile
        self.talk: Talk | None = None
        self._windows: dict[Direction, Window] = {"out": Window(profile), "in": Window(profile)}
        self.told: LinkMeasurement | None = None
        """What the floor above was last told, while the link is up for it."""
        self.told_at = 0.0
        self.probed_at = float("-inf")
        self.doubted = False
        """Whether it was ever probed for that."""
        self.again = False
        """Whether another probe would tell more."""
        self.shortened = 0
        """How many steps shorter than usual probes are; see `LinkProfile.probe_sizes`."""
        self._best = 0.0
        """Bytes/s that were the median once."""
        self._alone = 0.0
        """Bytes/s of the last probe from here, or that were more since."""
        self.pause = profile.probe_again
        """Seconds from a probe to the next one in doubt."""
        self._pause_before = self.pause
        """The one before the last probe in doubt."""

    def due(self) -> float:
        """When it wants something, if nothing comes until then; never, without a connection."""
        talk = self.talk
        if talk is None:
            return inf
        if self.told is None:
            return talk.hello_at
        return min(talk.hello_at, talk.silent_from, self.told_at + self._profile.refresh)

    def wants_probe(self, now: float) -> bool:
        """Whether nothing fresh is known of what goes out on it, or another probe would tell more."""
        if self.again and now >= self.probed_at + self._profile.probe_again:
            return True
        return now >= self.probed_at + self._profile.probe_retry and not self._windows["out"].fresh(now)

    def probe_size(self, now: float) -> int:
        """Bytes of its next probe: as many as usual, or fewer where they only have to show what it carried once.

        That takes some round trips of its best. What may be probed is a small part of what rounds move, so that fewer
        bytes are more probes, and a line that has recovered is found out sooner.
        """
        usual = self._profile.probe_sizes[self.shortened]
        if self.again or not self._windows["out"].fresh(now) or not self.fallen(now):
            return usual
        trip = self.talk.min_rtt(now) if self.talk else None
        seconds = max(_LOOK, 2.0 * self._profile.opening * (trip or 0.0))
        return min(usual, max(self._profile.probe_sizes[-1], int(seconds * self._best)))

    def in_vain(self) -> None:
        """A probe told nothing in its time: it may be the line that takes longer, so the next one is shorter."""
        self.shortened = min(self.shortened + 1, len(self._profile.probe_sizes) - 1)

    def cut_short(self) -> None:
        """A probe in doubt did not show all that it should have: the next pause is no longer than the one before."""
        self.pause = min(self.pause, self._pause_before)

    def doubt(self) -> None:
        """It is probed because it is doubted: the next time after a longer pause."""
        self.doubted, self._pause_before = True, self.pause
        self.pause = min(2 * self.pause, self._profile.horizon)

    def carried(self, transfer: Transfer, now: float) -> bool:
        """Take a sample; whether it shows that the link is not what its last probe showed.

        In a round a link may show but its share of a line, so that less than that is no such sign. A probe that a round
        cut short, or another limit, is one if it showed more: the link carries as much at least.
        """
        rate, probe = transfer.size / transfer.seconds, transfer.probe
        if probe and transfer.direction == "out":
            self._lengthen(rate)
        opening = self._opens_within(transfer.seconds, now)
        at_least, alone = transfer.limited or opening, probe and not opening
        self._windows[transfer.direction].add(rate, transfer.seconds, at_least, now, alone=alone)
        if transfer.direction == "in" or (at_least and not (alone and rate > self._alone)):
            return False
        self._best = max(self._best, self._windows["out"].median(now) or 0.0)
        changed = abs(rate - self._alone) > self._profile.shift * self._alone and (probe or rate > self._alone)
        if probe or changed:
            self._alone = rate
        return changed

    def _opens_within(self, seconds: float, now: float) -> bool:
        """Whether a sender's window may have been opening for most of a transfer (slow start, RFC 5681 §3.1)."""
        trip = self.talk.min_rtt(now) if self.talk else None
        return trip is not None and seconds < self._profile.opening * trip

    def _lengthen(self, rate: float) -> None:
        """Have probes as long again as a line of so many bytes/s takes in a few seconds."""
        while self.shortened and self._profile.probe_sizes[self.shortened - 1] <= _SOON * rate:
            self.shortened -= 1

    def fallen(self, now: float) -> bool:
        """Whether it carries far less than once: it may have recovered, and no plan would use it to find out."""
        return (self._windows["out"].median(now) or 0.0) < _FALLEN * self._best

    def slow(self) -> bool:
        """Whether its last probe showed far less than it carried once; else rounds may give it a share of a line."""
        return self._alone < _FALLEN * self._best

    def forgotten(self, now: float) -> bool:
        """Whether no sample of it counts any more."""
        return not any(window.ascending(now) for window in self._windows.values())

    def differs(self, told: LinkMeasurement, now: float) -> bool:
        """Whether what was told has changed so much that a plan or a route would: asked for after each Hello."""
        talk, change = self.talk, self._profile.change
        return (
            _moved(told.bandwidth_out, self._windows["out"].median(now), change, 0.0)
            or _moved(told.bandwidth_in, self._windows["in"].median(now), change, 0.0)
            or _grew(told.at_least_out, self._windows["out"].at_least(now), change)
            or _grew(told.at_least_in, self._windows["in"].at_least(now), change)
            or _moved(told.srtt, talk.srtt if talk else None, change, self._profile.delay_floor)
            or abs(told.loss - (talk.loss(now) if talk else 0.0)) > change
        )

    def measurement(self, now: float) -> LinkMeasurement:
        """What is known of it."""
        out, into = self._windows["out"], self._windows["in"]
        return LinkMeasurement(
            bandwidth_out=out.median(now),
            bandwidth_in=into.median(now),
            at_least_out=out.at_least(now),
            at_least_in=into.at_least(now),
            srtt=self.talk.srtt if self.talk else None,
            rttvar=self.talk.rttvar if self.talk else None,
            min_rtt=self.talk.min_rtt(now) if self.talk else None,
            loss=self.talk.loss(now) if self.talk else 0.0,
        )


def _grew(before: float, after: float, share: float) -> bool:
    return after > (1.0 + share) * before


def _moved(before: float | None, after: float | None, share: float, least: float) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) > max(share * before, least)
