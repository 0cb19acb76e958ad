"""What the stack asks of its driver, in order, and what it tells the training side."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ictp2p.errors import PeerFailed
from ictp2p.machine import Notice, Persist
from ictp2p.types import Address, PeerId


class Transmit(msgspec.Struct, frozen=True):
    """Write `frame` to the open connection to `peer`; drop it if there is none."""

    peer: PeerId
    frame: bytes


@dataclass(frozen=True, slots=True)
class Dial:
    """Try to open a connection to `peer` at `address`; answer with `opened` or `dial_failed`."""

    peer: PeerId
    address: Address


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close the connection to `peer`."""

    peer: PeerId
    gently: bool = False
    """Whether what was sent before is to arrive first."""


Command = Transmit | Dial | Hangup | Persist | Notice


@dataclass(frozen=True, slots=True)
class MemberChanged(Notice):
    """A worker of this cluster (`scope` members) or a cluster (`scope` mesh) is now `status`."""

    scope: str
    member: str
    status: str


@dataclass(frozen=True, slots=True)
class MeshLearned(Notice):
    """The first view of the mesh arrived: this peer is in."""


@dataclass(frozen=True, slots=True)
class Resigned(Notice):
    """After `Core.resign`: whoever leads this cluster now is another, or nobody is left of it but this peer."""


@dataclass(frozen=True, slots=True)
class Crowded(Notice):
    """This cluster has more workers than its card has room for: the mesh knows the first `listed` of `workers`."""

    workers: int
    listed: int


@dataclass(frozen=True, slots=True)
class MateUnmet(Notice):
    """Another worker of this cluster is there, as others say, and for so many seconds neither reached the other."""

    mate: PeerId
    seconds: float


@dataclass(frozen=True, slots=True)
class StatusAsked(Notice):
    """`observer` wants this peer's status; answer with `Core.tell_status`."""

    observer: PeerId


@dataclass(frozen=True, slots=True)
class BulkInvited(Notice):
    """`peer` cannot dial us and waits for us to dial it a bulk connection, showing `ticket`."""

    peer: PeerId
    ticket: bytes


@dataclass(frozen=True, slots=True)
class Restarted(Notice):
    """`peer` is another process now: who lost its power has closed nothing, and what was open leads to nobody."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class IdentityTaken(Notice):
    """Another process speaks in this peer's name, from `address`, and knows more."""

    address: str


@dataclass(frozen=True, slots=True)
class Failed(Notice):
    """This peer has stopped by itself, and will do nothing more."""

    error: PeerFailed


@dataclass(frozen=True, slots=True)
class Violated(Notice):
    """A packet that came over the connection to `bearer` is what no peer of this version sends; `text` says why.

    Where it is this peer that went wrong, over a packet of somebody else, it is named as both. Told at most once a
    minute of each bearer.
    """

    bearer: PeerId
    source: PeerId
    """Whom the packet names as its sender. If that is not the bearer, nobody has proven it."""
    text: str
