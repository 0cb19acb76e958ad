"""Fetching a state: what a provider that is gone costs."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import msgspec
import pytest
import torch

from ictp2p.bulk import streams
from ictp2p.errors import ConnectionLost, MeshMismatch, StateError
from ictp2p.runtime import state_fetch, state_provider
from ictp2p.runtime.state_fetch import fetch_state
from ictp2p.runtime.state_provider import Here, Question, serve_state
from ictp2p.sync.state.global_state import GlobalState, entry
from ictp2p.sync.state.manifest import CHUNK, DIGEST
from ictp2p.sync.state.transfer import TransferProfile
from ictp2p.sync.values import StateRef
from ictp2p.telemetry import Telemetry
from ictp2p.types import PeerId
from tests.bulk.conftest import run_turns
from tests.garbage import uncollected

PATIENT = TransferProfile(pause=60.0)


class Quiet:
    """Bulk connections that bring nothing beside what is asked for."""

    me = PeerId("me")

    def received(self, peer: PeerId) -> int:
        return 0


class Deserted(Quiet):
    """Bulk connections to nobody."""

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

    monkeypatch.setattr(state_fetch, "_LOOK", 0.0)
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


class Held(Quiet):
    """Bulk connections to one who has the state, and answers each question chunk by chunk, in order."""

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
        question = msgspec.msgpack.decode(payload, type=Question)
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

    monkeypatch.setattr(state_fetch, "_LOOK", 0.0)
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
    monkeypatch.setattr(state_provider, "MAX_MANIFEST", 10)
    held = GlobalState([entry("weight", torch.zeros(3))])
    held.seal({})
    held.commit(7)
    handlers: dict[str, Any] = {}

    class Serving:
        def serve(self, kind: str, handler: Any) -> None:
            handlers[kind] = handler

    bulk: Any = Serving()
    serve_state(bulk, Here(held))
    question = msgspec.msgpack.encode(Question(held.digest, ()))
    with pytest.raises(StateError, match=r"a manifest of \d+ bytes exceeds 10"):
        await anext(handlers[state_provider.KIND](PeerId("a"), question))


def test_the_longest_manifest_has_a_digest_for_each_chunk_of_half_a_tebibyte() -> None:
    assert state_provider.MAX_MANIFEST == 2**39 // CHUNK * DIGEST


class Asked(Quiet):
    """Bulk connections to somebody who answers nothing, and to somebody with the error that ends it all."""

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

    with uncollected(state_fetch._Transfer) as left:
        await fail()
        await asyncio.sleep(0)  # the step that woke us is over
    assert left == []


class Slow(Quiet):
    """A provider that brings a piece after each half of the time after which a silent one is given up."""

    def __init__(self, state: GlobalState) -> None:
        self.asked: list[tuple[int, ...]] = []
        serve_state(self, Here(state))  # type: ignore[arg-type]

    def serve(self, kind: str, handler: Any) -> None:
        self._handler = handler

    async def request(
        self, peer: PeerId, kind: str, payload: bytes, destination: memoryview, *, progress: Any, **_: Any
    ) -> int:
        self.asked.append(msgspec.msgpack.decode(payload, type=Question).chunks)
        filled = 0
        async for answer in self._handler(self.me, payload):
            view = memoryview(answer).cast("B")
            for start in range(0, len(view), streams.REPLY_CHUNK):
                piece = view[start : start + streams.REPLY_CHUNK]
                await asyncio.sleep(TransferProfile().patience / 2)
                destination[filled : filled + len(piece)] = piece
                filled += len(piece)
                progress(filled)
        return filled


def test_a_provider_that_takes_long_for_each_chunk_is_not_silent() -> None:
    """Regression: it was given up, and asked again, while what it had been asked for was still on its way."""
    content = torch.randn(2 * CHUNK // 4)
    held, wanted = (GlobalState([entry("weight", content)]) for _ in range(2))
    held.tentative["weight"].copy_(content)
    digest = held.seal({})
    held.commit(1)
    provider: Any = Slow(held)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        ref = StateRef(1, digest, (PeerId("a"),))
        await fetch_state(provider, ref, wanted, Telemetry(loop.time), loop.time)

    run_turns(story())
    assert torch.equal(wanted.committed["weight"], content)
    asked = [chunk for chunks in provider.asked for chunk in chunks]
    assert sorted(asked) == sorted(set(asked)), "none twice"


async def test_what_a_silent_provider_still_brings_is_in_nobodys_way() -> None:
    """What it was asked for is taken back before it is asked once more, or another one is."""
    under_way = list[PeerId]()

    class Silent(Deserted):
        async def request(self, peer: PeerId, *_: Any, **__: Any) -> int:
            if under_way or self.once:
                raise MeshMismatch(f"asked again with {len(under_way)} under way")
            self.once = True
            under_way.append(peer)
            try:
                await asyncio.sleep(3600)
            finally:
                under_way.remove(peer)
            return 0

        once = False

    state = GlobalState([entry("weight", torch.zeros(3))])
    ref = StateRef(7, bytes(32), (PeerId("a"),))
    bulk: Any = Silent()
    profile = TransferProfile(patience=0.1, pause=0.01)
    async with asyncio.timeout(10):
        with pytest.raises(MeshMismatch, match="asked again with 0 under way"):
            await fetch_state(bulk, ref, state, Telemetry(time.monotonic), time.monotonic, profile)


@pytest.mark.parametrize(("rate", "silent"), [(0, 1), (500, 1), (5000, 0)])
def test_who_is_asked_over_a_connection_that_brings_something_else_first_is_not_silent(rate: int, silent: int) -> None:
    """Regression: on a slow line it was asked again and again, and each answer stood behind those before it, for ever.

    What says but that somebody is there is nothing.
    """
    before = 20.0  # seconds that the answer stands behind something else
    asked = list[float]()

    class Slowly(Deserted):
        def received(self, peer: PeerId) -> int:
            return int(rate * asyncio.get_running_loop().time())

        async def request(self, *_: Any, **__: Any) -> int:
            asked.append(asyncio.get_running_loop().time())
            await asyncio.sleep(before)
            raise MeshMismatch("it has come")

    async def story() -> None:
        loop = asyncio.get_running_loop()
        state, ref = GlobalState([entry("weight", torch.zeros(3))]), StateRef(7, bytes(32), (PeerId("a"),))
        bulk: Any = Slowly()
        with pytest.raises(MeshMismatch, match="it has come"):
            await fetch_state(bulk, ref, state, Telemetry(loop.time), loop.time, TransferProfile(attempts=2))

    if silent:
        with pytest.raises(StateError, match="silent for 10 s"):
            run_turns(story())
    else:
        run_turns(story())
        assert len(asked) == 1
