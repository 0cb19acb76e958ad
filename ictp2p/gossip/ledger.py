"""What this member believes, why, and what it tells others about it.

The ledger joins three things that must change together: the table of members, this member's own record, and the
queue of news to pass on. Every piece of news goes through here, whichever message it came on:

- a *record* is believed if it is newer and its signature holds (checked last: it is the costly part);
- an *accusation* of another is believed for the incarnation that it names. If that is one whose record we lack, the
  sender is asked for the record; its verdict comes with it;
- an accusation of *ourselves* is refuted, by the next incarnation. If it names one that we never had, the sender must
  show the signed record first: otherwise anybody could push our incarnation to its limit.

A record of ourselves that is newer than our own was signed by our own key or by another. Each life of a peer begins
above all incarnations of those before it, so our own key has signed it in another process: one that has a copy of our
data folder, or had it before an old copy was put back, and promised in our name what we do not know. That cannot be
mended, only reported (`Doubled`): of two processes the one with the older record stops, as the holder of an older
fencing token does. Another key is that of a cluster's new leader, who speaks for it now. To outbid it would start a
contest without end between two leaders who each believe in themselves; it is reported (`Displaced`) and the election
decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ictp2p.errors import LocalProtocolError
from ictp2p.gossip import antientropy
from ictp2p.gossip.broadcast import BroadcastQueue, transmit_limit
from ictp2p.gossip.health import LocalHealth
from ictp2p.gossip.messages import (
    MAX_INCARNATION,
    MAX_PAYLOAD,
    Dead,
    Delta,
    Digest,
    Displaced,
    Doubled,
    Entry,
    Gossip,
    News,
    Record,
    Sight,
    Status,
    Suspect,
)
from ictp2p.gossip.profile import SwimProfile
from ictp2p.gossip.suspicion import Suspicion
from ictp2p.gossip.table import Table
from ictp2p.machine import Effects, Send

_DELTA_BYTES = 256 * 1024
"""Payload bytes per `Delta`, well below a control frame's limit."""


class Ledger:
    """Beliefs and news of the member `me`."""

    def __init__(
        self,
        me: str,
        profile: SwimProfile,
        health: LocalHealth,
        seal: Callable[[Record], Record],
        verify: Callable[[Record], bool],
    ) -> None:
        self.table = Table(profile)
        self.queue = BroadcastQueue()
        self.own: Record | None = None
        self.news_since = 0.0
        """When the queue last stopped being empty, or began to press: what is sent earlier than planned is not late."""
        self._me = me
        self._profile = profile
        self._health = health
        self._seal = seal
        self._verify = verify
        self._past = -1
        self._successor: Record | None = None

    def others(self) -> list[str]:
        """Return who is there beside ourselves, suspects included; sorted."""
        return [name for name in self.table.present() if name != self._me]

    # --- our own record

    def begin(self, payload: bytes, incarnation: int, now: float) -> None:
        """Speak for ourselves, in a greater incarnation than any that was seen of us."""
        self._remember_own()
        for name in self.table.present():
            if self.table.members[name].status is Status.SUSPECT and name not in self.table.suspicions:
                size = len(self.table.members) + 1
                self.table.suspicions[name] = Suspicion(self._me, size, self._profile, now)
        self._successor = None
        self.declare(max(incarnation, self._past + 1), 0, payload, now)

    def end(self) -> None:
        """Fall silent, and keep what is known of others."""
        self._remember_own()
        self.table.drop(self._me)
        self.table.suspicions.clear()
        self.queue.clear()
        self.own = None

    def declare(self, incarnation: int, sequence: int, payload: bytes, now: float, *, detail: bool = False) -> Record:
        """Sign, hold and spread a new record of ourselves; if only a `detail` is new, less often.

        Raises:
            LocalProtocolError: the payload or the incarnation is out of the wire's range.
        """
        if len(payload) > MAX_PAYLOAD:
            raise LocalProtocolError(f"record of {self._me}: payload of {len(payload)} bytes exceeds {MAX_PAYLOAD}")
        if not 0 <= incarnation <= MAX_INCARNATION:
            raise LocalProtocolError(f"record of {self._me}: incarnation {incarnation} is out of range")
        self.own = self._seal(Record(self._me, incarnation, sequence, payload, detail=detail))
        self.table.put(self.own, Status.ALIVE, now)
        self._spread(self.own, now)
        return self.own

    # --- news

    def news(self, to: str | None = None) -> tuple[News, ...]:
        """Return what rides on the next message; first, what `to` must know to clear itself."""
        limit = transmit_limit(len(self.table.members), self._profile.retransmit_mult)
        taken = self.queue.take(self._profile.packet_bytes, limit)
        accusation = self._accusation(to)
        return taken if accusation is None else (accusation, *taken)

    def hear(self, news: Iterable[News], sender: str, now: float) -> Effects:
        """Take the news that came on a message."""
        effects: Effects = []
        for piece in news:
            effects += self.learn(piece, now) if isinstance(piece, Record) else self._hear_verdict(piece, sender, now)
        return effects

    def learn(self, record: Record, now: float) -> Effects:
        """Take a record, if it is newer and genuine."""
        if record.member == self._me:
            return self._meet_own(record)
        if not self.table.is_newer(record) or (record.left and record.member not in self.table.members):
            return []
        if not self._verify(record):
            return []
        self._spread(record, now)
        return self.table.accept(record, now)

    def suspect(self, member: str, incarnation: int, origin: str, now: float) -> Effects:
        """Take an accusation of another member, and pass it on if it is new."""
        notices = self.table.suspect(member, incarnation, origin, now)
        if notices is None:
            return []
        self._spread(Suspect(member, incarnation, origin), now)
        return notices

    def bury(self, member: str, incarnation: int, origin: str, now: float) -> Effects:
        """Take a verdict of death over another member, and pass it on if it is new."""
        notices = self.table.bury(member, incarnation, now)
        if notices is None:
            return []
        self._spread(Dead(member, incarnation, origin), now)
        return notices

    # --- anti-entropy

    def digest(self) -> Digest:
        """Return our view without its payloads."""
        return Digest(antientropy.digest(self.table.members))

    def answer(self, digest: Digest, sender: str, now: float) -> Effects:
        """Merge the digest of `sender`, and give and ask what differs."""
        difference = antientropy.compare(self.table.members, digest.entries)
        effects = self.merge(difference.accused, sender, now)
        return effects + _deltas(sender, difference.records, difference.verdicts, difference.wanted)

    def give(self, sender: str, wanted: Iterable[str]) -> Effects:
        """Send the records that `sender` asked for, with our verdicts on their members."""
        members = self.table.members
        known = [members[name] for name in wanted if name in members]
        verdicts = tuple(antientropy.entry(m) for m in known if antientropy.verdict(m))
        return _deltas(sender, [m.record for m in known], verdicts, ())

    def merge(self, lines: Iterable[Entry], sender: str | None, now: float) -> Effects:
        """Take another's verdicts as suspicions, never as deaths: the accused must be able to answer.

        A whole view has lines of the living, too: that we are taken for one of them is no accusation.
        """
        effects: Effects = []
        for line in lines:
            if line.member == self._me and line.status is not Status.ALIVE:
                effects += self._refute(line.incarnation, sender, now)
            elif line.status in (Status.SUSPECT, Status.DEAD):
                effects += self.suspect(line.member, line.incarnation, self._me, now)
        return effects

    def mirror(self, sight: Sight, now: float) -> Effects:
        """Take one member's state as another holds it, unless we know a newer record."""
        record, members = sight.record, self.table.members
        known = members.get(record.member)
        newer = self.table.is_newer(record)
        if (known is not None and known.record.version > record.version) or (newer and not self._verify(record)):
            return []
        if record.member == self._me:
            self._past = max(self._past, record.incarnation)
            return []
        status = Status.LEFT if record.left else min(sight.status, Status.DEAD)
        return self.table.put(record if newer or known is None else known.record, status, now)

    # --- about ourselves

    def _hear_verdict(self, piece: Suspect | Dead, sender: str, now: float) -> Effects:
        if piece.member == self._me:
            return self._refute(piece.incarnation, sender, now)
        known = self.table.members.get(piece.member)
        if known is None or piece.incarnation > known.record.incarnation:
            return [Send(sender, Delta(wanted=(piece.member,)))]
        act = self.suspect if isinstance(piece, Suspect) else self.bury
        return act(piece.member, piece.incarnation, piece.origin, now)

    def _refute(self, incarnation: int, sender: str | None, now: float) -> Effects:
        own = self.own
        if own is None:
            return []
        if incarnation > own.incarnation:
            return [] if sender is None else [Send(sender, self.digest())]
        if incarnation == own.incarnation:
            self._health.note(1)
            own = self.declare(own.incarnation + 1, own.sequence, own.payload, now)
        return [] if sender is None else [Send(sender, Gossip((own,)))]

    def _meet_own(self, record: Record) -> Effects:
        own, successor = self.own, self._successor
        if own is None or not _outranks(record, own):
            return []
        if (successor is not None and record.version <= successor.version) or not self._verify(record):
            return []
        if record.key == own.key:
            return [Doubled(record)]
        self._successor = record
        return [Displaced(record)]

    def _remember_own(self) -> None:
        if self.own is not None:
            self._past = max(self._past, self.own.incarnation)

    def _accusation(self, member: str | None) -> News | None:
        known = None if member is None else self.table.members.get(member)
        if known is None or not antientropy.verdict(known):
            return None
        kind = Suspect if known.status is Status.SUSPECT else Dead
        return kind(known.record.member, known.record.incarnation, self._me)

    def _spread(self, news: News, now: float) -> None:
        empty, pressed = not self.queue, self.queue.presses
        self.queue.put(news)
        if empty or (self.queue.presses and not pressed):
            self.news_since = now


def _outranks(record: Record, own: Record) -> bool:
    """Whether a record is newer than ours; of two with one version only one process can go on, so one has to be."""
    if record.version == own.version and record.key == own.key:
        return record.payload > own.payload
    return record.version > own.version


def _deltas(to: str, records: Iterable[Record], verdicts: tuple[Entry, ...], wanted: tuple[str, ...]) -> Effects:
    """Records first, in several messages if they are many; what is said about them in the last."""
    effects: Effects = []
    batches = list(antientropy.batches(list(records), _DELTA_BYTES))
    for batch in batches[:-1]:
        effects.append(Send(to, Delta(batch)))
    last = batches[-1] if batches else ()
    if last or verdicts or wanted:
        effects.append(Send(to, Delta(last, verdicts, wanted)))
    return effects
