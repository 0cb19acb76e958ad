"""The Hellos of one connection: the delay and the loss of a link, and whether its other end still speaks.

*Delay* needs no synchronized clocks. Each Hello carries its sender's clock t2' and, of the neighbour's last Hello, the
neighbour's clock t1 and the time of its receipt t1'; the round trip is (t2 - t1) - (t2' - t1'), however long the
neighbour waited before it spoke (RFC 9616, section 3). Only a t1 that this life did send is believed. The smoothed
value moves by 0.164 of each error, as RFC 9616 has it; the deviation follows RFC 6298.

*Loss* is the share of a neighbour's last 16 Hellos that is missing, in the sequence or by silence (RFC 8966, appendix
A.1); a neighbour that is silent for `hold` intervals is lost, connection or not. So is one that does not hear us, as
its echoes say, though we hear it: a line may be cut one way, and swallow all that we send (RFC 8966, section 3.4.2).

A neighbour that counts its Hellos from one again has begun anew, though the connection stands: its leader was elected
anew, say, and dropped its links without our noticing. So a sequence that falls by more than is counted is a new one, as
in the same appendix. Taken for late, its Hellos would be echoed, and measured by, only once they passed the old ones:
after a month, hours later.
"""

from __future__ import annotations

from collections import deque
from math import floor
from typing import Annotated

import msgspec

from ictp2p.gossip.link_profile import LinkProfile
from ictp2p.machine import Message

_HISTORY = 16
"""Hellos over which loss is counted: a 16 bit register in RFC 8966, appendix A.1."""

_ROUNDING = 1e-6
"""Seconds below zero at which a round trip is still none: differences of large clocks round, and a link without any
delay must not stay unmeasured for that."""


class Hello(Message, tag=31, frozen=True, array_like=True):
    """A sign of life with timestamps, as RFC 9616 attaches to Hello and IHU. Clocks are the senders' own."""

    sequence: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    interval: Annotated[float, msgspec.Meta(ge=0.01, le=3600.0)]
    """Seconds until the sender's next Hello."""
    sent: Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
    """Sender's clock (t2'), seconds."""
    origin: Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)] | None
    """`sent` of the receiver's last Hello that came (t1), if any came."""
    received: Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)] | None
    """Sender's clock when it came (t1')."""


class Talk:
    """The Hellos of one connection, both ways."""

    def __init__(self, profile: LinkProfile, now: float) -> None:
        self._profile = profile
        self.hello_at = now
        self.heard_at = now
        self.reached_at = now
        """When the newest left here of what the neighbour is known to have heard."""
        self._hello_heard_at = now
        self._interval = profile.hello_interval
        self._sequence = 0
        self._sent: deque[float] = deque(maxlen=_HISTORY)
        self._echo: tuple[float, float] | None = None
        self._highest = -1
        self._register = 0
        """Bit i: whether the Hello i before the highest came."""
        self._expected = 0
        self.srtt: float | None = None
        self.rttvar: float | None = None
        self._least: deque[tuple[float, float]] = deque()
        """(time, round trip), both ascending: the first is the minimum of the window."""

    @property
    def silent_from(self) -> float:
        """When the neighbour counts as lost, if nothing comes until then; an echo may be one more interval old."""
        deaf_from = self.reached_at + (self._profile.hold + 1.0) * max(self._interval, self._profile.hello_interval)
        return min(self.heard_at + self._profile.hold * self._interval, deaf_from)

    def speak(self, now: float) -> Hello:
        """The next Hello. The first ones follow each other closely, until a round trip is known."""
        self.hello_at = now + self._profile.hello_interval / (8 if self.srtt is None else 1)
        self._sent.append(now)
        self._sequence += 1
        origin, received = self._echo or (None, None)
        return Hello(self._sequence, self._profile.hello_interval, now, origin, received)

    def take(self, hello: Hello, now: float) -> float | None:
        """Count a Hello, and measure by it unless it is late (a later one has told more); the round trip, if any."""
        if hello.sequence <= self._highest - _HISTORY:
            self._highest, self._register, self._expected = -1, 0, 0  # another sequence
        late = hello.sequence <= self._highest
        self._count(hello.sequence)
        self.heard_at = self._hello_heard_at = now
        if late:
            return None
        self._interval, self._echo = hello.interval, (hello.sent, now)
        if hello.origin is None or hello.received is None or hello.origin not in self._sent:
            return None
        self.reached_at = max(self.reached_at, hello.origin)
        waited = hello.sent - hello.received
        sample = (now - hello.origin) - waited
        if waited < 0.0 or sample < -_ROUNDING:
            return None
        trip = max(sample, 0.0)
        self._measure(trip, now)
        return trip

    def postpone(self, seconds: float, now: float) -> None:
        """Do not count `seconds` of silence in which this process itself could not have heard anything.

        Nor count them for what was read before anybody saw that we were late: nothing was heard later than `now`.
        """
        self.heard_at, self.reached_at, self._hello_heard_at = (
            min(at + seconds, now) for at in (self.heard_at, self.reached_at, self._hello_heard_at)
        )

    def loss(self, now: float) -> float:
        """Share of the last Hellos that did not come, those included that are half an interval late."""
        overdue = floor((now - self._hello_heard_at) / self._interval - 0.5) if self._expected else 0
        overdue = max(0, min(overdue, _HISTORY))
        expected = min(self._expected + overdue, _HISTORY)
        came = ((self._register << overdue) & (2**_HISTORY - 1)).bit_count()
        return 1.0 - came / expected if expected else 0.0

    def min_rtt(self, now: float) -> float | None:
        """The least round trip within the window."""
        since = now - self._profile.delay_window
        return next((sample for at, sample in self._least if at > since), self.srtt)

    def _count(self, sequence: int) -> None:
        ahead = sequence - self._highest if self._expected else 1
        if ahead > 0:
            ahead = min(ahead, _HISTORY)
            self._register = ((self._register << ahead) | 1) & (2**_HISTORY - 1)
            self._expected = min(self._expected + ahead, _HISTORY)
            self._highest = sequence
        else:
            self._register |= 1 << -ahead
            self._expected = max(self._expected, 1 - ahead)

    def _measure(self, sample: float, now: float) -> None:
        if self.srtt is None or self.rttvar is None:
            self.srtt, self.rttvar = sample, sample / 2
        else:
            self.rttvar = 0.75 * self.rttvar + 0.25 * abs(self.srtt - sample)
            self.srtt = 0.836 * self.srtt + 0.164 * sample
        while self._least and self._least[-1][1] >= sample:
            self._least.pop()
        self._least.append((now, sample))
        while self._least[0][0] <= now - self._profile.delay_window:
            self._least.popleft()
