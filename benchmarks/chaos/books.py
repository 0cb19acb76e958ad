"""What a worker trains: a ledger, in which every inner step of every cluster is written down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import torch

import ictp2p
from ictp2p.sync.values import REMEMBERED

SLOTS = 16
"""Most clusters over a campaign: each owns a parameter."""
SYNC_EVERY = 4


class Books(torch.nn.Module):
    """The ledger, and ballast that makes a round last."""

    def __init__(self, slot: int, ballast: int) -> None:
        super().__init__()
        self.slot = slot
        self.steps = torch.nn.Parameter(torch.zeros(SLOTS))
        self.ballast = torch.nn.Parameter(torch.zeros(ballast))

    def forward(self) -> torch.Tensor:
        """A loss whose gradient is -1 at the own parameter and 0 elsewhere."""
        return -self.steps[self.slot] + 0.0 * self.ballast.sum()


class Count:
    """What a cluster's training knows of itself; it is healed with the parameters, and so has to fit them."""

    def __init__(self) -> None:
        self.opening: int | None = None
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        """As torch has it."""
        return {"opening": self.opening, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As torch has it."""
        self.opening, self.steps = state["opening"], state["steps"]


class Recorder:
    """The peer as the policy sees it, with an outer round that adds up, and that writes down what it brings."""

    def __init__(self, peer: ictp2p.Peer, slot: int, say: Any) -> None:
        self.peer, self.slot, self.say = peer, slot, say
        self.report: Any = lambda: None
        self.adopted: Any = lambda verdict: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.peer, name)

    def outer_round(self, request: Any) -> Any:
        """Sum; the ledger is what comes first in the flat pseudo-gradient."""
        gained = -int(request.inputs[0][self.slot])
        self.say("contribute", base=request.base.version, slot=self.slot, gained=gained)
        return self.peer.outer_round(replace(request, spec=msgspec.structs.replace(request.spec, op="sum")))

    def event(self, kind: str, **fields: Any) -> None:
        """Note something, and report each version when it is there."""
        self.peer.event(kind, **fields)
        if kind == "outer":
            self.adopted(fields["verdict"])
            self.report()


class Ledger(ictp2p.LocalSGD):
    """LocalSGD that writes everything down."""

    def __init__(self, peer: Recorder, model: Books, inner: torch.optim.Optimizer, count: Count) -> None:
        self.books, self.count, self.recorder, self._reported = model, count, peer, 0
        super().__init__(peer, model, inner, SYNC_EVERY, carry=[count])
        peer.report, peer.adopted = self.report, self.adopted
        inner.register_step_post_hook(self._count_step)  # before those of the policy, which are set when it is entered

    def adopted(self, verdict: str) -> None:
        """While we were away, our cluster went on without us: its steps are in the state, and we are not behind it.

        Or we were away for so long that nobody knows: then what we brought last is given up (`credits.contributed`).
        """
        have, held = (int(t[self.books.slot]) for t in (self.books.steps, self.global_parameters()["steps"]))
        if verdict == "ADOPT" and have == held and self.count.opening is not None:
            forgotten = self.version - self._reported > REMEMBERED
            opening = have - self.count.steps
            self.count.opening = opening if forgotten else max(self.count.opening, opening)

    def _count_step(self, *_: Any) -> None:
        self.count.steps += self.books.steps.grad is not None

    def report(self) -> None:
        """Say version and digest, once for each version."""
        if self.version == self._reported:
            return
        self._reported = self.version
        peer: Any = self.recorder.peer
        handle = peer._handle if isinstance(peer, ictp2p.Peer) else peer._peer
        tip = handle.service.peer.core.m.rounds.tip
        self.recorder.say(
            "version",
            version=self.version,
            digest=self.digest(),
            books=[int(n) for n in self.global_parameters()["steps"]],
            voters=list(tip[1].voters) if tip else [],
        )

    def check(self) -> None:
        """The cluster's own parameter is what it began with plus every step since, committed or not."""
        have = int(self.books.steps[self.books.slot])
        if self.count.opening is None:
            self.count.opening = have - self.count.steps
        want = self.count.opening + self.count.steps
        if have != want:
            self.recorder.say("books", have=have, want=want, version=self.version, step=self.progress.step)
            self.count.opening = have - self.count.steps
