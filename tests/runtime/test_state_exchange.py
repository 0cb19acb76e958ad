"""Fetching a state: what a provider that is gone costs."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import msgspec
import pytest
import torch

from ictp2p.errors import ConnectionLost, MeshMismatch, StateError
from ictp2p.runtime import state_exchange
from ictp2p.runtime.state_exchange import Here, fetch_state, serve_state
from ictp2p.sync.state.global_state import GlobalState, entry
from ictp2p.sync.state.manifest import CHUNK, DIGEST
from ictp2p.sync.state.transfer import TransferProfile
from ictp2p.sync.values import StateRef
from ictp2p.telemetry import Telemetry
from ictp2p.types import PeerId
from tests.garbage import uncollected

PATIENT = TransferProfile(pause=60.0)


class Deserted:
    """Bulk connections to nobody."""

    me = PeerId("me")

    async def request(self, peer: PeerId, *_: Any, **__: Any) -> int:
        await asyncio.sleep(0)
        raise ConnectionLost(f"{peer} is gone")


async def fetch(superseded: bool) -> None:
    state = GlobalState([entry("weight", torch.zeros(3))])
    ref = StateRef(7, bytes(32), (PeerId("a"), PeerId("b")))
    bulk: Any = Deserted()
    await fetch_state(bulk, ref, state, Telemetry(time.monotonic), time.monotonic, PATIENT, lambda: superseded)


async def test_whose_providers_fail_is_not_insisted_on_once_there_is_a_newer_state() -> None:
    async with asyncio.timeout(10):
        with pytest.raises(StateError, match=r"successor, and [ab]: [ab] is gone"):
            await fetch(superseded=True)


async def test_whose_providers_fail_is_asked_for_again_while_it_is_the_newest() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await fetch(superseded=False)


async def test_who_comes_to_hold_it_after_all_known_holders_have_died_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Heired(Deserted):
        async def request(self, peer: PeerId, *_: Any, **__: Any) -> int:
            if peer == "heir":
                raise MeshMismatch("the heir was asked")
            return await super().request(peer)

    monkeypatch.setattr(state_exchange, "_LOOK", 0.0)
    state = GlobalState([entry("weight", torch.zeros(3))])
    ref = StateRef(7, bytes(32), (PeerId("a"), PeerId("b")))
    heirs = iter([(), (), (PeerId("me"), PeerId("heir"))])
    bulk: Any = Heired()
    async with asyncio.timeout(10):
        with pytest.raises(MeshMismatch, match="the heir was asked"):
            await fetch_state(
                bulk,
                ref,
                state,
                Telemetry(time.monotonic),
                time.monotonic,
                PATIENT,
                witnesses=lambda: next(heirs, (PeerId("me"), PeerId("heir"))),
            )


class Held:
    """Bulk connections to one who has the state, and answers each question chunk by chunk, in order."""

    me = PeerId("me")

    def __init__(self, state: GlobalState) -> None:
        self._state = state
        self.waiting: list[int] = []
        """Questions that were under way when the last chunk but one of a question had been answered."""
        self._open = 0

    async def request(
        self,
        peer: PeerId,
        kind: str,
        payload: bytes,
        destination: memoryview,
        *,
        timeout: float,
        progress: Any,
        over: None,
    ) -> int:
        question = msgspec.msgpack.decode(payload, type=state_exchange.Question)
        if not question.chunks:
            encoded = self._state.manifest(question.digest)
            destination[: len(encoded)] = encoded
            return len(encoded)
        self._open += 1
        filled = 0
        for n, index in enumerate(question.chunks):
            data = self._state.chunk(question.digest, index)
            destination[filled : filled + len(data)] = data
            filled += len(data)
            progress(filled)
            for _ in range(5):  # what the other side does about it
                await asyncio.sleep(0)
            if n == len(question.chunks) - 2:
                self.waiting.append(self._open)
        self._open -= 1
        return filled


async def test_a_provider_has_the_next_question_before_it_has_answered_the_one_before() -> None:
    tensor = torch.arange(20 * CHUNK // 4, dtype=torch.float32)
    held, state = GlobalState([entry("weight", tensor)]), GlobalState([entry("weight", tensor)])
    held.tentative["weight"].copy_(tensor)
    held.seal({})
    held.commit(7)
    provider = Held(held)
    bulk: Any = provider
    ref = StateRef(7, held.digest, (PeerId("a"),))
    async with asyncio.timeout(60):
        await fetch_state(bulk, ref, state, Telemetry(time.monotonic), time.monotonic, TransferProfile(run=2))
    assert torch.equal(state.committed["weight"], tensor)
    assert len(provider.waiting) > 5
    assert min(provider.waiting[:-1]) > 1, f"its line lay idle for a round trip: {provider.waiting}"


async def test_a_state_that_was_provided_is_not_given_up_while_it_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large one every byte is hashed, and the mesh goes on meanwhile."""
    comparing, told = threading.Event(), threading.Event()

    class Slow(GlobalState):
        def expect(self, encoded: bytes, digest: bytes) -> list[int]:
            comparing.set()
            told.wait()
            return super().expect(encoded, digest)

    def look() -> tuple[PeerId, ...]:
        if comparing.is_set():
            told.set()
        return ()

    monkeypatch.setattr(state_exchange, "_LOOK", 0.0)
    tensor = torch.arange(3.0)
    held, state = GlobalState([entry("weight", tensor)]), Slow([entry("weight", tensor)])
    held.tentative["weight"].copy_(tensor)
    held.seal({})
    held.commit(7)
    bulk: Any = Held(held)
    ref = StateRef(7, held.digest, (PeerId("a"),))
    try:
        async with asyncio.timeout(30):
            telemetry, clock = Telemetry(time.monotonic), time.monotonic
            await fetch_state(bulk, ref, state, telemetry, clock, superseded=comparing.is_set, witnesses=look)
    finally:
        told.set()
    assert torch.equal(state.committed["weight"], tensor)


async def test_a_manifest_that_nobody_could_take_is_refused_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_exchange, "MAX_MANIFEST", 10)
    held = GlobalState([entry("weight", torch.zeros(3))])
    held.seal({})
    held.commit(7)
    handlers: dict[str, Any] = {}

    class Serving:
        def serve(self, kind: str, handler: Any) -> None:
            handlers[kind] = handler

    bulk: Any = Serving()
    serve_state(bulk, Here(held))
    question = msgspec.msgpack.encode(state_exchange.Question(held.digest, ()))
    with pytest.raises(StateError, match=r"a manifest of \d+ bytes exceeds 10"):
        await anext(handlers[state_exchange.KIND](PeerId("a"), question))


def test_the_longest_manifest_has_a_digest_for_each_chunk_of_half_a_tebibyte() -> None:
    assert state_exchange.MAX_MANIFEST == 2**39 // CHUNK * DIGEST


class Asked:
    """Bulk connections to somebody who answers nothing, and to somebody with the error that ends it all."""

    me = PeerId("me")

    async def request(self, peer: PeerId, *_: Any, **__: Any) -> int:
        if peer == "a":
            await asyncio.Event().wait()
        await asyncio.sleep(0.01)
        raise MeshMismatch("another model")


async def test_a_fetch_that_fails_leaves_nothing_to_the_garbage_collector() -> None:
    """Regression: what it still asked for kept its buffers, 16 MiB for a manifest, until the collector came."""

    async def fail() -> None:
        state = GlobalState([entry("weight", torch.zeros(3))])
        ref = StateRef(7, bytes(32), (PeerId("a"), PeerId("b")))
        bulk: Any = Asked()
        with pytest.raises(MeshMismatch):
            await fetch_state(bulk, ref, state, Telemetry(time.monotonic), time.monotonic, PATIENT, lambda: False)

    with uncollected(state_exchange._Transfer) as left:
        await fail()
        await asyncio.sleep(0)  # the step that woke us is over
    assert left == []
