"""What a leader brings to a round, what stands for it meanwhile, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import torch

from ictp2p.collectives.running import execute
from ictp2p.runtime.data_phase import Holds
from ictp2p.sync.values import Open, Participant, Spec, StateRef
from ictp2p.types import ClusterId


@dataclass(frozen=True, slots=True)
class Reduction:
    """What a leader brings to a round, and what it wants to hear."""

    spec: Spec
    inputs: Sequence[torch.Tensor]
    """Contiguous host tensors; never written, and not to be changed until the round is decided."""
    outputs: Sequence[torch.Tensor]
    """As many elements, of the same type; garbage until the round commits."""
    weight: float = 1.0
    """Share in the average, in a unit common to all clusters (tokens, say)."""
    base: StateRef | None = None
    """State that the contribution starts from, for a "sync" round."""
    finish: Callable[[], Awaitable[bytes]] | None = None
    """Awaited once `outputs` holds the result: gives the digest to vote (of the tentative next state, in a "sync"
    round). None votes the digest of the outputs' bytes."""
    progress: Callable[[int, int], None] | None = None
    """Told the elements `[start, stop)` whose result is in `outputs` now."""
    restarted: Callable[[int, Sequence[Participant]], None] | None = None
    """Told the number of each attempt that begins, and who takes part: what was reported of an earlier one is void."""
    note: bytes = b""
    """For the other participants of the round."""
    holds: Holds | None = None
    """What is agreed of modules, by their keys; to be copied to whoever lacks it."""
    patient: bool = True
    """Whether to wait for a quorum however long it takes."""
    slack: float = 0.0
    """Seconds by which the round may begin later than now, for those who are late, and nobody here waits for it."""
    newcomer: bool = False
    """Whether this cluster has been in no round yet, and goes to whatever the others are at."""
    among: tuple[ClusterId, ...] = ()
    """Who has to take part, in this order, for tensors to be of any use: in an attempt of others nothing moves, and
    what is voted is `EMPTY`. All who take part have to give the same; empty: whoever."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A committed round."""

    round: int
    attempt: int
    participants: tuple[ClusterId, ...]
    state: StateRef
    """The agreed state from now on."""
    digest: bytes
    seconds: float
    """From READY to the decision."""
    bytes_sent: int
    bytes_received: int
    plan: str
    """Kind of the schedule."""
    reason: str
    """Why that one."""


@dataclass(slots=True)
class Standing:
    """The contribution that waits for its round."""

    work: Reduction
    began: float
    decided: asyncio.Future[Outcome]
    attempt: asyncio.Task[None] | None = None
    ending: set[asyncio.Task[None]] = field(default_factory=set)
    """Earlier attempts that have still to let go of the tensors."""
    opened: Open | None = None
    """What the newest attempt began with."""
    opened_at: float = 0.0
    stats: execute.Stats | None = None
    plan: str = ""

    def is_in(self, opened: Open) -> bool:
        """Whether this is what was brought to `opened`, and not what comes after a call that voted and was given up.

        For a state it makes no difference: whoever brought it compares what it holds with what was agreed.
        """
        return opened.spec.kind == "sync" or self.opened == opened

    def end_attempt(self) -> None:
        """Cancel it, once: a second time would cut short what it still gives to those who are to hear of its end."""
        if self.attempt is not None:
            self.attempt.cancel()
            self.ending.add(self.attempt)
            self.attempt.add_done_callback(self.ending.discard)
            self.attempt = None
