"""Who speaks for a cluster: an election that only has to be right eventually.

Choosing one leader forever cannot be done by a deterministic asynchronous protocol (Fischer, Lynch and Paterson,
1985), and need not be: a round of the mesh binds exactly one (cluster, leader, term), so two leaders at once cost
bandwidth and never safety. What is left to build is Omega (Chandra, Hadzilacos and Toueg, 1996): after the last
fault everybody names the same live peer. That needs no votes, no majority and no clock, and so works in a cluster
of two, of which one has died.

Theory of operation. A `Claim(term, leader)` is all that travels, and claims are totally ordered: the higher term
wins, and within a term the higher id. Everybody keeps the highest it has heard.

1. A sitting leader stays while the membership has it. Being *suspected* does not cost it the office: a suspicion
   is refuted more often than confirmed, and a change of leaders aborts a round.
2. When a leader that was in the view goes, the best of those that are left (lowest rank number, then lowest id)
   claims `highest term + 1` in the same instant. When no leader was ever in the view (a fresh worker, or a name
   that only the mesh remembers) the view has to hold still for `settle` seconds first, or else each of the
   workers that start together would crown itself.
3. A claim is on disk before it is sent, and an office ends with the process that held it: who hears that it leads
   by a claim of its former life claims anew, and so does who hears that a lower id leads in that term: others
   remember the higher claim, and only a higher term can change their minds. So a pair (term, leader) names one life
   of one peer, once, ever.
4. Every `repeat` seconds a leader tells all members; so does a peer that has no leader in view; and a content
   follower tells its leader what it believes. Whoever is told less than it knows answers with what it knows.
   This is what makes agreement inevitable once messages get through: following the beliefs from peer to peer the
   claims only grow, so the chain ends at a peer that tells everybody, or at one that finds itself named and claims.
5. A leader that has nothing to lead hands the office over by telling the heir, and nobody else, that it leads in the
   next term; by rule 3 the heir claims the one after. Until that claim is heard nothing has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated

import msgspec

from ictp2p.errors import RemoteProtocolError, StateError
from ictp2p.gossip.messages import MAX_INCARNATION
from ictp2p.machine import Effects, Message, Notice, Persist, Send, earliest
from ictp2p.types import PeerId, PeerOrNone

TERM_KEY = "term"
"""The key under which the highest term is persisted, and whether this peer has claimed it."""

_HIGHEST = MAX_INCARNATION >> 32
"""Terms are below this: that of its leader is the upper half of a cluster's incarnation in the mesh, and a claim that
no incarnation can hold would keep all later leaders out of it. One a second gets there in 34 years."""

Term = Annotated[int, msgspec.Meta(ge=0, lt=_HIGHEST)]
"""A term, as others may name it."""


@dataclass(frozen=True, slots=True)
class ElectionProfile:
    """How patient an election is."""

    settle: float = 3.0
    """Seconds for which the view holds still before a peer that never had a leader in view claims. Above the time
    that a starting worker takes to meet the others; raising it delays only the first leader."""

    repeat: float = 1.0
    """Seconds between repetitions of a claim. Costs about two small messages per member each time; a lost claim
    is made good after one repetition."""

    @classmethod
    def local(cls) -> ElectionProfile:
        """Several processes on one machine."""
        return cls(settle=0.5, repeat=0.25)

    @classmethod
    def lan(cls) -> ElectionProfile:
        """The workers of one data centre."""
        return cls()

    @classmethod
    def wan(cls) -> ElectionProfile:
        """A cluster whose workers are themselves far apart."""
        return cls(settle=10.0, repeat=2.0)


class Claim(Message, tag=41, frozen=True, array_like=True):
    """The highest claim that the sender knows. An empty leader: it knows of nobody, but has seen the term."""

    term: Term
    leader: PeerOrNone


@dataclass(frozen=True, slots=True)
class LeaderChanged(Notice):
    """The cluster is led by `leader`, by a claim of `term`, as far as this peer knows."""

    leader: PeerId
    term: int
    told: bool = False
    """Whether it is this peer, and leads because another of the cluster said so: it need not know whom it leads yet."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a peer remembers of its former lives."""

    term: int = 0
    """The highest term that it has seen."""
    held: bool = False
    """Whether it has claimed that term itself."""

    def encode(self) -> bytes:
        """As it is persisted."""
        return bytes([self.held]) + self.term.to_bytes(8, "big")

    @classmethod
    def decode(cls, stored: bytes | None) -> Past:
        """Read what was persisted; a peer that has never stored anything begins at 0.

        Raises:
            StateError: the bytes are something else.
        """
        if stored is None:
            return cls()
        term = int.from_bytes(stored[1:], "big")
        if len(stored) != 9 or stored[0] > 1 or term >= _HIGHEST:
            raise StateError(f"stored term {stored!r} is not a flag and 8 bytes that hold a number below {_HIGHEST}")
        return cls(term, bool(stored[0]))


class Election:
    """One peer's part in the election of its cluster's leader."""

    def __init__(self, me: PeerId, past: Past, profile: ElectionProfile) -> None:
        self.me = me
        self.term = past.term
        """The highest term seen, in this life or a former one."""
        self._held = past.term if past.held else None
        """The term in which a former life of this peer led."""
        self._profile = profile
        self._leader = PeerId("")
        """Never this peer's own name but by a claim of this life: an office is of one life, a term is not."""
        self._attended = False
        """Whether the present leader is in the view."""
        self._orphaned = False
        """Whether the present leader was in the view, and went."""
        self._alive: tuple[PeerId, ...] = ()
        self._suspects: frozenset[PeerId] = frozenset()
        self._ranks: Mapping[PeerId, int] = {}
        self._still_since = 0.0
        self._repeat_at: float | None = None

    @property
    def leader(self) -> PeerId | None:
        """Who leads, as far as this peer knows; not necessarily in its view yet, or still."""
        return self._leader or None

    @property
    def in_office(self) -> bool:
        """Whether this peer leads."""
        return self._leader == self.me

    def view(
        self,
        alive: Sequence[PeerId],
        suspects: frozenset[PeerId],
        now: float,
        ranks: Mapping[PeerId, int] | None = None,
    ) -> Effects:
        """Take the cluster's membership: everyone alive or suspected, this peer included.

        Args:
            alive: the members; who failed or left is not among them.
            suspects: those of them that are suspected. They keep an office, but do not gain one.
            now: seconds.
            ranks: the lower the better, 0 for who is not named.
        """
        alive, known = tuple(alive), self._alive
        if alive != known:
            self._still_since = now
        self._alive, self._suspects, self._ranks = alive, suspects, ranks or {}
        attended = self._leader in alive
        self._orphaned = not attended and (self._orphaned or self._attended)
        self._attended = attended
        if self._repeat_at is None:
            self._repeat_at = now
        greetings = self._tell([peer for peer in alive if peer not in known]) if self.in_office else []
        return [*greetings, *self.handle_timeout(now)]

    def receive(self, sender: str, message: Message, now: float) -> Effects:
        """Take a `Claim`.

        Raises:
            RemoteProtocolError: it is something else.
        """
        if not isinstance(message, Claim):
            raise RemoteProtocolError(f"peer {sender} sent {type(message).__name__} to an election")
        before = self._knowledge()
        effects = self._learn(message.term, message.leader, now, told=True)
        if message.leader == self.me and not self._content():
            return [*effects, *self._claim(now, told=True)]
        if (message.term, message.leader) < before:
            effects.append(Send(sender, Claim(*self._knowledge())))
        return effects

    def seen(self, term: int, leader: PeerId, now: float, *, told: bool = False) -> Effects:
        """Take what the mesh remembers of this cluster: after all of its disks were lost, terms still go on.

        Args:
            term: the highest that is known.
            leader: whose.
            now: seconds.
            told: whether it is another worker of the cluster who says so.

        Raises:
            RemoteProtocolError: the term is out of range.
        """
        if not 0 <= term < _HIGHEST:
            raise RemoteProtocolError(f"the mesh says term {term} of leader {leader}: not in 0..{_HIGHEST}")
        return self._learn(term, leader, now, told=told)

    def hand_over(self, heir: PeerId) -> Effects:
        """Ask `heir` to lead instead of this peer. To be repeated: the message may be lost, and the heir die."""
        if not self.in_office or heir not in self._alive or heir == self.me:
            return []
        return [Send(heir, Claim(self.term + 1, heir))]

    def handle_timeout(self, now: float) -> Effects:
        """Claim when the view has been still for long enough, and repeat what is known."""
        if not self._alive:
            return []
        if self._settled_at() <= now and self._best() == self.me:
            return self._claim(now)
        if self._repeat_at is None or now < self._repeat_at:
            return []
        self._repeat_at = now + self._profile.repeat
        return self._tell(self._audience())

    def next_timeout(self) -> float | None:
        """When a repetition or a claim is due."""
        if not self._alive:
            return None
        claim_at = self._settled_at() if self._best() == self.me else inf
        repeat_at = self._repeat_at if any(peer != self.me for peer in self._audience()) else None
        return earliest([repeat_at, claim_at if claim_at < inf else None])

    def _learn(self, term: int, leader: PeerId, now: float, *, told: bool = False) -> Effects:
        """Adopt a claim that beats what is known."""
        if (term, leader) <= self._knowledge():
            return []
        if not leader:
            return self._outdated(term, now)
        persist = self._persist(term)
        if leader == self.me or (term == self._held and leader < self.me):
            return [*persist, *self._claim(now, told=told)]
        self._leader, self._attended, self._orphaned = leader, leader in self._alive, False
        self._still_since = now
        return [*persist, LeaderChanged(leader, term)]

    def _outdated(self, term: int, now: float) -> Effects:
        """Somebody remembers a later term, and not whose: our leader's claim would mean nothing to it."""
        if self.in_office:
            self.term = term
            return self._claim(now)
        return []

    def _claim(self, now: float, *, told: bool = False) -> Effects:
        persist = self._persist(self.term + 1, held=True)
        self._leader, self._attended, self._orphaned = self.me, True, False
        self._repeat_at = now + self._profile.repeat
        return [*persist, LeaderChanged(self.me, self.term, told), *self._tell(self._alive)]

    def _persist(self, term: int, *, held: bool = False) -> Effects:
        if term == self.term:
            return []
        self.term = term
        return [Persist(TERM_KEY, Past(term, held).encode())]

    def _knowledge(self) -> tuple[int, PeerId]:
        return (self.term, self._leader)

    def _content(self) -> bool:
        return self.in_office or self._leader in self._alive

    def _best(self) -> PeerId | None:
        fit = [peer for peer in self._alive if peer == self.me or peer not in self._suspects]
        return min(fit, key=lambda peer: (self._ranks.get(peer, 0), peer), default=None)

    def _settled_at(self) -> float:
        """From when on the best peer may claim: never, at once, or when the view has been still for long enough."""
        if self._content():
            return inf
        return -inf if self._orphaned else self._still_since + self._profile.settle

    def _audience(self) -> Sequence[PeerId]:
        return (self._leader,) if self._content() and not self.in_office else self._alive

    def _tell(self, peers: Sequence[PeerId]) -> Effects:
        claim = Claim(*self._knowledge())
        return [Send(peer, claim) for peer in peers if peer != self.me]
