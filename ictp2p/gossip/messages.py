"""What members of a group say to each other about each other, and what they tell the floor above.

Three kinds of *news* travel. A `Record` is a member's own word about itself, signed by it: only the owner can raise
its incarnation, because only the owner can sign. `Suspect` and `Dead` are other members' word, name the incarnation
that they accuse, and are void for any other. News rides on everything: on probes, on their answers, and in a
`Gossip` of its own when there is much of it (Das, Gupta, Motivala: SWIM, DSN 2002, section 4.1).

A graceful leave needs no further kind. It is a record with the last sequence number there is, so that nothing can be
newer within that incarnation: the ordinary order of records makes it final, and the ordinary signature covers it.

Bounds stand in the types, and decoding checks them: a length, a count or a number that is out of range never reaches
the machine. Tags and field orders are part of the wire: append only.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from ictp2p.machine import Message, Notice

MAX_PAYLOAD = 64 * 1024
"""Longest payload of a record, bytes: a cluster of five hundred workers with its link table fits."""

MAX_MEMBERS = 4096
"""Most members, or pieces of news, in one message: far above any mesh, far below what could hurt to hold."""

LAST_SEQUENCE = 2**63 - 1
"""The sequence number of a record by which its owner leaves."""

MAX_INCARNATION = 2**62
"""Highest incarnation on the wire, so that an owner can always go one higher in 63 bits."""

MemberName = Annotated[str, Meta(min_length=1, max_length=128)]
Incarnation = Annotated[int, Meta(ge=0, le=MAX_INCARNATION)]
Counter = Annotated[int, Meta(ge=0, le=LAST_SEQUENCE)]
Names = Annotated[tuple[MemberName, ...], Meta(max_length=MAX_MEMBERS)]


class Status(enum.IntEnum):
    """What a view holds of a member; a greater one beats a smaller one within an incarnation."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3

    @property
    def present(self) -> bool:
        """Whether the member counts as one of the group: alive, or suspected but not yet given up."""
        return self <= Status.SUSPECT


class Record(Message, tag=1, frozen=True, array_like=True):
    """A member's own word about itself. The newer of two has the greater (incarnation, sequence)."""

    member: MemberName
    incarnation: Incarnation
    """Raised by the owner alone: at a start, and to refute an accusation."""
    sequence: Counter
    """Version of the payload within the incarnation; `LAST_SEQUENCE` means that the member has left."""
    payload: Annotated[bytes, Meta(max_length=MAX_PAYLOAD)]
    """What the floor above publishes about the member; opaque here."""
    key: Annotated[bytes, Meta(max_length=64)] = b""
    """The signer's public key."""
    signature: Annotated[bytes, Meta(max_length=128)] = b""
    detail: bool = False
    """Whether nobody waits for what is new in it: it is passed on less often. Not signed, as it proves nothing."""

    @property
    def version(self) -> tuple[int, int]:
        """What orders the records of one member."""
        return self.incarnation, self.sequence

    @property
    def left(self) -> bool:
        """Whether this is the member's goodbye."""
        return self.sequence == LAST_SEQUENCE

    def statement(self, scope: str) -> bytes:
        """Return the bytes that the owner signs: every field but key and signature, bound to `scope`."""
        return msgspec.msgpack.encode((scope, self.member, self.incarnation, self.sequence, self.payload))


class Suspect(Message, tag=2, frozen=True, array_like=True):
    """`origin` could not reach `member` in `incarnation`; distinct origins confirm each other."""

    member: MemberName
    incarnation: Incarnation
    origin: MemberName


class Dead(Message, tag=3, frozen=True, array_like=True):
    """`origin` waited out its suspicion of `member` in `incarnation`, and nothing refuted it."""

    member: MemberName
    incarnation: Incarnation
    origin: MemberName


News = Record | Suspect | Dead
NewsList = Annotated[tuple[News, ...], Meta(max_length=MAX_MEMBERS)]


class Ping(Message, tag=4, frozen=True, array_like=True):
    """Are you there? Answered by an `Ack` of the same number."""

    number: Counter
    news: NewsList = ()


class Ack(Message, tag=5, frozen=True, array_like=True):
    """The answer to a `Ping`, or to a `PingRequest` whose target answered."""

    number: Counter
    news: NewsList = ()


class Nack(Message, tag=6, frozen=True, array_like=True):
    """The target of `PingRequest` is silent, but I heard you: the fault is not in your own ears."""

    number: Counter


class PingRequest(Message, tag=7, frozen=True, array_like=True):
    """Ping `target` for me, and pass on its answer."""

    number: Counter
    target: MemberName
    news: NewsList = ()


class Gossip(Message, tag=8, frozen=True, array_like=True):
    """News alone."""

    news: NewsList


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One line of a digest: which record of a member the sender holds, and what it thinks of the member."""

    member: MemberName
    incarnation: Incarnation
    sequence: Counter
    status: Status

    @property
    def version(self) -> tuple[int, int]:
        """What orders the records of one member."""
        return self.incarnation, self.sequence


Entries = Annotated[tuple[Entry, ...], Meta(max_length=MAX_MEMBERS)]


class Digest(Message, tag=9, frozen=True, array_like=True):
    """The sender's whole view, without the payloads."""

    entries: Entries


class Delta(Message, tag=10, frozen=True, array_like=True):
    """The answer to a `Digest`, or to a `Delta` that wants something: only what the other side lacks."""

    records: Annotated[tuple[Record, ...], Meta(max_length=MAX_MEMBERS)] = ()
    verdicts: Entries = ()
    """Members that the sender suspects, or holds for dead."""
    wanted: Names = ()
    """Members whose records the sender would like to have."""


class Sight(msgspec.Struct, frozen=True, array_like=True):
    """One member in a `SwimState`."""

    record: Record
    status: Status


class SwimState(Message, tag=11, frozen=True, array_like=True):
    """A whole view with its payloads, for a passive copy."""

    sights: Annotated[tuple[Sight, ...], Meta(max_length=MAX_MEMBERS)]


SwimMessage = Ping | Ack | Nack | PingRequest | Gossip | Digest | Delta | SwimState
"""What the decoder accepts on a membership channel."""


@dataclass(frozen=True, slots=True)
class MemberJoined(Notice):
    """A member is there that was not: new, or back from the dead."""

    member: str
    record: Record


@dataclass(frozen=True, slots=True)
class MemberUpdated(Notice):
    """A member that is there has a newer record (a greater incarnation may mean that it restarted)."""

    member: str
    record: Record


@dataclass(frozen=True, slots=True)
class MemberSuspected(Notice):
    """A member does not answer, or its connection broke. It may still refute this."""

    member: str


@dataclass(frozen=True, slots=True)
class MemberCleared(Notice):
    """A suspected member refuted the suspicion."""

    member: str


@dataclass(frozen=True, slots=True)
class MemberFailed(Notice):
    """A member is held for dead."""

    member: str


@dataclass(frozen=True, slots=True)
class MemberLeft(Notice):
    """A member said goodbye."""

    member: str


@dataclass(frozen=True, slots=True)
class Doubled(Notice):
    """Our own key has signed a newer record than ours: another process has our identity."""

    record: Record


@dataclass(frozen=True, slots=True)
class Displaced(Notice):
    """Another key speaks for this very member with a newer record: it has a successor, which is not outbid."""

    record: Record
