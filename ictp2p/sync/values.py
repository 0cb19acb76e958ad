"""The values that the mesh decides; which one may follow another says `validity`.

The chain of decisions is the only thing that cannot be split-brained, so everything that must not be is in
it: who may vote next, which state is the agreed one, which round is open and how it ended. Each value repeats
the whole of that (lineage, voters, state, round), so that the newest value alone is enough to go on from, and
a peer that was away for a week needs one message instead of a log.

Acceptors of slot *s* are the voters decided in slot *s-1*: dynamic linear voting (Jajodia and Mutchler, TODS
1990). A quorum is a majority of them, or exactly half if that half holds the distinguished voter. Any two
quorums of one set then intersect, also for even sizes, and a mesh of four survives the loss of any two
that are not the distinguished one. The distinguished voter is the first in coordinator order (the eldest):
growing from one voter to two then never makes the first one's life depend on the second's.

`author` is who first proposed the value. It matters to agreement: see `ictp2p.sync.agreement.proposer`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Literal

import msgspec

from ictp2p.types import ClusterId, PeerId, PeerName
from ictp2p.wire import MAX_CONTROL_BODY

MAX_VOTERS = 7
"""Most voters that a value may name. Seven survive three deaths; more only make each decision slower."""
LOOKS_ON = 1e-30
"""Weight of a contribution that holds nothing: positive, as it must be, and lost in any sum with a real one."""
ATTENDS = 1e-33
"""Weight of one that holds nothing and begins nothing: it goes along with a round that others have a reason for."""
MAX_PARTICIPANTS = 1024
"""Most clusters in one round."""
MAX_NOTE = 1024
"""Most bytes of a participant's note."""
MAX_PLAN = 256 * 1024
"""Most bytes of a plan."""
MAX_VALUE = MAX_CONTROL_BODY - 1024
"""Most bytes of a value: it is sent in one frame, of which ballots, slots and addresses take the rest. Every other kind
than `Open` is shorter whatever it holds."""
MOST_SPREAD = 1e6
"""Most median absolute deviations that a round may wait for stragglers."""
REMEMBERED = 64
"""For so many versions a state says who contributed to it: more than a leader that slept is usually behind."""
LINEAGE_BYTES = 8
"""Length of a lineage: which founding of the mesh a chain goes back to."""

Grouping = Literal["all", "pairs", "modules"]
"""Over whom a round averages: `all`, each over one of the `pairs` that are drawn (`sync.rounds.pairs`), or each of the
`modules` over those that hold it (`sync.rounds.modules`)."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Cluster = Annotated[ClusterId, msgspec.Meta(min_length=1, max_length=63)]
Digest = Annotated[bytes, msgspec.Meta(max_length=64)]
Note = Annotated[bytes, msgspec.Meta(max_length=MAX_NOTE)]
Reason = Annotated[str, msgspec.Meta(max_length=1024)]
Peers = Annotated[tuple[PeerName, ...], msgspec.Meta(max_length=MAX_PARTICIPANTS)]
Lineage = Annotated[bytes, msgspec.Meta(min_length=LINEAGE_BYTES, max_length=LINEAGE_BYTES)]
Credits = Annotated[tuple[tuple[Cluster, Count], ...], msgspec.Meta(max_length=MAX_PARTICIPANTS)]
Earlier = Annotated[tuple[Count, ...], msgspec.Meta(max_length=MAX_PARTICIPANTS)]
Voting = Annotated[tuple[PeerName, ...], msgspec.Meta(min_length=1, max_length=MAX_VOTERS)]
Camp = Annotated[tuple[Cluster, ...], msgspec.Meta(min_length=1, max_length=MAX_PARTICIPANTS)]
Camps = Annotated[tuple[Camp, ...], msgspec.Meta(max_length=MAX_PARTICIPANTS)]


class StateRef(msgspec.Struct, frozen=True, array_like=True):
    """Which global state is the agreed one. Version 0 is the time before there was any."""

    version: Count
    digest: Digest
    """Root digest of the state's bytes; empty at version 0."""
    providers: Peers
    """Peers that held these bytes when it was decided."""
    credits: Credits = ()
    """Per cluster, by name, the newest of the last `REMEMBERED` versions that holds a contribution of it. See
    `contributed`."""
    earlier: Earlier = ()
    """For each of these, which versions before that one do, too: bit i is the one i + 1 before. Empty: any may."""


class Participant(msgspec.Struct, frozen=True, array_like=True):
    """One cluster's part in a round: bound to one leader and term, so that no other may speak for it."""

    cluster: Cluster
    leader: PeerName
    term: Count
    weight: float
    """Share in the average, in any unit common to all (tokens, say). Finite and positive."""
    note: Note = b""
    """What the cluster has to say to all others, opaque here; agreed on with the round."""


SYNC_STATE = "sync_state"
"""Name of the round of the call that shares a state: no policy has it."""
FIRST_ROUND = " (first round)"
"""Ends the name of the barrier before a round that is cut by who takes part."""


class Spec(msgspec.Struct, frozen=True, array_like=True):
    """What is reduced. Every participant of a round must bring the same."""

    kind: Literal["sync", "reduce", "broadcast", "barrier", "gather", "scatter", "collect"]
    """`sync` advances the global state when it commits; the others leave it as it is."""
    name: Annotated[str, msgspec.Meta(max_length=256)]
    dtype: Annotated[str, msgspec.Meta(max_length=32)]
    elements: Count
    op: Literal["avg", "sum"]
    codec: Annotated[str, msgspec.Meta(max_length=64)]
    config: Annotated[bytes, msgspec.Meta(max_length=4096)] = b""
    """Digest of whatever else must be equal (policy, outer optimizer, model manifest)."""
    quorum: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    """Share of the clusters worth waiting for that is enough to begin with, once the arrivals' own deadline is past."""
    spread: Annotated[float, msgspec.Meta(ge=0, le=MOST_SPREAD)] = 0.0
    """How many median absolute deviations after the median arrival that deadline is."""
    grouping: Grouping = "all"
    """Over whom is averaged."""

    @property
    def trains(self) -> bool:
        """Whether it is a round of a policy, and not of a call."""
        return self.kind == "sync" and self.name != SYNC_STATE

    def waits_for(self, other: Spec) -> bool:
        """Whether whoever brings this stands until who brings `other` is done.

        Who is at the first round of a call has come in the middle of it, where others are at the second, which they
        were promised. And no call ends a training: a program that calls has ended its own, or has yet to begin it.
        """
        first = self.kind == "barrier" and self.name == other.name + FIRST_ROUND
        return first or (other.trains and not self.trains)


class Voters(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Slot 0, a change of voters, or the adoption of the first state (version 0 to 1)."""

    lineage: Lineage
    voters: Voting
    """Acceptors of the next slot, in coordinator order; the first is the distinguished one."""
    state: StateRef
    author: PeerName
    round: Count = 1
    """Round that will be opened next."""
    attempt: Count = 1
    """Attempt at it that will be opened next."""


class Open(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """An attempt at a round begins: these participants, this plan."""

    lineage: Lineage
    voters: Voting
    state: StateRef
    author: PeerName
    round: Count
    attempt: Count
    spec: Spec
    participants: Annotated[tuple[Participant, ...], msgspec.Meta(min_length=1, max_length=MAX_PARTICIPANTS)]
    plan: Annotated[bytes, msgspec.Meta(max_length=MAX_PLAN)]
    reason: Reason
    """Why this plan, in words."""
    deadline: float
    """Seconds that the attempt may take from when it is learnt; a span, since no two clocks agree."""
    misfits: Reason = ""
    """In words, who called something that does not fit this, and was turned away; empty if nobody was."""


class Close(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The open attempt ended. Only `committed` may change anybody's parameters."""

    lineage: Lineage
    voters: Voting
    state: StateRef
    author: PeerName
    round: Count
    attempt: Count
    committed: bool
    digest: Digest
    """Digest of the result that was voted; empty when aborted."""
    reason: Reason
    holders: Peers
    """Leaders that voted for `digest`, so hold the bytes."""
    camps: Camps = ()
    """Where digests differed, for which alone it was aborted: the clusters that voted for each, the largest camp first;
    else empty. See `outvoted`."""


class Restore(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The agreed state has died with all who held it: an older one takes its place, under a new version."""

    lineage: Lineage
    voters: Voting
    state: StateRef
    author: PeerName
    round: Count
    attempt: Count
    source: Count
    """Version whose bytes these are; what versions after it held is lost. 0: a state that a worker brought along."""
    reason: Reason
    """What was lost, in words."""


Value = Voters | Open | Close | Restore

_encoder = msgspec.msgpack.Encoder()


def encoded_size(value: Value | Participant) -> int:
    """How many bytes a value, or a part of one, is sent as."""
    return len(_encoder.encode(value))


def genesis(lineage: bytes, founder: PeerId) -> Voters:
    """Make the value of slot 0: the founder votes alone, there is no state yet."""
    return Voters(lineage, (founder,), StateRef(0, b"", ()), founder)


def quorum(voters: Sequence[PeerId], ids: Collection[PeerId]) -> bool:
    """Tell whether `ids` decide among `voters`: a majority, or exactly half with the first voter in it."""
    present = sum(v in ids for v in voters)
    return 2 * present > len(voters) or (2 * present == len(voters) > 0 and voters[0] in ids)


def upcoming(value: Value) -> tuple[int, int]:
    """(round, attempt) that is open after `value`, or would be opened next."""
    if isinstance(value, Close):
        return (value.round + 1, 1) if value.committed else (value.round, value.attempt + 1)
    return value.round, value.attempt


def outvoted(camps: Sequence[Sequence[ClusterId]]) -> frozenset[ClusterId]:
    """Whose digest was another than that of most clusters that voted; nobody where there was none of most."""
    largest = len(camps[0]) if camps else 0
    majority = 2 * largest > sum(map(len, camps))
    return frozenset(name for camp in camps[1:] for name in camp) if majority else frozenset()
