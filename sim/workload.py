"""What simulated clusters train: integers whose every sum is known.

Each inner phase of a cluster makes one `Unit` of work, with a name of its own. A contribution is the sum of the units
that are not in the global state yet; `sim.ledger` sees all clusters, and knows what every sum must be.

Everything between clusters is the product's own code: `AsyncPeer.reduce`, the offers, `fetch_state`, `serve_state`,
`GlobalState`, and the question whether a missed round holds our part (`sync.credits.contributed`), asked in the way in
which `training.TrainingMesh` and `sync.two_level.policy` ask it. Inside a cluster the process group is idealised: what
a leader has after a step its mates have `FOLLOW` seconds later, if it can reach them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ictp2p.async_peer import AsyncPeer
from ictp2p.core.packets import Channel
from ictp2p.errors import RoundAborted, RoundMissed, StateError
from ictp2p.runtime.reduction import Reduction
from ictp2p.sync.credits import contributed
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import Entry
from ictp2p.sync.values import Spec, StateRef
from sim.elided import SizeOnly
from sim.ledger import Ledger, Unit, vector

if TYPE_CHECKING:
    from sim.host import Host

FOLLOW = 0.002
"""Seconds after which a follower has what its leader has."""
CONFIG = hashlib.blake2b(b"simulated training", digest_size=16).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one cluster does."""

    compute: float = 1.0
    """Seconds of an inner phase."""
    elements: int = 64
    """Elements of the state; the same for all clusters that train together."""
    elide: bool = False
    """Stand for a large state, of zeros: see `sim.elided`. Sums are not checked, all else is as it would be."""
    resume: bool = True
    """Whether a worker offers what it begins with, where the mesh has lost its state: as from a checkpoint."""
    rounds: int | None = None
    """Versions of the state after which to stop; None: never."""
    saves: int = 0
    """Of so many versions one is written to a checkpoint, which the next life begins with; 0: none is."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What one version of the state was, and which mesh's: see `sync.state.checkpoint`."""

    lineage: bytes
    version: int
    round: int
    values: torch.Tensor


class Worker:
    """The training side of one peer, in one life of its process.

    Args:
        host: where.
        peer: started.
        workload: what to do.
        ledger: sees all.
        serial: numbers this host's units through all of its lives.
    """

    def __init__(
        self, host: Host, peer: AsyncPeer, workload: Workload, ledger: Ledger, serial: Callable[[], int]
    ) -> None:
        self.host = host
        self.peer = peer
        self.workload = workload
        self.ledger = ledger
        self.pending: tuple[Unit, ...] = ()
        """Units that are not in the state yet, as far as this worker knows."""
        self.due = False
        """Whether an outer round is due: an heir repeats its predecessor's, as policies do."""
        self._serial = serial
        self._led = asyncio.Event()
        self._sealed = b""
        self._busy = False
        self._vector = vector(host.cluster, workload.elements) if not workload.elide else torch.zeros(0)
        self.state = _state(workload)
        self.state.seal({"round": 0})
        self.state.commit(0)
        self.state.brought = 0 if workload.resume else None
        if host.checkpoint is not None:
            self._load(host.checkpoint)
        self.spec = Spec("sync", "simulated", "float32", workload.elements, "sum", "none", CONFIG)

    # ------------------------------------------------------------ life

    async def run(self) -> None:
        """Train until the process ends: as leader by rounds, else by following."""
        self.peer.serve_state(self.state)
        self.peer.subscribe(lambda _: self._look())
        self.peer.set_training(False)
        self._look()
        while self.workload.rounds is None or self.state.version < self.workload.rounds:
            await self._led.wait()
            try:
                await self._lead()
            except RoundAborted:
                self._look()
            finally:
                self._busy = False

    def _load(self, file: Checkpoint) -> None:
        """Begin with what a checkpoint has, as `sync.two_level.policy` does."""
        self.state.begin()["weights"].copy_(file.values)
        self.state.seal({"round": file.round})
        self.state.commit(0)
        self.state.brought = file.version if file.lineage == self.peer.lineage else 0

    def _look(self) -> None:
        """Whether this worker leads may have changed."""
        if self.peer.core.leading:
            self._led.set()
        else:
            self._led.clear()

    async def _lead(self) -> None:
        self._heal()
        if self.state.version == 0:
            await self._begin()
        if not self.due:
            await asyncio.sleep(self.workload.compute * self.host.slowness)
            if not self.peer.core.leading:
                return
            self.pending += (Unit(self.host.cluster, self.host.name, self._serial()),)
            self.due = True
            self._share()
        before, self._busy = self.state.version, True
        await self._sync()
        self.due = bool(self.pending) and self.state.version > before  # carried over: brought to the very next round
        self._share()

    async def _begin(self) -> None:
        """Learn the first state, or have ours adopted."""
        peer = self.peer
        peer.call(Channel.ROUNDS, lambda now: peer.core.m.rounds.offer(self.state.digest, now))
        while (agreed := self._agreed()).version == 0:
            await asyncio.sleep(0.05)
            if not peer.core.leading:
                raise RoundAborted("deposed before there was a state")
        if agreed.digest == self.state.digest:
            self.state.confirm(agreed.version)
            self._applied()
        else:
            await self._adopt(agreed, mine=False)
        peer.set_training(True)

    def _agreed(self) -> StateRef:
        return self.peer.agreed_state or StateRef(0, b"", ())

    # ------------------------------------------------------------ a round

    async def _sync(self) -> None:
        """Stand READY with what is pending until a round holds it, or turns out to have gone on without it."""
        self.peer.set_training(True)
        base = StateRef(self.state.version, self.state.digest, ())
        self.ledger.stands(self.peer.id, self.host.cluster, self.pending)
        try:
            outcome = await self.peer.reduce(self._reduction(base))
        except RoundMissed as error:
            await self._missed(base, str(error))
            return
        if outcome.state.digest == self._sealed:
            self.state.commit(outcome.state.version)
            self._drop(outcome.state.version, seen=True)
            self._applied()
        else:
            await self._adopt(outcome.state, mine=True)

    def _reduction(self, base: StateRef) -> Reduction:
        elements = self.workload.elements
        if self.workload.elide:
            inputs, outputs = self.host.world.blank(elements)
            return Reduction(self.spec, [inputs], [outputs], base=base, finish=self._pretend)
        average = torch.empty(elements)
        total = torch.zeros(elements)
        for unit in self.pending:
            total += self._vector if unit.cluster == self.host.cluster else vector(unit.cluster, elements)

        async def finish() -> bytes:
            tentative = self.state.begin()
            tentative["weights"].add_(average)
            self._sealed = self.state.seal({"round": self.state.counters["round"] + 1})
            return self._sealed

        return Reduction(self.spec, [total], [average], base=base, finish=finish)

    async def _pretend(self) -> bytes:
        self.state.begin()
        self._sealed = self.state.seal({"round": self.state.counters["round"] + 1})
        return self._sealed

    async def _missed(self, base: StateRef, reason: str) -> None:
        """A round was decided without us, or without our seeing that we are in it."""
        agreed = self._agreed()
        if self._went_back_to_ours(agreed):
            return
        mine = self._in(agreed, base.version)
        self.host.note("round_missed", version=agreed.version, mine=mine, reason=reason)
        await self._adopt(agreed, mine=mine)

    async def _adopt(self, ref: StateRef, *, mine: bool) -> None:
        """Fetch an agreed state; a newer one if nobody has this one any more."""
        while True:
            try:
                await self.peer.fetch_state(ref, self.state)
                break
            except StateError as error:
                newer = self._agreed()
                self.host.note("fetch_failed", version=ref.version, error=str(error))
                if newer.version > ref.version:
                    self.peer.set_training(True)  # they went on meanwhile: from now on they wait for us
                self._heal()  # a mate that holds it may be back
                if self.state.version >= self._agreed().version:
                    return
                if newer.version <= ref.version:
                    await asyncio.sleep(0.5)
                if self._went_back_to_ours(self._agreed()):
                    return
                # What is pending now may be a mate's, who brought it from another version than we did.
                mine = self._in(self._agreed(), self.state.version)
                ref = self._agreed()
        self.state.confirm(ref.version)
        if mine:
            self._drop(ref.version, seen=False)
        else:
            self.ledger.kept(self.host.name, self.pending, ref.version)
        self._applied()

    def _went_back_to_ours(self, agreed: StateRef) -> bool:
        """Whether what is here is agreed (again): then what is pending is in no version."""
        if agreed.digest != self.state.digest:
            return False
        if agreed.version != self.state.version:
            self.state.confirm(agreed.version)
            self.ledger.kept(self.host.name, self.pending, agreed.version)
            self._applied()
        return True

    def _in(self, state: StateRef, base: int) -> bool:
        """Whether what was brought from a version must be taken for included in a state."""
        return contributed(state, self.peer.cluster, base) != 0

    def _drop(self, version: int, *, seen: bool) -> None:
        self.ledger.dropped(self.host.name, self.pending, version, seen=seen)
        self.pending = ()

    def _applied(self) -> None:
        state = self.state
        self.ledger.applied(self.host.name, state.version, state.digest, state.committed["weights"])
        if self.workload.saves and state.version % self.workload.saves == 0:
            values = state.committed["weights"].clone()
            self.host.checkpoint = Checkpoint(self.peer.lineage, state.version, state.counters["round"], values)
        self.host.note("applied", version=state.version, digest=state.digest.hex()[:16], pending=len(self.pending))

    # ------------------------------------------------------------ inside the cluster

    def _heal(self) -> None:
        """A new leader takes over what the furthest of its mates holds, as `cluster.heal` does after a new roster."""
        mates = [mate.worker for mate in self.host.world.mates(self.host) if mate.worker is not None]
        best = max(mates, key=lambda worker: worker.state.version, default=None)
        if best is not None and best.state.version > self.state.version:
            state = best.state
            values = state.committed["weights"]
            self.follow(state.version, state.digest, dict(state.counters), values, best.pending, best.due)

    def _share(self) -> None:
        """Have the mates hold what this worker holds, a moment later."""
        state, pending = self.state, self.pending
        held = (
            state.version,
            state.digest,
            dict(state.counters),
            state.committed["weights"].clone(),
            pending,
            self.due,
        )
        for mate in self.host.world.mates(self.host):
            self.host.world.loop.at(
                self.host.world.loop.now + FOLLOW, self._reach, mate, mate.worker, held, context=mate.context()
            )

    def _reach(
        self,
        mate: Host,
        worker: Worker | None,
        held: tuple[int, bytes, dict[str, int], torch.Tensor, tuple[Unit, ...], bool],
    ) -> None:
        if worker is None or worker is not mate.worker or worker.peer.core.leading:
            return  # a leader believes itself
        if worker._busy:
            return  # one that led has to learn first what became of its round: its thread is not in the group
        if worker.peer.core.leader != self.peer.id:
            return  # and a follower only its own leader
        worker.follow(*held)

    def follow(
        self,
        version: int,
        digest: bytes,
        counters: dict[str, int],
        values: torch.Tensor,
        pending: tuple[Unit, ...],
        due: bool,
    ) -> None:
        """Hold what the leader holds."""
        if version < self.state.version:
            return
        changed = digest != self.state.digest or version != self.state.version
        if digest != self.state.digest:
            self.state.begin()["weights"].copy_(values)
            self.state.seal(counters)
            self.state.commit(version)
        self.state.confirm(version)
        self.pending, self.due = pending, due
        if changed and version:
            self._applied()
        self.peer.set_training(True)


def _state(workload: Workload) -> GlobalState:
    settings = [("policy", "simulated")]
    if workload.elide:
        return SizeOnly(workload.elements, settings)
    return GlobalState([Entry("weights", "float32", (workload.elements,))], settings)
