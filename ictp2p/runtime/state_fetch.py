"""Fetching a state that was agreed on, from several peers at once, over the bulk connections.

`sync.state.transfer.Fetch` decides which chunk to ask of whom, `GlobalState` holds and verifies the bytes; this module
carries questions to those who provide it (`state_provider`) and takes their answers. Where further connections gain,
one provider is asked over several of them (`fetch_lanes`).
"""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from ictp2p.bulk import Bulk
from ictp2p.concurrency.blocking import blocking
from ictp2p.core.stack import Core
from ictp2p.errors import IctError, NetworkError, StateError
from ictp2p.runtime.fetch_lanes import FetchLanes
from ictp2p.runtime.state_provider import KIND, MAX_MANIFEST, Question
from ictp2p.sync.state.manifest import CHUNK
from ictp2p.sync.state.transfer import Ask, Fetch, TransferProfile
from ictp2p.sync.values import StateRef
from ictp2p.telemetry import Telemetry
from ictp2p.types import PeerId

if TYPE_CHECKING:
    from ictp2p.sync.mesh import Receiver

_LOOK = 1.0
"""Seconds between two looks at whether the state that is fetched is still the one to have."""
_CHATTER = 1024
"""Bytes between two such looks that say no more than that somebody is still there."""
_LONGEST = 3600.0
"""Seconds that one question may take: who answers slowly is not silent."""
WITNESSES = 16
"""Most peers that are asked for a state although the decision does not name them."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch took."""

    size: int
    """Bytes that were received."""
    seconds: float


async def fetch_agreed(
    core: Core, bulk: Bulk, ref: StateRef, state: Receiver, telemetry: Telemetry, clock: Callable[[], float]
) -> None:
    """Fetch an agreed state of whoever should have it by what `core` knows at each moment.

    Raises:
        StateError, MeshMismatch: as `fetch_state`.
    """

    def superseded() -> bool:
        tip = core.m.rounds.tip
        return tip is not None and tip[1].state.version > ref.version

    def witnesses() -> Sequence[PeerId]:
        return _with_witnesses(core, ref).providers

    wanted = _with_witnesses(core, ref)
    fetched = await fetch_state(bulk, wanted, state, telemetry, clock, superseded=superseded, witnesses=witnesses)
    told = {"seconds": fetched.seconds, "bytes": fetched.size, "providers": list(wanted.providers)}
    telemetry.event("state_fetched", version=ref.version, **told)


def _with_witnesses(core: Core, ref: StateRef) -> StateRef:
    """Beside those who held the state when it was decided, whoever should have it by now; they say so if not.

    First those who are alive, and of the others the workers of the holders' own clusters: they took the same step, and
    outlive their leader.
    """
    cards = core.directory.clusters
    alive = {*core.m.mesh.alive(), core.card.cluster}
    living = {w.peer for name, card in cards.items() if name in alive for w in card.workers}
    able = [cards[c] for c in sorted(cards) if c in alive and cards[c].version >= ref.version]
    homes = {core.directory.cluster_of(p) for p in ref.providers}
    able.sort(key=lambda card: card.cluster not in homes)
    others = [w.peer for card in able for w in card.workers if w.peer not in (*ref.providers, core.card.peer)]
    providers = sorted((*ref.providers, *others[:WITNESSES]), key=lambda peer: peer not in living)
    return msgspec.structs.replace(ref, providers=tuple(providers))


async def fetch_state(
    bulk: Bulk,
    ref: StateRef,
    state: Receiver,
    telemetry: Telemetry,
    clock: Callable[[], float],
    profile: TransferProfile | None = None,
    superseded: Callable[[], bool] = lambda: False,
    witnesses: Callable[[], Sequence[PeerId]] = tuple,
) -> Fetched:
    """Receive `ref` into the tentative half of `state`, verify it, and commit it there.

    Args:
        bulk: how to ask.
        ref: what to fetch, and of whom.
        state: where it goes.
        telemetry: told of wrong bytes.
        clock: monotonic seconds.
        profile: how patient to be.
        superseded: whether a newer state has been agreed on, so that insisting on this one is in vain.
        witnesses: who may have it beside, asked again and again: all who are known at first may have died, while those
            who come to hold it in their place are about to say so.

    Raises:
        StateError: no provider has it any more, or all sent wrong bytes; each is named. Or the last one that was asked
            failed, and there is a newer state to ask for.
        MeshMismatch: the mesh trains something else; the first difference is named.
    """
    transfer = _Transfer(bulk, ref, state, telemetry, clock, profile or TransferProfile(), superseded, witnesses)
    return await transfer.run()


class _Transfer:
    """One fetch: the questions under way, and what they bring."""

    def __init__(
        self,
        bulk: Bulk,
        ref: StateRef,
        state: Receiver,
        telemetry: Telemetry,
        clock: Callable[[], float],
        profile: TransferProfile,
        superseded: Callable[[], bool],
        witnesses: Callable[[], Sequence[PeerId]],
    ) -> None:
        self._bulk = bulk
        self._ref = ref
        self._state = state
        self._telemetry = telemetry
        self._clock = clock
        self._superseded = superseded
        self._witnesses = witnesses
        self._fetch = Fetch(ref.digest, [p for p in ref.providers if p != bulk.me], profile)
        self._lanes = FetchLanes(bulk, self._fetch, profile, clock)
        self._asked: dict[asyncio.Task[None], PeerId] = {}
        self._brought: dict[PeerId, int] = {}
        """Bytes that the connections to those who are asked had brought at the last look."""
        self._arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once a chunk has come: whoever brought it may have room for the next question before it is idle."""
        self._fatal: IctError | None = None
        self._began = self._looked = clock()
        self._expecting = False

    async def run(self) -> Fetched:
        try:
            while not self._fetch.done:
                await self._turn()
        finally:
            await self._end()
        await blocking(self._state.verified, self._ref.version)
        return Fetched(self._lanes.arrived, self._clock() - self._began)

    async def _end(self) -> None:
        """Take back what is asked, and let the further connections go; also if this is cancelled in its turn."""
        for task in self._asked:
            task.cancel()
        try:
            await asyncio.gather(*self._lanes.stop(), *self._asked, return_exceptions=True)
        finally:
            # Errors know this, and what was received: in a cycle that would wait for the garbage collector.
            self._asked, self._fatal = {}, None
            self._lanes.close()

    async def _turn(self) -> None:
        """Ask what is to be asked, then wait until something happens."""
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            try:
                raise fatal
            finally:
                del fatal
        lacking = self._fetch.manifest is None and not self._expecting
        if lacking and self._clock() >= self._began + _LOOK and self._superseded():
            raise StateError(f"state {self._ref.digest.hex()[:16]} has a successor, and nobody has provided it yet")
        silent = self._fetch.handle_timeout(self._clock())
        for task, provider in self._asked.items():
            if provider in silent:
                task.cancel()  # or what it still brings would be in the way of what is asked for instead
        if self._clock() >= self._looked + _LOOK:
            self._look()
        self._lanes.look()
        for ask in self._fetch.asks(self._clock()):
            self._asked[asyncio.get_running_loop().create_task(self._ask(ask))] = ask.provider
        due = self._fetch.next_timeout()
        timeout = _LOOK if due is None else min(_LOOK, max(0.0, due - self._clock()))
        if not self._asked:
            await asyncio.sleep(timeout)
            return
        if self._arrival.done():
            self._arrival = asyncio.get_running_loop().create_future()
        awaited = [*self._asked, self._arrival]
        done, _ = await asyncio.wait(awaited, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finished = [task for task in self._asked if task in done]  # in order, which a set does not have
        for task in finished:
            del self._asked[task]
            if not task.cancelled():
                task.result()

    def _look(self) -> None:
        """Learn who else may have it, and whose connections move, if only for what stands before what is asked for."""
        self._looked = self._clock()
        for peer in self._witnesses():
            if peer != self._bulk.me:
                self._fetch.add(peer)
        before, self._brought = self._brought, {p: self._lanes.received(p) for p in self._asked.values()}
        for provider, brought in self._brought.items():
            if brought > before.get(provider, brought) + _CHATTER:
                self._fetch.moving(provider, self._looked)

    async def _ask(self, ask: Ask) -> None:
        try:
            if ask.chunks:
                await self._ask_chunks(ask)
            else:
                await self._ask_manifest(ask.provider)
        except (NetworkError, StateError) as error:
            self._failed(ask.provider, error)
        except IctError as error:
            self._fatal = error

    def _failed(self, provider: PeerId, error: IctError) -> None:
        self._fetch.failed(provider, str(error), self._clock())
        if len(self._asked) == 1 and self._superseded():  # nobody else is being asked
            self._fatal = StateError(f"state {self._ref.digest.hex()[:16]} has a successor, and {provider}: {error}")

    async def _ask_manifest(self, provider: PeerId) -> None:
        # Mapped: of the most that a manifest may have, pages that nothing comes to are none.
        buffer = memoryview(mmap.mmap(-1, MAX_MANIFEST))
        size = await self._request(provider, (), buffer, lambda _: None)
        if self._expecting or self._fetch.manifest is not None:
            return  # two were asked, and the other was first
        self._expecting = True
        try:
            encoded = bytes(buffer[:size])
            missing = await blocking(self._state.expect, encoded, self._ref.digest)
            if self._state.own:
                self._fetch.only(provider)
            self._fetch.begin(self._state.incoming, missing)
        finally:
            self._expecting = False

    async def _ask_chunks(self, ask: Ask) -> None:
        """Chunks arrive in one reply and are taken one by one, so that a broken reply keeps what it brought."""
        buffer = memoryview(bytearray(CHUNK * len(ask.chunks)))
        spans = [self._state.incoming.chunk_range(index) for index in ask.chunks]
        sizes = [stop - start for start, stop in spans]
        ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
        taken = 0

        def progress(filled: int) -> None:
            nonlocal taken
            while taken < len(ends) and ends[taken] <= filled:
                self._take(ask.provider, ask.chunks[taken], buffer[ends[taken] - sizes[taken] : ends[taken]])
                taken += 1

        await self._request(ask.provider, ask.chunks, buffer[: ends[-1]], progress)

    def _take(self, provider: PeerId, index: int, data: memoryview) -> None:
        if not self._arrival.done():
            self._arrival.set_result(None)
        try:
            wanted = self._fetch.arrived(provider, index, data, self._clock())
        except StateError as error:
            self._telemetry.event("warning", text=str(error))
            return
        if wanted:
            self._state.take(index, data)
            self._lanes.arrived += len(data)

    async def _request(
        self,
        provider: PeerId,
        chunks: tuple[int, ...],
        destination: memoryview,
        progress: Callable[[int], None],
    ) -> int:
        peer, over = self._lanes.over(provider)
        payload = msgspec.msgpack.encode(Question(self._ref.digest, chunks))

        def seen(filled: int) -> None:
            self._fetch.seen(provider, self._clock())
            progress(filled)

        return await self._bulk.request(peer, KIND, payload, destination, timeout=_LONGEST, progress=seen, over=over)
