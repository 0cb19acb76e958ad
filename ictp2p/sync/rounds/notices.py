"""What rounds tell the floor above.

For one attempt at a round a bound leader sees `RoundOpened`, then exactly one of `RoundCommitted`, `RoundAborted`
and `RoundPassed` (or `OddOneOut`). Parameters may change after `RoundCommitted` with `holding=True`, and at no other
time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ictp2p.machine import Notice
from ictp2p.sync.values import Close, Open, Restore, StateRef, Value
from ictp2p.types import ClusterId, PeerId


@dataclass(frozen=True, slots=True)
class RoundOpened(Notice):
    """This peer is bound by `open`: reduce now, then call `completed` or `failed`."""

    open: Open


@dataclass(frozen=True, slots=True)
class RoundCommitted(Notice):
    """The attempt committed.

    `holding` says whether the committed digest is the one that this peer voted: then it applies its own result,
    else it fetches the state (`StateAdvanced` follows).
    """

    open: Open
    close: Close
    holding: bool


@dataclass(frozen=True, slots=True)
class RoundAborted(Notice):
    """The attempt came to nothing; the contribution stands for the next one, unless it was withdrawn.

    `close` is None if the decision itself was never seen, only that the round goes on.
    """

    open: Open
    close: Close | None


@dataclass(frozen=True, slots=True)
class RoundPassed(Notice):
    """The round for which this peer stood READY was decided without it, or without its seeing how.

    Its contribution stands no longer. `value` is the newest decision; for a `sync` round its state is to be fetched.
    """

    round: int
    value: Value


@dataclass(frozen=True, slots=True)
class OddOneOut(Notice):
    """As `RoundPassed`, of the last of several rounds in a row that were decided without this cluster for its digest.

    To fetch the state and go on would have it sit out the next round, too: it computes what the others do not.
    """

    rounds: int
    """How many."""
    camps: tuple[tuple[ClusterId, ...], ...]
    """Who came to which result in the last of them; see `Close`."""


@dataclass(frozen=True, slots=True)
class ParticipantUnseated(Notice):
    """Another peer leads the cluster for which `leader` is in the attempt that binds this peer: it may have died.

    It may also live, cut off from its heir, and all but be done: the attempt goes on while anything is seen of it.
    """

    leader: PeerId


@dataclass(frozen=True, slots=True)
class ClusterAbsent(Notice):
    """A cluster that lives and means to train was in none of the last `rounds` rounds, for `seconds`; it may hang."""

    cluster: ClusterId
    leader: PeerId
    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StateAdvanced(Notice):
    """The agreed global state is now this one."""

    ref: StateRef


@dataclass(frozen=True, slots=True)
class StateMissing(Notice):
    """At the coordinator: nobody who is alive holds the agreed state.

    It waits `seconds` for a holder to come back; then it goes back to `source`, or, where that is None, to nothing:
    nobody holds any version, and somebody has to bring one.
    """

    ref: StateRef
    source: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class StateRestored(Notice):
    """The mesh went back: what versions after `restore.source` held is lost. `StateAdvanced` follows."""

    restore: Restore


@dataclass(frozen=True, slots=True)
class StateStale(Notice):
    """The contribution starts from a state that is not the agreed one. It was dropped: fetch `ref` first."""

    ref: StateRef


@dataclass(frozen=True, slots=True)
class SpecRejected(Notice):
    """What this peer wants reduced differs from what the others want. Its contribution was dropped."""

    reason: str


@dataclass(frozen=True, slots=True)
class Released(Notice):
    """After `drop_out`: this peer votes no longer (or is the last voter there is) and may exit."""

    alone: bool
