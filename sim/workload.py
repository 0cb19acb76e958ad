"""What simulated clusters train: integers whose every sum is known.

Each inner phase of a cluster makes one `Unit` of work, with a name of its own. A contribution is the sum of the units
that are not in the global state yet, each a vector of small integers, so that float32 adds exactly. The `Ledger`
sees all clusters and knows, for each version of the state, which units are in it and what every element must be:
a unit lost, counted twice, or taken from an attempt that was aborted shows as a wrong number or a wrong name.

Everything between clusters is the product's own code: `AsyncPeer.reduce`, the offers, `fetch_state`, `serve_state`,
`GlobalState`, and the question whether a missed round holds our part (`AsyncPeer.contributors`), asked in the way in
which `training.TrainingMesh` and `sync.policy` ask it. Inside a cluster the process group is idealised: what a leader
has after a step its mates have `FOLLOW` seconds later, if it can reach them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch

from ictp2p.async_peer import AsyncPeer
from ictp2p.core.packets import Channel
from ictp2p.errors import RoundAborted, RoundMissed, StateError
from ictp2p.participation import Reduction
from ictp2p.state_exchange import fetch_state, serve_state
from ictp2p.sync.manifest import Entry
from ictp2p.sync.state import GlobalState
from ictp2p.sync.values import Open, Spec, StateRef
from ictp2p.types import PeerId

if TYPE_CHECKING:
    from sim.world import Host

FOLLOW = 0.002
"""Seconds after which a follower has what its leader has."""
CONFIG = hashlib.blake2b(b"simulated training", digest_size=16).digest()
_SMALL = 5  # vector elements are below this, so that float32 holds sums of three million units exactly


class Unit(NamedTuple):
    """One inner phase's worth of work: where, by whom, and its number there."""

    cluster: str
    host: str
    serial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one cluster does."""

    compute: float = 1.0
    """Seconds of an inner phase."""
    elements: int = 64
    """Elements of the state; the same for all clusters that train together."""
    elide: bool = False
    """Stand for a large state: all workers share the same buffers, whose content means nothing. The sizes, plans,
    connections and timing are real; sums and state transfers are not checked."""
    rounds: int | None = None
    """Versions of the state after which to stop; None: never."""


def vector(unit_cluster: str, elements: int) -> torch.Tensor:
    """What every unit of a cluster adds to the state."""
    seed = int.from_bytes(hashlib.blake2b(unit_cluster.encode(), digest_size=4).digest(), "big")
    return ((torch.arange(elements, dtype=torch.int64) * 7 + seed) % _SMALL + 1).to(torch.float32)


@dataclass(slots=True)
class Committed:
    """One version of the state, as it must be."""

    version: int
    digest: bytes
    round: int
    attempt: int
    participants: tuple[str, ...]
    at: float
    """When the first peer learnt of it."""
    values: torch.Tensor | None = None
    units: frozenset[Unit] = frozenset()
    """Units that came in with this version."""


@dataclass(slots=True)
class Ledger:
    """All work of a world, and what became of it. Complaints go to `complain(rule, text)`."""

    complain: Callable[[str, str], None]
    elements: int = 64
    versions: dict[int, Committed] = field(default_factory=dict)
    included: dict[Unit, int] = field(default_factory=dict)
    """In which version each unit came in."""
    lost: list[Unit] = field(default_factory=list)
    """Units that their workers gave up without knowing what became of them."""
    _standing: dict[PeerId, tuple[str, tuple[Unit, ...]]] = field(default_factory=dict)
    _bound: dict[tuple[int, int, PeerId], tuple[str, tuple[Unit, ...]]] = field(default_factory=dict)
    checked: bool = True

    def stands(self, leader: PeerId, cluster: str, units: Sequence[Unit]) -> None:
        """A leader is READY with these units."""
        self._standing[leader] = (cluster, tuple(units))

    def opened(self, leader: PeerId, opened: Open) -> None:
        """A leader takes part in an attempt, with what it stands READY with now."""
        if leader in self._standing:
            self._bound[opened.round, opened.attempt, leader] = self._standing[leader]

    def adopted(self, version: int, digest: bytes, at: float) -> None:
        """The first state was adopted."""
        if version not in self.versions:
            zeros = torch.zeros(self.elements) if self.checked else None
            self.versions[version] = Committed(version, digest, 0, 0, (), at, zeros)

    def committed(self, opened: Open, version: int, digest: bytes, at: float) -> None:
        """A round committed; told by everybody who learns of it."""
        known = self.versions.get(version)
        if known is not None:
            if known.digest != digest:
                self.complain("A3", f"version {version} has digest {digest.hex()} and {known.digest.hex()}")
            return
        names = tuple(p.cluster for p in opened.participants)
        entry = self.versions[version] = Committed(version, digest, opened.round, opened.attempt, names, at)
        before = self.versions.get(version - 1)
        units: dict[Unit, None] = {}
        for participant in opened.participants:
            bound = self._bound.get((opened.round, opened.attempt, participant.leader))
            if bound is None:
                text = f"version {version} holds {participant.cluster}, whose leader never took part in it"
                self.complain("A4", text)
                continue
            for unit in bound[1]:
                if unit in self.included:
                    self.complain("A10", f"{unit} is in version {version} and in {self.included[unit]}")
                units[unit] = None
                self.included[unit] = version
        entry.units = frozenset(units)
        if before is not None and before.values is not None and self.checked:
            total = before.values.clone()
            for unit in units:
                total += vector(unit.cluster, self.elements)
            entry.values = total

    def applied(self, host: str, version: int, digest: bytes, values: torch.Tensor) -> None:
        """A worker holds a version from now on."""
        known = self.versions.get(version)
        if known is None:
            self.complain("A8", f"{host} applied version {version}, which was never decided")
        elif known.digest != digest:
            self.complain("A3", f"{host} applied {digest.hex()} as version {version}, decided was {known.digest.hex()}")
        elif self.checked and known.values is not None and not torch.equal(values, known.values):
            wrong = int((values != known.values).nonzero()[0])
            text = f"{host} version {version}: element {wrong} is {values[wrong]}, should be {known.values[wrong]}"
            self.complain("A4", text)

    def dropped(self, host: str, units: Sequence[Unit], version: int, *, seen: bool) -> None:
        """A worker takes these units for included in `version` or before; `seen`: it took part in that round itself.

        A worker that did not see its round decided must assume so: work may then be lost, and is listed, but never
        be counted twice. One that did see it may lose nothing.
        """
        lost = [u for u in units if self.included.get(u, version + 1) > version]
        self.lost += lost
        if lost and seen:
            self.complain("A10", f"{host} dropped {len(lost)} units that are in no version up to {version}: {lost[0]}")

    def kept(self, host: str, units: Sequence[Unit], version: int) -> None:
        """A worker takes these units for not included in `version` or before, and will contribute them (again)."""
        twice = [u for u in units if self.included.get(u, version + 1) <= version]
        if twice:
            where = self.included[twice[0]]
            text = f"{host} at version {version} keeps {len(twice)} units that are in version {where}: {twice[0]}"
            self.complain("A10", text)


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
        self.phases = 0
        """Inner phases done in this life."""
        self._serial = serial
        self._led = asyncio.Event()
        self._sealed = b""
        self._vector = vector(host.cluster, workload.elements) if not workload.elide else torch.zeros(0)
        entries = [Entry("weights", "float32", (1 if workload.elide else workload.elements,))]
        self.state = GlobalState(entries, [("policy", "simulated")])
        self.state.seal({"round": 0})
        self.state.commit(0)
        self.spec = Spec("sync", "simulated", "float32", workload.elements, "sum", "none", CONFIG)

    # ------------------------------------------------------------ life

    async def run(self) -> None:
        """Train until the process ends: as leader by rounds, else by following."""
        serve_state(self.peer.bulk, self.state)
        self.peer.subscribe(lambda _: self._look())
        self.peer.set_training(False, CONFIG)
        self._look()
        while self.workload.rounds is None or self.state.version < self.workload.rounds:
            await self._led.wait()
            try:
                await self._lead()
            except RoundAborted:
                self._look()

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
            self.phases += 1
            self.due = True
            self._share()
        await self._sync()
        self.due = False
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
        if agreed.digest == self.state.digest:
            return
        mine = self.peer.contributors.holds(base.version + 1, self.peer.cluster) is not False
        self.host.note("round_missed", version=agreed.version, mine=mine, reason=reason)
        await self._adopt(agreed, mine=mine)

    async def _adopt(self, ref: StateRef, *, mine: bool) -> None:
        """Fetch an agreed state; a newer one if nobody has this one any more."""
        while True:
            try:
                await fetch_state(
                    self.peer.bulk,
                    ref,
                    self.state,
                    self.peer.telemetry,
                    self.peer.clock,
                    superseded=self._is_newer(ref),
                )
                break
            except StateError as error:
                newer = self._agreed()
                self.host.note("fetch_failed", version=ref.version, error=str(error))
                self._heal()  # a mate that holds it may be back
                if self.state.version >= self._agreed().version:
                    return
                if newer.version <= ref.version:
                    await asyncio.sleep(0.5)
                ref = self._agreed()
        self.state.confirm(ref.version)
        if mine:
            self._drop(ref.version, seen=False)
        else:
            self.ledger.kept(self.host.name, self.pending, ref.version)
        self._applied()

    def _is_newer(self, ref: StateRef) -> Callable[[], bool]:
        return lambda: self._agreed().version > ref.version

    def _drop(self, version: int, *, seen: bool) -> None:
        self.ledger.dropped(self.host.name, self.pending, version, seen=seen)
        self.pending = ()

    def _applied(self) -> None:
        state = self.state
        self.ledger.applied(self.host.name, state.version, state.digest, state.committed["weights"])
        self.host.note("applied", version=state.version, digest=state.digest.hex()[:16], pending=len(self.pending))

    # ------------------------------------------------------------ inside the cluster

    def _heal(self) -> None:
        """A new leader takes over what the furthest of its mates holds, as `sync.heal` does after each new roster."""
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
