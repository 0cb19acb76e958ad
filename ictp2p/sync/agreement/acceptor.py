"""The part of a peer that must never forget: its newest decision, its promise, its acceptance.

Paxos is safe as long as an acceptor keeps its word across crashes; an acceptor with amnesia lets two values be
decided. So every change here returns a `Persist`, which is on disk before the answer that it backs leaves. One
blob holds all, written whole, so that a crash between two writes cannot mix an old promise with a new slot. So does a
question that is asked again, and answered again: that its `Persist` came to the disk the first time is not for this
machine to know, and if it did, nothing is written (`runtime.driver`).

Only the slot after the newest known decision has acceptor state. Earlier slots are decided, and whoever asks
about them is told the decision; later ones have acceptors that this peer cannot know yet.

A peer whose disk is lost must come back under another id (ids live on that disk) and is then no voter.
"""

from __future__ import annotations

import msgspec

from ictp2p.errors import StateError
from ictp2p.machine import Persist
from ictp2p.sync.messages import NO_BALLOT, Ballot
from ictp2p.sync.values import Value
from ictp2p.types import PeerId
from ictp2p.wire import MALFORMED

KEY = "acceptor"
"""Name of the blob among what the peer persists."""
_FORMAT = 1


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    format: int
    me: PeerId
    slot: int
    tip: Value
    promised: Ballot
    accepted: Ballot
    value: Value | None


class Acceptor:
    """Newest decision, and promise and acceptance in the slot after it.

    Raises:
        StateError: `stored` cannot be read, or belongs to another peer.
    """

    def __init__(self, me: PeerId, stored: bytes | None) -> None:
        self.me = me
        self.slot = -1
        self.tip: Value | None = None
        self.promised = NO_BALLOT
        self.accepted = NO_BALLOT
        self.value: Value | None = None
        if stored is not None:
            self._load(stored)

    @property
    def voters(self) -> tuple[PeerId, ...]:
        """Acceptors of the next slot."""
        return self.tip.voters if self.tip is not None else ()

    @property
    def untouched(self) -> bool:
        """Whether nothing was promised or accepted in the next slot."""
        return self.promised == NO_BALLOT

    def promise(self, ballot: Ballot) -> Persist | None:
        """Promise to accept nothing below `ballot`; None if a higher one was promised."""
        if ballot < self.promised:
            return None
        self.promised = ballot
        return self.persist()

    def accept(self, ballot: Ballot, value: Value) -> Persist | None:
        """Accept `value` under `ballot`; None if a higher ballot was promised.

        Under the ballot of what was accepted last there must be no other value: see `differs`.
        """
        if ballot < self.promised:
            return None
        assert not self.differs(ballot, value)
        self.promised = self.accepted = ballot
        self.value = value
        return self.persist()

    def differs(self, ballot: Ballot, value: Value) -> bool:
        """Whether another value than `value` was accepted under this very ballot: its proposer has broken its word."""
        return ballot == self.accepted and value != self.value

    def learn(self, slot: int, value: Value) -> None:
        """Go on to the slot after `slot`. Need not be persisted: a decision can be learnt again."""
        self.slot, self.tip = slot, value
        self.promised = self.accepted = NO_BALLOT
        self.value = None

    def persist(self) -> Persist:
        """Everything, for the disk."""
        assert self.tip is not None
        stored = _Stored(_FORMAT, self.me, self.slot, self.tip, self.promised, self.accepted, self.value)
        return Persist(KEY, msgspec.msgpack.encode(stored))

    def _load(self, stored: bytes) -> None:
        try:
            read = msgspec.msgpack.decode(stored, type=_Stored)
        except MALFORMED as error:
            raise StateError(f"the {KEY} record ({len(stored)} bytes) cannot be read: {error}") from error
        if read.format != _FORMAT:
            raise StateError(f"the {KEY} record is of format {read.format}, this is format {_FORMAT}")
        if read.me != self.me:
            raise StateError(f"the {KEY} record is that of peer {read.me}, not of {self.me}")
        self.slot, self.tip = read.slot, read.tip
        self.promised, self.accepted, self.value = read.promised, read.accepted, read.value
