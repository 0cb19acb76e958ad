"""What each link between clusters can carry, and how long it takes: measured from what flows anyway.

Theory of operation:

1. **Delay** and **loss** come from the Hellos of neighbours (`hellos`), and so does that a neighbour is lost. A process
   that was late by itself does not hold it against them, as in `swim`: what they said is here, unread.
2. **Bandwidth** comes from the transfers that the collectives do: a window of samples per direction (`window`). One
   that took only a few round trips shows what the sender's window was, and not the link: it is a lower bound.
3. **Probing** is for links of which nothing fresh is known, and politely: one at a time, never in a round nor while a
   state is sent (`reserve`), paid from a token bucket that `probe_share` of the rounds' bytes fills. Each cluster
   begins its list after its own name, so that not everybody probes the same one first. What is left over goes to links
   whose figures are doubted (`doubt`), or far below what they were once, those first whose last probe showed that; of
   the others rounds may show but a share of a line. They are probed at once, and again after a pause that doubles with
   each probe which no round cut short, up to an hour, and is short again once some link here has changed. So a link
   that recovers is found, though no plan uses it any more. It begins as soon as a round is over: where it rested for a
   second first, calls had a hundredth less to wait, and lines that had recovered were found later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.gossip.hellos import Hello, Talk
from ictp2p.gossip.link import Link, LinkMeasurement
from ictp2p.gossip.link_profile import LinkProfile
from ictp2p.machine import Effects, Message, Notice, Send, earliest
from ictp2p.types import ClusterId, Transfer

_TOGETHER = 0.25
"""Share of an interval by which a Hello may be early to go with another: a leader with many neighbours then wakes up
once per interval instead of once per neighbour."""


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
    seconds: float
    """Until the next one may be wanted: this one is to be over by then."""


class Links:
    """The links of one cluster to its neighbours."""

    def __init__(self, me: ClusterId, profile: LinkProfile) -> None:
        self.me = me
        self._profile = profile
        self._links: dict[ClusterId, Link] = {}
        self._in_round = False
        self._reserved_until = -inf
        self._wake = inf
        """Until when no link wants anything; one may turn out to want it later."""
        self._budget = float(profile.probe_credit)
        self._probing: tuple[ClusterId, float] | None = None
        """Whom, and until when it is waited for."""
        self._cut_short = False
        """Whether a round began meanwhile."""
        self._doubted: tuple[ClusterId, ...] = ()
        self.round_trips: deque[float] = deque(maxlen=4096)
        """Seconds of the newest control round trips, over all links."""

    def connected(self, neighbour: ClusterId, now: float) -> Effects:
        """A control connection to `neighbour`'s leader is up, or came up anew: what was said on the last is void."""
        link = self._links.setdefault(neighbour, Link(self._profile))
        lost = self._lose(neighbour, link)
        link.talk = Talk(self._profile, now)
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
        self._wake = self._soonest()
        return effects

    def transferred(self, neighbour: ClusterId, transfer: Transfer, now: float) -> Effects:
        """Take what a bulk transfer showed of the link to or from `neighbour`, connected or not.

        Raises:
            LocalProtocolError: its bytes are negative, or its seconds not positive and finite.
        """
        size, seconds, direction = transfer.size, transfer.seconds, transfer.direction
        if size < 0 or not 0.0 < seconds < float("inf"):
            raise LocalProtocolError(f"link to {neighbour}: {size} bytes in {seconds} s were not transferred")
        if self._in_round:
            credit = self._budget + self._profile.probe_share * size
            self._budget = min(credit, float(self._profile.probe_credit))
        link = self._links.setdefault(neighbour, Link(self._profile))
        if size >= self._profile.least_sample and link.carried(transfer, now):
            for each in self._links.values():  # what has changed may be our line
                each.pause = self._profile.probe_again
        if self._probing and self._probing[0] == neighbour and direction == "out":
            if not transfer.limited:
                self._probing = None
                self._doubted = tuple(each for each in self._doubted if each != neighbour)  # until that is said anew
            elif transfer.probe:
                link.cut_short()
        if link.talk:
            link.talk.heard_at = max(link.talk.heard_at, transfer.ended)
            if direction == "out":
                link.talk.reached_at = max(link.talk.reached_at, transfer.ended)
        return [*self._announce(neighbour, link, now), *self._probe(now)]

    def round_started(self) -> None:
        """From here on the links belong to a round: nothing is probed, and its bytes fill the bucket."""
        self._in_round = self._cut_short = True

    def round_ended(self, now: float) -> Effects:
        """The round is over; what waited may be probed."""
        self._in_round = False
        return self._probe(now)

    def reserve(self, until: float) -> None:
        """Probe nothing until then: our line is needed."""
        self._reserved_until = max(self._reserved_until, until)

    def doubt(self, neighbours: tuple[ClusterId, ...], now: float) -> Effects:
        """Probe links once more, the first one first, when no other wants to be: they show less than they should."""
        self._doubted = neighbours
        return self._probe(now)

    def probe_again(self, neighbour: ClusterId) -> None:
        """Probe a link once more, though its figures are fresh: whether it carries more is not known."""
        self._links.setdefault(neighbour, Link(self._profile)).again = True

    def measurement(self, neighbour: ClusterId, now: float) -> LinkMeasurement:
        """What is known of a link; an empty measurement for a stranger's."""
        link = self._links.get(neighbour)
        return link.measurement(now) if link else LinkMeasurement()

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
        due_at = self.next_timeout()
        if due_at is not None:
            self._lagged(now - due_at, now)
        effects: Effects = []
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
        self._wake = self._soonest()  # last: what was due before is no lateness of the next call
        return [*effects, *self._probe(now)]

    def next_timeout(self) -> float | None:
        """When a Hello, a silence, a refreshment or a probe is due."""
        return earliest([self._probing[1] if self._probing else None, None if self._wake == inf else self._wake])

    def __repr__(self) -> str:
        known = ", ".join(f"{name} {'up' if link.told else 'down'}" for name, link in sorted(self._links.items()))
        return f"<Links {self.me}: {known or 'none'}>"

    def _lagged(self, late: float, now: float) -> None:
        """Note that this process itself was late by so many seconds: not others' fault (as `Swim.lagged`)."""
        interval = self._profile.hello_interval
        if late <= interval / 2:
            return
        for _, link, talk in self._connected():
            if link.told is not None:  # what was lost before is not there again because we were late
                talk.postpone(late + interval, now)  # Hellos may be here, unread, and we slept before anything was due

    def _soonest(self) -> float:
        return min((link.due() for link in self._links.values()), default=inf)

    def _connected(self) -> Iterator[tuple[ClusterId, Link, Talk]]:
        for neighbour, link in self._links.items():
            if link.talk is not None:
                yield neighbour, link, link.talk

    def _hello(self, neighbour: ClusterId, link: Link, now: float) -> Effects:
        assert link.talk is not None
        hello = link.talk.speak(now)
        self._wake = min(self._wake, link.due())
        return [Send(neighbour, hello)]

    def _announce(self, neighbour: ClusterId, link: Link, now: float) -> Effects:
        if link.talk is None or link.talk.srtt is None or link.talk.silent_from <= now:
            return []
        told = link.told
        if told is not None and now < link.told_at + self._profile.refresh and not link.differs(told, now):
            return []
        fresh = link.measurement(now)
        link.told, link.told_at = fresh, now
        self._wake = min(self._wake, link.due())
        return [LinkChanged(neighbour, fresh)]

    def _lose(self, neighbour: ClusterId, link: Link) -> Effects:
        was_up, link.told = link.told is not None, None
        return [LinkLost(neighbour)] if was_up else []

    def _probe(self, now: float) -> Effects:
        if self._probing and now >= self._probing[1]:
            self._expired(self._links.get(self._probing[0]))
        if self._probing or self._in_round or now < self._reserved_until:
            return []
        if self._budget < self._profile.probe_sizes[-1]:  # as in an idle mesh, for good: none is looked for in vain
            return []
        wanting = self._wanting(now)
        neighbour = wanting or self._worth_another(now)
        if neighbour is None:
            return []
        link = self._links[neighbour]
        size = link.probe_size(now)
        if self._budget < size:
            return []
        if not wanting:
            link.doubt()
        link.probed_at, link.again = now, False
        self._probing, self._cut_short = (neighbour, now + self._profile.probe_timeout), False
        self._budget -= size
        return [ProbeWanted(neighbour, size, self._profile.probe_timeout)]

    def _expired(self, link: Link | None) -> None:
        """The time of a probe is over, and it has not told all that it should."""
        self._probing = None
        if link is None:
            return
        if self._cut_short:  # perhaps before it had its turn, so that it told nothing at all
            link.cut_short()
        else:
            link.in_vain()

    def _wanting(self, now: float) -> ClusterId | None:
        """Name a neighbour of whose link nothing fresh is known, or not all that a probe tells."""
        wanting = [n for n, link, _ in self._connected() if link.told and link.wants_probe(now)]
        return min(wanting, key=lambda n: (self._links[n].probed_at, n <= self.me, n), default=None)

    def _worth_another(self, now: float) -> ClusterId | None:
        """Name one whose link is doubted, or has fallen behind itself, and was not probed for that of late."""
        fallen = [name for name, link in self._links.items() if link.fallen(now)]
        fallen.sort(key=lambda name: (not self._links[name].slow(), self._links[name].probed_at))
        for neighbour in (*self._doubted, *fallen):
            link = self._links.get(neighbour)
            if link and link.talk and link.told and (not link.doubted or now >= link.probed_at + link.pause):
                return neighbour
        return None
