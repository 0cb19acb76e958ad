"""What peers say to each other to agree, and to run rounds.

Two groups share one numbering. The first is Paxos's (Lamport, "Paxos Made Simple", 2001), one decree per
slot, plus catching up. The second is about rounds; those messages are hints to the coordinator, may be lost
or repeated at will, and can never make two peers disagree. Each of the second group carries its sender's
newest `slot`, so that any exchange also tells who is behind.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from ictp2p.machine import Message
from ictp2p.sync.values import Cluster, Count, Digest, Lineage, Note, Peers, Reason, Spec, StateRef, Value
from ictp2p.types import PeerId

Slot = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
"""Number of a decision; -1 stands for knowing none."""


class Ballot(NamedTuple):
    """Number of a proposal within a slot. No two proposals of different values share one."""

    number: Count
    proposer: PeerId


NO_BALLOT = Ballot(0, PeerId(""))
"""Below every ballot that a proposer can use."""

MOST_SLACK = 86400.0
"""Seconds of slack that a READY may say at most."""
HIGHEST = 2**62
"""Greatest number of a ballot that is taken from others: what is bid above it can still be written and read."""


class Prepare(Message, tag=1, frozen=True, array_like=True):
    """Phase 1: promise not to accept less than `ballot`, and say what you accepted."""

    slot: Count
    lineage: Lineage
    ballot: Ballot


class Promise(Message, tag=2, frozen=True, array_like=True):
    """Answer to `Prepare`: promised; `accepted` is `NO_BALLOT` where nothing was accepted."""

    slot: Count
    ballot: Ballot
    accepted: Ballot
    value: Value | None


class Accept(Message, tag=3, frozen=True, array_like=True):
    """Phase 2: accept `value` under `ballot`, which the sender has done. Who does not vote is shown it."""

    slot: Count
    ballot: Ballot
    value: Value


class Accepted(Message, tag=4, frozen=True, array_like=True):
    """Answer to `Accept`, told to all whom the decision concerns: it is accepted, and on disk."""

    slot: Count
    ballot: Ballot


class Refused(Message, tag=5, frozen=True, array_like=True):
    """Answer to `Prepare` or `Accept`: a higher ballot was promised to somebody else."""

    slot: Count
    ballot: Ballot
    promised: Ballot


class Decision(Message, tag=6, frozen=True, array_like=True):
    """`value` is decided in `slot`."""

    slot: Count
    value: Value
    oldest: Count
    """Oldest slot whose value the sender still has: a receiver that needs an older one must jump."""


class Chosen(Message, tag=8, frozen=True, array_like=True):
    """What the receiver was asked to accept under `ballot`, or shown with it, is decided in `slot`."""

    slot: Count
    ballot: Ballot


class Greet(Message, tag=7, frozen=True, array_like=True):
    """The sender's newest decision is `slot`. Whoever knows newer ones answers with them."""

    slot: Slot
    lineage: Annotated[bytes, msgspec.Meta(max_length=8)]
    """Empty where the sender knows no chain yet."""


class Ready(Message, tag=10, frozen=True, array_like=True):
    """The sender, leader of `cluster`, has a contribution for `round`. Stands until withdrawn or committed."""

    slot: Slot
    round: Count
    cluster: Cluster
    term: Count
    weight: float
    spec: Spec
    base: StateRef | None
    """State that the contribution starts from; its digest must be the agreed one. None if there is none."""
    note: Note = b""
    """For all other participants; see `Participant`."""
    slack: Annotated[float, msgspec.Meta(ge=0.0, le=MOST_SLACK)] = 0.0
    """Seconds by which the round may begin later than this was first said, and nobody in the cluster waits for it."""
    newcomer: bool = False
    """Whether the cluster has been in no round yet, and goes to whatever the others are at."""


class Withdraw(Message, tag=11, frozen=True, array_like=True):
    """The sender's `Ready` stands no longer."""

    slot: Slot
    cluster: Cluster
    term: Count


class Vote(Message, tag=12, frozen=True, array_like=True):
    """The sender holds the whole result of this attempt, and it has this digest."""

    slot: Slot
    round: Count
    attempt: Count
    digest: Annotated[bytes, msgspec.Meta(min_length=1, max_length=64)]


class Failed(Message, tag=13, frozen=True, array_like=True):
    """The sender cannot finish this attempt."""

    slot: Slot
    round: Count
    attempt: Count
    reason: Reason
    suspects: Peers
    """Peers on which it failed."""
    standing: bool
    """Whether its contribution still stands for the next attempt."""


class Rejected(Message, tag=14, frozen=True, array_like=True):
    """From the coordinator: your spec differs from that of the others, the round goes on without you."""

    slot: Slot
    round: Count
    reason: Reason
    spec: Spec
    """Which one is refused: it means nothing to who stands READY for another by now."""


class Leave(Message, tag=15, frozen=True, array_like=True):
    """The sender wants to exit: it should vote no longer, and not be asked to."""

    slot: Slot


class Excused(Message, tag=19, frozen=True, array_like=True):
    """Answer of a voter to `Leave`: the receiver does not vote, which the sender has saved.

    It says besides that the sender, whenever it coordinates, will not make the receiver a voter again.
    """

    slot: Slot


class Offer(Message, tag=16, frozen=True, array_like=True):
    """While there is no agreed state: the sender has one to begin with."""

    slot: Slot
    digest: Digest


class Inquire(Message, tag=17, frozen=True, array_like=True):
    """From the coordinator, which knows of nobody who holds the agreed state: what do you hold?"""

    slot: Slot


class Holding(Message, tag=18, frozen=True, array_like=True):
    """Answer to `Inquire`: the global state that the sender has in memory and would provide."""

    slot: Slot
    version: Count
    """0: a state of its own, to begin anew with if there is none else."""
    digest: Digest
    """Empty where it holds none."""
    begun: bool = True
    """Whether its worker trains, or is ready to: before, it may yet bring a checkpoint."""
    seen: Count = 0
    """From which version on it was there when they were agreed on."""


PaxosMessage = Prepare | Promise | Accept | Accepted | Refused | Decision | Chosen | Greet
RoundMessage = Ready | Withdraw | Vote | Failed | Rejected | Leave | Excused | Offer | Inquire | Holding
SyncMessage = PaxosMessage | RoundMessage
"""Every message of this room, for the decoder."""
