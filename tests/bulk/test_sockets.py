"""The same over real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, cast

import pytest
import torch
import uvloop

from ictp2p.bulk import Agreed, Bulk, BulkProfile, reaching
from ictp2p.bulk.connection import BulkConnection
from ictp2p.collectives.channel import RoundTag
from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest, plan
from ictp2p.collectives.running.attempt import ExecuteProfile
from ictp2p.collectives.running.execute import all_reduce
from ictp2p.errors import ConnectionLost, IctError, PeerClosed
from ictp2p.types import PeerId

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return asyncio.run if request.param == "asyncio" else uvloop.run


async def listen(me: PeerId, ports: dict[PeerId, int], sealed: bool, share: bool) -> tuple[Bulk, asyncio.Server]:
    loop = asyncio.get_running_loop()

    def keys(peer: PeerId, context: bytes) -> Agreed:
        send, receive = (hashlib.blake2b(context + who.encode(), digest_size=16).digest() for who in (me, peer))
        return Agreed(send, receive)

    async def dial(peer: PeerId, timeout: float) -> asyncio.Transport:
        transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", ports[peer])
        return transport

    bulk = Bulk(
        me, keys, dial, profile=BulkProfile(stall=2.0, handshake=2.0, patience=0.25, sealed=sealed, share_memory=share)
    )

    class Accept(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            bulk.accept(cast("asyncio.Transport", transport))

    server = await loop.create_server(Accept, "127.0.0.1", 0)
    ports[me] = server.sockets[0].getsockname()[1]
    return bulk, server


@pytest.mark.real
@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("share", [True, False])
def test_everything_at_once_over_sockets(run: Run, sealed: bool, share: bool) -> None:
    async def blob(peer: PeerId, payload: bytes) -> AsyncGenerator[bytes, None]:
        for _ in range(5):
            yield payload * 500_000

    async def main() -> None:
        names, ports = tuple(PeerId(f"{n:032x}") for n in range(3)), dict[PeerId, int]()
        made = [await listen(me, ports, sealed, share) for me in names]
        bulks = [bulk for bulk, _ in made]
        links = {(a, b): LinkEstimate() for a in names for b in names if a != b}
        chosen = plan(PlanRequest(names, 2_000_003, 4, links)).plan
        inputs = [[torch.full((2_000_003,), float(n + 1))] for n in range(3)]
        outputs = [[torch.zeros(2_000_003)] for _ in range(3)]
        bulks[2].serve("blob", blob)
        into = bytearray(5_000_000)
        profile = ExecuteProfile(total=30)
        for attempt in range(2):
            tag = RoundTag(b"sockets", 1, attempt, chosen.digest())
            await asyncio.gather(
                bulks[0].request(names[2], "blob", b"ab", into, timeout=20),
                bulks[1].probe(names[2], 3_000_000, timeout=20),
                *(
                    all_reduce(chosen, n, inputs[n], outputs[n], bulks[n], tag, op="sum", profile=profile)
                    for n in range(3)
                ),
            )
            assert into == b"ab" * 2_500_000
            assert all(bool((out == 6).all()) for (out,) in outputs)
        rings = [c._outbound.ring for bulk in bulks for kept in bulk._pool._ready.values() for c in kept]
        assert any(rings) == share, "on Linux, one host is seen to be one"
        await asyncio.gather(*(bulk.close() for bulk in bulks))
        for _, server in made:
            server.close()
            await server.wait_closed()

    run(main())


@pytest.mark.real
@pytest.mark.parametrize("end", ["fail", "close"])
def test_who_drops_a_connection_does_not_look_like_one_who_has_said_all(run: Run, end: str) -> None:
    """Regression: others waited for what had been lost, for a whole stall, and then ended a healthy connection."""
    told = list[tuple[str, bool]]()

    async def main() -> None:
        names, ports = tuple(PeerId(f"{n:032x}") for n in range(2)), dict[PeerId, int]()
        made = [await listen(me, ports, True, False) for me in names]
        (one, _), (two, _) = made
        lost, gone = one.lost, asyncio.Event()

        def watched(connection: BulkConnection, reason: IctError, *, whole: bool) -> None:
            told.append((str(reason).partition(":")[0], whole))
            lost(connection, reason, whole=whole)
            gone.set()

        one._pool._tenant.lost = watched  # type: ignore[method-assign]
        dialed = await two.connection(names[0], 5)
        while not one._pool.among(names[1]):
            await asyncio.sleep(0)
        if end == "fail":
            dialed.fail(ConnectionLost("took nothing"))
        else:
            await dialed.close(PeerClosed("over"))
        await asyncio.wait_for(gone.wait(), 20)
        for bulk, server in made:
            await bulk.close()
            server.close()
            await server.wait_closed()

    run(main())
    assert told == [("connection reset", False) if end == "fail" else ("closed by the other side", True)]


@pytest.mark.real
def test_who_was_busy_while_a_handshake_was_finished_takes_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: asyncio's loop had read one of its two halves by then, and reset what the other end used already."""
    monkeypatch.setattr(reaching, "_SOON", 0.05)
    names, ports, dials, shrunk = tuple(PeerId(f"{n:032x}") for n in range(2)), dict[PeerId, int](), [], list[str]()
    up, busy, over = threading.Event(), threading.Event(), threading.Event()

    async def answer() -> None:
        bulk, server = await listen(names[1], ports, True, False)
        accept = bulk.accept

        def when_busy(transport: asyncio.Transport) -> None:
            assert busy.wait(10)
            accept(transport)

        bulk.accept = when_busy  # type: ignore[method-assign]
        up.set()
        await asyncio.to_thread(over.wait)
        await bulk.close()
        server.close()
        await server.wait_closed()

    async def main() -> None:
        bulk, server = await listen(names[0], ports, True, False)
        dial = bulk._pool._reaching._dial

        def work() -> None:
            busy.set()
            time.sleep(0.3)

        async def dialed(peer: PeerId, timeout: float) -> asyncio.Transport:
            dials.append(peer)
            transport = await dial(peer, timeout)
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, work)  # once we have said hello
            return transport

        bulk._pool._reaching._dial = dialed
        bulk._pool._reaching._shrink = shrunk.append
        await bulk.connection(names[1], 5)
        await bulk.close()
        server.close()
        await server.wait_closed()

    other = threading.Thread(target=asyncio.run, args=(answer(),))
    other.start()
    up.wait()
    try:
        run(main())
    finally:
        over.set()
        other.join()
    assert (len(dials), shrunk) == (1, [])
