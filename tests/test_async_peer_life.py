"""A peer in an event loop starts once and ends whole, whatever happens as it does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ictp2p.async_peer import AsyncPeer
from ictp2p.config import Timeouts
from ictp2p.core.commands import Failed
from ictp2p.disk import FileDisk
from ictp2p.edge.network import TcpNetwork
from ictp2p.errors import (
    LocalProtocolError,
    PeerClosed,
    StateError,
)
from ictp2p.machine import Notice
from tests.meshed import all_training, config, mesh, reduction, until


@pytest.mark.parametrize("ending", ["close", "leave"])
@pytest.mark.parametrize("seeds", [(), ("127.0.0.1:1",)], ids=["as it begins", "at the door"])
async def test_a_peer_that_is_closed_while_it_starts_starts_no_more(ending: str, seeds: tuple[str, ...]) -> None:
    """Regression: it went on, and lived after it had been closed; or knocked until its time was up."""
    peer = AsyncPeer(
        config("a", join=seeds, global_timeouts=Timeouts(connect=0.2, stall=2.0, form=50.0, complete=60.0))
    )
    starting = asyncio.create_task(peer.start())
    await (until(lambda: hasattr(peer, "participation")) if seeds else asyncio.sleep(0))
    assert not await getattr(peer, ending)()
    with pytest.raises(PeerClosed):
        await starting
    with pytest.raises(PeerClosed):
        await peer.start()


async def test_a_peer_is_started_once_and_is_none_the_worse_for_a_second_time() -> None:
    """Regression: another core began on the same disk and the first one was closed by nobody, or a port was taken."""
    async with AsyncPeer(config("a")) as peer:
        address, core = peer.address, peer.core
        with pytest.raises(LocalProtocolError, match="a peer is started once"):
            await peer.start()
        assert (peer.address, peer.core) == (address, core)
        assert peer.status()["peer"] == peer.id
    starting = asyncio.create_task((later := AsyncPeer(config("b"))).start())
    await asyncio.sleep(0)
    with pytest.raises(LocalProtocolError, match="a peer is started once"):
        await later.start()
    await starting
    await later.leave()


async def test_a_peer_that_was_never_started_says_so() -> None:
    """Regression: it had no attribute 'reception', or 'core', of which nobody who read that had heard."""
    peer = AsyncPeer(config("a"))
    for use in (lambda: peer.address, peer.status):
        with pytest.raises(PeerClosed, match="not running yet"):
            use()
    with pytest.raises(PeerClosed, match="not running yet"):
        await peer.reduce(reduction(1.0))


async def test_a_subscriber_that_raises_does_so_at_its_own_cost() -> None:
    """Regression: the others heard nothing, a neighbour lost its connection, and a peer that had failed stayed open."""
    told: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    async with mesh("a", "b") as (peer, other):
        heard: list[Notice] = []

        def raises(notice: Notice) -> None:
            raise ZeroDivisionError

        peer.subscribe(raises)
        peer.subscribe(heard.append)
        connection = peer.driver.connection(other.id)
        other.set_training(True)
        await until(lambda: bool(heard) and any(c["training"] for c in peer.status()["clusters"]))
        assert peer.driver.connection(other.id) is connection
        peer._fail(StateError("no space left"))
        await until(lambda: isinstance(heard[-1], Failed))
        await peer.close()
        assert not peer._tasks, "it is closed"
    assert {type(error) for error in told} == {ZeroDivisionError}


async def test_a_close_that_was_given_up_does_not_keep_a_failed_peer_from_being_closed(tmp_path: Path) -> None:
    """Regression: whoever closed it then was cancelled, each time, and it was never closed to its end."""
    peer = AsyncPeer(config("a", data_dir=str(tmp_path)))
    await peer.start()
    peer._fail(StateError("no space left"))
    closing = asyncio.create_task(peer.close())
    await asyncio.sleep(0)  # it waits by now
    closing.cancel()
    await asyncio.wait([closing])
    await peer.close()
    FileDisk(tmp_path).close()


async def test_what_one_part_raises_as_it_is_closed_leaves_no_other_open(tmp_path: Path) -> None:
    """Regression: the port stayed open, the tasks ran on and the folder was held."""

    async def fails() -> None:
        raise OSError("no")

    peer = AsyncPeer(config("a", data_dir=str(tmp_path)))
    await peer.start()
    await peer.bulk.close()
    peer.bulk.close = fails  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no"):
        await peer.leave()
    assert not peer._tasks
    FileDisk(tmp_path).close()
    await (again := await TcpNetwork().serve(asyncio.Protocol, peer.address)).settled()
    again.close()


async def test_a_leave_that_is_cancelled_closes_the_peer(tmp_path: Path) -> None:
    """Regression: it went on listening and held its folder, and nobody was left to close it."""
    peer = AsyncPeer(config("a", data_dir=str(tmp_path)))
    entered = asyncio.Event()

    async def life() -> None:
        async with peer:
            peer.driver.stop()  # nobody is going to release it
            entered.set()

    living = asyncio.create_task(life())
    await entered.wait()
    await asyncio.sleep(0)  # it waits for its release by now
    living.cancel()
    with pytest.raises(asyncio.CancelledError):
        await living
    FileDisk(tmp_path).close()


async def test_a_peer_that_never_started_can_be_left() -> None:
    """Regression: it raised an AttributeError."""
    assert not await AsyncPeer(config("a")).leave()


async def test_who_has_left_need_not_leave_again() -> None:
    """Regression: it waited for its release once more, in vain, and told people that it had none."""
    async with AsyncPeer(config("a")) as peer:
        told: list[str] = []
        peer.telemetry.subscribe(lambda event: told.append(event.kind))
        first = await peer.leave()
        told.clear()
        assert await peer.leave() == first
    assert told == []


async def test_a_peer_that_leaves_gives_up_its_vote_and_is_not_mourned() -> None:
    async with mesh("a", "b") as peers:
        await all_training(peers)
        await asyncio.gather(*(p.reduce(reduction(1.0)) for p in peers))
        await peers[1].leave()
        await until(lambda: "b" not in peers[0].core.m.mesh.alive())
        statuses = [e.fields["status"] for e in peers[0].telemetry.events("member") if e.fields["member"] == "b"]
        assert statuses[-1] == "left"
        assert "dead" not in statuses
        alone = await peers[0].reduce(reduction(4.0))
        assert alone.participants == ("a",)
