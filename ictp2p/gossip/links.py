"""What each link between clusters can carry, and how long it takes: measured from what flows anyway.

Theory of operation:

1. **Delay** needs no synchronized clocks. Each Hello carries its sender's clock t2' and, of the neighbour's last
   Hello, the neighbour's clock t1 and the time of its receipt t1'; the round trip is (t2 - t1) - (t2' - t1'), however
   long the neighbour waited before it spoke (RFC 9616, section 3). Only a t1 that this life did send is believed. The
   smoothed value moves by 0.164 of each error, as RFC 9616 has it; the deviation follows RFC 6298.
2. **Loss** is the share of a neighbour's last 16 Hellos that is missing, in the sequence or by silence (RFC 8966,
   appendix A.1); a neighbour that is silent for `hold` intervals is lost, connection or not.
3. **Bandwidth** comes from the transfers that the collectives do: a window of samples per direction, of which the
   median is for plans and the low quantile for deadlines. A transfer that waited for its application says only that
   the link does *at least* that much, so it may raise an estimate and never lowers one (Cardwell et al., BBR, 2016).
   A median of many samples would notice a changed link half a window too late, hence the shift rule: two full-speed
   samples in a row that agree with each other and not with the median begin a new window, and so does a single one
   that lasted for long. It is an average over so many round trips that no burst of other traffic explains it; and who
   needs two would wait for two rounds, of which a link that has become slow makes the first one last.
4. **Probing** is for links of which nothing fresh is known, and politely: one at a time, never in a round, paid from a
   token bucket that `probe_share` of the rounds' bytes fills. Each cluster begins its list after its own name, so
   that not everybody probes the same one first.
5. A cluster's own **capacity** up and down is the most that its links were ever seen to carry at the same time: they
   share one access line, which no single link's figure shows (the hose model, Duffield et al., 2002).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, inf
from typing import Annotated, Literal

import msgspec

from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.machine import Effects, Message, Notice, Send, earliest
from ictp2p.types import ClusterId

Direction = Literal["out", "in"]
"""Of bytes, as this cluster sees them."""

_HISTORY = 16
"""Hellos over which loss is counted: a 16 bit register in RFC 8966, appendix A.1."""

_TOGETHER = 0.25
"""Share of an interval by which a Hello may be early to go with another: a leader with many neighbours then wakes up
once per interval instead of once per neighbour."""

_ROUNDING = 1e-6
"""Seconds below zero at which a round trip is still none: differences of large clocks round, and a link without any
delay must not stay unmeasured for that."""


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """How closely links are watched."""

    hello_interval: float = 4.0
    """Seconds between Hellos, RFC 8966's value. Halving it doubles a few dozen bytes per neighbour and interval."""

    hold: float = 3.5
    """Hello intervals of silence after which a link counts as lost (RFC 8966, appendix B)."""

    change: float = 0.15
    """Relative change of a median or delay, or absolute change of the loss, that is worth a notice."""

    delay_floor: float = 0.001
    """Seconds by which a delay must change at least to be worth a notice; on a LAN 15 % of it is noise."""

    refresh: float = 60.0
    """Seconds after which a measurement is told again though nothing changed."""

    samples: int = 20
    """Most bandwidth samples in a window."""

    horizon: float = 3600.0
    """Seconds after which a bandwidth sample is forgotten, and a link without a younger one is probed."""

    shift: float = 0.3
    """Relative distance from the median at which two agreeing samples, or a long one, begin a new window."""

    long: float = 5.0
    """Seconds that a full-speed sample must have lasted to begin a new window alone. Lower follows a changed link after
    shorter rounds, and believes shorter disturbances."""

    least_sample: int = 65536
    """Bytes below which a transfer says nothing about bandwidth: it fits into the buffers on the way."""

    delay_window: float = 600.0
    """Seconds over which the minimum round trip is taken; above it, a changed path is noticed."""

    probe_bytes: int = 8 * 2**20
    """Bytes of one active probe: enough to outlast slow start at 100 ms and 1 Gb/s."""

    probe_share: float = 0.01
    """Bytes that may be probed per byte that rounds moved."""

    probe_credit: int = 64 * 2**20
    """Bytes that may be probed before the first round, and the most that the bucket holds."""

    probe_timeout: float = 30.0
    """Seconds that a probe may take before the next one is wanted."""

    probe_retry: float = 300.0
    """Seconds before a link whose probe brought nothing is probed again."""

    @classmethod
    def local(cls) -> LinkProfile:
        """Several clusters on one machine."""
        return cls(
            hello_interval=0.5, refresh=10.0, long=2.0, probe_bytes=2**20, probe_credit=16 * 2**20, probe_timeout=5.0
        )

    @classmethod
    def lan(cls) -> LinkProfile:
        """Clusters in one data centre."""
        return cls(hello_interval=1.0)

    @classmethod
    def wan(cls) -> LinkProfile:
        """Clusters far apart."""
        return cls()


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


@dataclass(frozen=True, slots=True)
class LinkMeasurement:
    """What is known of one link. None: nothing yet."""

    bandwidth_out: float | None = None
    """Median, bytes/s."""
    bandwidth_out_low: float | None = None
    """Lowest tenth, bytes/s."""
    bandwidth_in: float | None = None
    bandwidth_in_low: float | None = None
    srtt: float | None = None
    """Smoothed round trip, seconds."""
    rttvar: float | None = None
    """Its mean deviation, seconds."""
    min_rtt: float | None = None
    """Least round trip of the last ten minutes, seconds."""
    loss: float = 0.0
    """Share of Hellos that went missing, 0 to 1."""
    age: float | None = None
    """Seconds since the newest bandwidth sample of either direction."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most that all links of this cluster were seen to carry at once, bytes/s. None: nothing yet."""

    up: float | None
    down: float | None


@dataclass(frozen=True, slots=True)
class LinkChanged(Notice):
    """A link is up and measures this; the first one of a connection says that it is up."""

    neighbour: ClusterId
    measurement: LinkMeasurement


@dataclass(frozen=True, slots=True)
class LinkLost(Notice):
    """A link that was up is disconnected or silent."""

    neighbour: ClusterId


@dataclass(frozen=True, slots=True)
class ProbeWanted(Notice):
    """Send so many bytes to `neighbour` as fast as they go, and report them with `transferred`."""

    neighbour: ClusterId
    bytes: int


class Links:
    """The links of one cluster to its neighbours."""

    def __init__(self, me: ClusterId, profile: LinkProfile) -> None:
        self.me = me
        self._profile = profile
        self._links: dict[ClusterId, _Link] = {}
        self._in_round = False
        self._wake = inf
        """Until when no link wants anything; one may turn out to want it later."""
        self._budget = float(profile.probe_credit)
        self._probing: tuple[ClusterId, float] | None = None
        """Whom, and until when it is waited for."""
        self.round_trips: deque[float] = deque(maxlen=4096)
        """Seconds of the newest control round trips, over all links."""
        self._flows: dict[Direction, deque[_Flow]] = {"out": deque(maxlen=64), "in": deque(maxlen=64)}

    def connected(self, neighbour: ClusterId, now: float) -> Effects:
        """A control connection to `neighbour`'s leader is up, or came up anew: what was said on the last is void."""
        link = self._links.setdefault(neighbour, _Link(self._profile))
        lost = self._lose(neighbour, link)
        link.talk = _Talk(self._profile, now)
        return [*lost, *self._hello(neighbour, link, now)]

    def disconnected(self, neighbour: ClusterId, now: float) -> Effects:
        """The connection is gone. What it carried is remembered for as long as samples are."""
        link = self._links.get(neighbour)
        if link is None:
            return []
        effects = self._lose(neighbour, link)
        link.talk = None
        if self._probing and self._probing[0] == neighbour:
            self._probing = None
        self._links = {n: a for n, a in self._links.items() if a.talk or not a.forgotten(now)}
        self._wake = min((a.due() for a in self._links.values()), default=inf)
        return effects

    def transferred(
        self, neighbour: ClusterId, direction: Direction, bytes: int, seconds: float, app_limited: bool, now: float
    ) -> Effects:
        """Take what a bulk transfer showed: `bytes` within the `seconds` that end now.

        Args:
            neighbour: the cluster on the other side, connected or not.
            direction: of the bytes.
            bytes: how many.
            seconds: in how long; more than 0.
            app_limited: whether the sender ever waited for its application, a pace, or the receiver.
            now: seconds.

        Raises:
            LocalProtocolError: the bytes are negative, or the seconds not positive and finite.
        """
        if bytes < 0 or not 0.0 < seconds < float("inf"):
            raise LocalProtocolError(f"link to {neighbour}: {bytes} bytes in {seconds} s were not transferred")
        if self._in_round:
            credit = self._budget + self._profile.probe_share * bytes
            self._budget = min(credit, float(self._profile.probe_credit))
        link = self._links.setdefault(neighbour, _Link(self._profile))
        if bytes >= self._profile.least_sample:
            link.windows[direction].add(bytes / seconds, seconds, app_limited, now)
            self._flows[direction].append(_Flow(neighbour, now - seconds, now, bytes / seconds))
        if self._probing and self._probing[0] == neighbour and direction == "out" and not app_limited:
            self._probing = None
        if link.talk:
            link.talk.heard_at = max(link.talk.heard_at, now)
        return [*self._announce(neighbour, link, now), *self._probe(now)]

    def round_started(self) -> None:
        """From here on the links belong to a round: nothing is probed, and its bytes fill the bucket."""
        self._in_round = True

    def round_ended(self, now: float) -> Effects:
        """The round is over; what waited may be probed."""
        self._in_round = False
        return self._probe(now)

    def measurement(self, neighbour: ClusterId, now: float) -> LinkMeasurement:
        """What is known of a link; an empty measurement for a stranger's."""
        link = self._links.get(neighbour)
        return link.measurement(now) if link else LinkMeasurement()

    def capacity(self, now: float) -> Capacity:
        """What this cluster's access line was seen to carry."""
        since = now - self._profile.horizon
        return Capacity(_most_at_once(self._flows["out"], since), _most_at_once(self._flows["in"], since))

    def receive(self, sender: str, message: Message, now: float) -> Effects:
        """Take a neighbour's `Hello`.

        Raises:
            RemoteProtocolError: it is something else, or half of an echo.
        """
        if not isinstance(message, Hello) or (message.origin is None) != (message.received is None):
            raise RemoteProtocolError(f"cluster {sender} sent {message!r} to a link")
        neighbour = ClusterId(sender)
        link = self._links.get(neighbour)
        if link is None or link.talk is None:
            return []
        if (trip := link.talk.take(message, now)) is not None:
            self.round_trips.append(trip)
        # A neighbour that has heard nothing of us yet cannot measure: answer it now and not in an interval.
        answer = self._hello(neighbour, link, now) if message.origin is None else []
        news = self._announce(neighbour, link, now)
        return [*answer, *news, *self._probe(now)] if news else answer

    def handle_timeout(self, now: float) -> Effects:
        """Send the Hellos that are due, notice who fell silent, refresh, and probe."""
        effects: Effects = []
        self._wake = inf
        speaking = any(talk.hello_at <= now for _, _, talk in self._connected())
        soon = now + self._profile.hello_interval * _TOGETHER if speaking else now
        for neighbour, link, talk in self._connected():
            due = talk.hello_at <= (now if talk.srtt is None else soon)
            if due or link.due() <= now:
                if talk.silent_from <= now:
                    effects += self._lose(neighbour, link)
                if due:
                    effects += self._hello(neighbour, link, now)
                effects += self._announce(neighbour, link, now)
            self._wake = min(self._wake, link.due())
        return [*effects, *self._probe(now)]

    def next_timeout(self) -> float | None:
        """When a Hello, a silence, a refreshment or a probe is due."""
        return earliest([self._probing[1] if self._probing else None, None if self._wake == inf else self._wake])

    def __repr__(self) -> str:
        known = ", ".join(f"{name} {'up' if link.told else 'down'}" for name, link in sorted(self._links.items()))
        return f"<Links {self.me}: {known or 'none'}>"

    def _connected(self) -> Iterator[tuple[ClusterId, _Link, _Talk]]:
        for neighbour, link in self._links.items():
            if link.talk is not None:
                yield neighbour, link, link.talk

    def _hello(self, neighbour: ClusterId, link: _Link, now: float) -> Effects:
        assert link.talk is not None
        hello = link.talk.speak(now)
        self._wake = min(self._wake, link.due())
        return [Send(neighbour, hello)]

    def _announce(self, neighbour: ClusterId, link: _Link, now: float) -> Effects:
        if link.talk is None or link.talk.srtt is None or link.talk.silent_from <= now:
            return []
        told = link.told
        if told is not None and now < link.told_at + self._profile.refresh and not link.differs(told, now):
            return []
        fresh = link.measurement(now)
        link.told, link.told_at = fresh, now
        self._wake = min(self._wake, link.due())
        return [LinkChanged(neighbour, fresh)]

    def _lose(self, neighbour: ClusterId, link: _Link) -> Effects:
        was_up, link.told = link.told is not None, None
        return [LinkLost(neighbour)] if was_up else []

    def _probe(self, now: float) -> Effects:
        if self._probing and now >= self._probing[1]:
            self._probing = None
        if self._probing or self._in_round or self._budget < self._profile.probe_bytes:
            return []
        wanting = [n for n, link, _ in self._connected() if link.told and link.wants_probe(now)]
        if not wanting:
            return []
        neighbour = min(wanting, key=lambda n: (self._links[n].probed_at, n <= self.me, n))
        self._links[neighbour].probed_at = now
        self._probing = (neighbour, now + self._profile.probe_timeout)
        self._budget -= self._profile.probe_bytes
        return [ProbeWanted(neighbour, self._profile.probe_bytes)]


class _Link:
    """What outlasts a connection, and the connection if there is one."""

    def __init__(self, profile: LinkProfile) -> None:
        self._profile = profile
        self.talk: _Talk | None = None
        self.windows: dict[Direction, _Window] = {"out": _Window(profile), "in": _Window(profile)}
        self.told: LinkMeasurement | None = None
        """What the floor above was last told, while the link is up for it."""
        self.told_at = 0.0
        self.probed_at = float("-inf")

    def due(self) -> float:
        """When it wants something, if nothing comes until then; never, without a connection."""
        talk = self.talk
        if talk is None:
            return inf
        if self.told is None:
            return talk.hello_at
        return min(talk.hello_at, talk.silent_from, self.told_at + self._profile.refresh)

    def wants_probe(self, now: float) -> bool:
        return now >= self.probed_at + self._profile.probe_retry and not self.windows["out"].fresh(now)

    def forgotten(self, now: float) -> bool:
        return not any(window.ascending(now) for window in self.windows.values())

    def differs(self, told: LinkMeasurement, now: float) -> bool:
        """Whether what was told has changed so much that a plan or a route would: asked for after each Hello."""
        talk, change = self.talk, self._profile.change
        return (
            _moved(told.bandwidth_out, _quantile(self.windows["out"].ascending(now), 0.5), change, 0.0)
            or _moved(told.bandwidth_in, _quantile(self.windows["in"].ascending(now), 0.5), change, 0.0)
            or _moved(told.srtt, talk.srtt if talk else None, change, self._profile.delay_floor)
            or abs(told.loss - (talk.loss(now) if talk else 0.0)) > change
        )

    def measurement(self, now: float) -> LinkMeasurement:
        out, into = self.windows["out"], self.windows["in"]
        newest = max((window.newest for window in (out, into) if window.ascending(now)), default=None)
        return LinkMeasurement(
            bandwidth_out=_quantile(out.ascending(now), 0.5),
            bandwidth_out_low=_quantile(out.ascending(now), 0.1),
            bandwidth_in=_quantile(into.ascending(now), 0.5),
            bandwidth_in_low=_quantile(into.ascending(now), 0.1),
            srtt=self.talk.srtt if self.talk else None,
            rttvar=self.talk.rttvar if self.talk else None,
            min_rtt=self.talk.min_rtt(now) if self.talk else None,
            loss=self.talk.loss(now) if self.talk else 0.0,
            age=None if newest is None else now - newest,
        )


class _Talk:
    """The Hellos of one connection, both ways."""

    def __init__(self, profile: LinkProfile, now: float) -> None:
        self._profile = profile
        self.hello_at = now
        self.heard_at = now
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
        """When the neighbour counts as silent, if nothing comes until then."""
        return self.heard_at + self._profile.hold * self._interval

    def speak(self, now: float) -> Hello:
        """The next Hello. The first ones follow each other closely, until a round trip is known."""
        self.hello_at = now + self._profile.hello_interval / (8 if self.srtt is None else 1)
        self._sent.append(now)
        self._sequence += 1
        origin, received = self._echo or (None, None)
        return Hello(self._sequence, self._profile.hello_interval, now, origin, received)

    def take(self, hello: Hello, now: float) -> float | None:
        """Count a Hello, and measure by it unless it is late (a later one has told more); the round trip, if any."""
        late = hello.sequence <= self._highest
        self._count(hello.sequence)
        self.heard_at = self._hello_heard_at = now
        if late:
            return None
        self._interval, self._echo = hello.interval, (hello.sent, now)
        if hello.origin is None or hello.received is None or hello.origin not in self._sent:
            return None
        waited = hello.sent - hello.received
        sample = (now - hello.origin) - waited
        if waited < 0.0 or sample < -_ROUNDING:
            return None
        trip = max(sample, 0.0)
        self._measure(trip, now)
        return trip

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
        elif -ahead < _HISTORY:
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


@dataclass(frozen=True, slots=True)
class _Sample:
    rate: float
    at: float


class _Window:
    """The bandwidth samples of one direction."""

    def __init__(self, profile: LinkProfile) -> None:
        self._profile = profile
        self._samples: list[_Sample] = []
        self._full_at = float("-inf")
        """When a sample last came from a sender that waited for nothing but the link."""
        self.newest = float("-inf")
        self._sorted: tuple[float, list[float]] = (float("-inf"), [])
        """Until when they hold, and the rates."""

    def ascending(self, now: float) -> list[float]:
        """The rates that count now, sorted."""
        until, rates = self._sorted
        if now >= until:
            counting = [sample for sample in self._samples if self._counts(sample, now)]
            until = min((sample.at for sample in counting), default=inf) + self._profile.horizon
            rates = sorted(sample.rate for sample in counting)
            self._sorted = (until, rates)
        return rates

    def fresh(self, now: float) -> bool:
        """Whether what is known is more than a lower bound, and recent."""
        return self._full_at > now - self._profile.horizon

    def add(self, rate: float, seconds: float, app_limited: bool, now: float) -> None:
        """Take a sample, bytes/s over so many seconds, if it says anything new."""
        self._samples = [sample for sample in self._samples if self._counts(sample, now)]
        self._sorted = (float("-inf"), [])
        known = _quantile(self.ascending(now), 0.5)
        if app_limited and known is not None and rate <= known:
            return
        if len(self._samples) >= self._profile.samples:
            # The lowest makes room for a lower bound: dropping a higher one could lower the estimate.
            self._samples.remove(min(self._samples, key=lambda s: s.rate) if app_limited else self._samples[0])
        self._samples.append(_Sample(rate, now))
        self._sorted = (float("-inf"), [])
        self.newest = now
        self._full_at = self._full_at if app_limited else now
        if known is not None and not app_limited and seconds >= self._profile.long and self._far(rate, known):
            del self._samples[:-1]
        elif self._shifted():
            del self._samples[:-2]

    def _counts(self, sample: _Sample, now: float) -> bool:
        return sample.at > now - self._profile.horizon

    def _shifted(self) -> bool:
        *others, one, two = [0.0, 0.0, *(sample.rate for sample in self._samples)]
        median = _quantile(sorted(others[2:]), 0.5)
        if median is None:
            return False
        low, high = min(one, two), max(one, two)
        agree = high <= low * (1.0 + self._profile.shift)
        return agree and self._far(low, median) and self._far(high, median) and (low > median or high < median)

    def _far(self, rate: float, median: float) -> bool:
        return abs(rate - median) > self._profile.shift * median


@dataclass(frozen=True, slots=True)
class _Flow:
    neighbour: ClusterId
    start: float
    end: float
    rate: float


def _most_at_once(flows: Iterable[_Flow], since: float) -> float | None:
    """The greatest sum of rates at one time, sought in the middles of flows: at their ends they overlap by chance."""
    recent = [flow for flow in flows if flow.end > since]
    return max((_sum_at((flow.start + flow.end) / 2, recent) for flow in recent), default=None)


def _sum_at(time: float, flows: Iterable[_Flow]) -> float:
    """Rates at one time, one flow per neighbour: two of one that overlap are the jitter between chunks."""
    rates: dict[ClusterId, float] = {}
    for flow in flows:
        if flow.start <= time <= flow.end:
            rates[flow.neighbour] = max(rates.get(flow.neighbour, 0.0), flow.rate)
    return sum(rates.values())


def _quantile(ascending: Sequence[float], share: float) -> float | None:
    """Linear interpolation between the two nearest samples."""
    if not ascending:
        return None
    position = share * (len(ascending) - 1)
    lower = floor(position)
    upper = min(lower + 1, len(ascending) - 1)
    return ascending[lower] + (position - lower) * (ascending[upper] - ascending[lower])


def _moved(before: float | None, after: float | None, share: float, least: float) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) > max(share * before, least)
