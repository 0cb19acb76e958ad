"""The driver's connections: one to each peer, the same one at both ends, whoever dialed, and however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any

import pytest

from ictp2p.core.commands import Dial, Hangup, Restarted, Transmit
from ictp2p.errors import IctError, Refused, Unreachable
from ictp2p.machine import Notice
from ictp2p.types import Address, PeerId
from tests.runtime.driver_bed import HIGH, LOW, WHERE, Bed, FakeConnection


@pytest.mark.parametrize(("peer", "kept_is_dialed"), [(HIGH, True), (LOW, False)])
@pytest.mark.parametrize("first_is_dialed", [True, False])
async def test_of_two_connections_both_sides_keep_the_one_that_the_lower_id_dialed(
    peer: PeerId, kept_is_dialed: bool, first_is_dialed: bool
) -> None:
    bed = Bed()
    first = bed.connection(peer, dialed=first_is_dialed)
    second = bed.connection(peer, dialed=not first_is_dialed)
    kept = bed.driver.connection(peer)
    assert kept is (first if first_is_dialed == kept_is_dialed else second)
    surplus = second if kept is first else first
    surplus.end(None)
    assert ("lost", peer) not in bed.core.inputs, "the end of the surplus one is not the peer's death"
    kept.end(None)  # type: ignore[union-attr]
    assert bed.core.inputs[-1] == ("lost", peer)
    await bed.driver.close()


async def test_the_surplus_connection_is_still_read() -> None:
    bed = Bed()
    bed.connection(HIGH, dialed=True)
    surplus = bed.connection(HIGH, dialed=False)
    surplus.on_frame(b"on its way")
    assert bed.core.inputs[-1] == ("receive", HIGH, b"on its way")
    await bed.driver.close()


async def test_a_newer_connection_by_the_same_side_replaces_a_dead_one() -> None:
    bed = Bed()
    old = bed.connection(HIGH, dialed=False)
    new = bed.connection(HIGH, dialed=False)
    assert bed.driver.connection(HIGH) is new
    old.end(None)
    assert bed.core.inputs.count(("opened", HIGH)) == 2
    assert ("lost", HIGH) not in bed.core.inputs
    await bed.driver.close()


async def test_of_two_that_the_other_side_dialed_it_ends_one_and_the_other_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: they overtook each other, so each end ended the one that the other kept, and both peers were lost."""
    monkeypatch.setattr("ictp2p.runtime.driver._RETIREMENT", 0.0)
    bed = Bed()
    first, second = (bed.connection(HIGH, dialed=False) for _ in range(2))
    await asyncio.sleep(0.01)
    assert first.is_open
    assert bed.driver.connection(HIGH) is second
    second.end(None)
    assert bed.driver.connection(HIGH) is first
    assert bed.core.inputs[-1] == ("opened", HIGH), "what was under way on the other one is said again"
    first.end(None)
    assert bed.core.inputs[-1] == ("lost", HIGH)
    await bed.driver.close()


async def test_the_heir_of_a_connection_is_the_newest_open_one_to_the_same_peer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ictp2p.runtime.driver._FORBEARANCE", 0.0)
    bed = Bed()
    oldest, older, ending, last = (bed.connection(HIGH, dialed=False) for _ in range(4))
    for _ in range(2):
        bed.connection(LOW, dialed=False)
    ending.is_open = False  # we have yet to be told that it has ended
    last.end(None)
    assert bed.driver.connection(HIGH) is older
    await asyncio.sleep(0.01)
    assert (oldest.is_open, older.is_open) == (False, True), "the heir is no surplus any more"
    older.end(None)
    assert bed.driver.connection(HIGH) is None
    assert bed.core.inputs[-1] == ("lost", HIGH), "nobody is left"
    await bed.driver.close()


async def test_a_surplus_connection_that_nobody_ends_is_ended_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ictp2p.runtime.driver._FORBEARANCE", 0.0)
    bed = Bed()
    first, second = (bed.connection(HIGH, dialed=False) for _ in range(2))
    await asyncio.sleep(0.01)
    assert (first.is_open, second.is_open) == (False, True)
    await bed.driver.close()


@pytest.mark.parametrize("turns", range(3))
async def test_a_close_that_is_given_up_ends_the_connections_all_the_same(turns: int) -> None:
    bed = Bed()
    connection = bed.connection(HIGH, dialed=True)
    bed.driver._spawn(asyncio.sleep(100))  # as a dial that is under way
    closing = asyncio.ensure_future(bed.driver.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await closing
    assert turns == 0 or not connection.is_open
    await bed.driver.close()


@pytest.mark.parametrize("first_is_dialed", [True, False])
@pytest.mark.parametrize("second_is_dialed", [True, False])
async def test_a_restarted_peer_is_not_taken_for_its_former_life(
    *, first_is_dialed: bool, second_is_dialed: bool
) -> None:
    bed = Bed()
    told = list[Notice]()
    bed.on_notice = told.append
    surplus = bed.connection(HIGH, dialed=not first_is_dialed)
    old = bed.connection(HIGH, dialed=first_is_dialed)
    bed.core.inputs.clear()
    assert not told
    new = bed.connection(HIGH, dialed=second_is_dialed, process=b"second")
    assert bed.core.inputs == [("lost", HIGH), ("opened", HIGH)], "nothing that is built on the old one stays"
    assert bed.driver.connection(HIGH) is new
    assert not old.is_open
    assert not surplus.is_open, "what its former life said must not come after what this one says"
    assert told == [Restarted(HIGH)], "its data connections lead to nobody"
    await bed.driver.close()


async def test_that_a_peer_restarted_is_told_though_its_connection_had_ended() -> None:
    """Regression: after a reboot the control connection had mostly been reset before, and data connections stayed."""
    bed = Bed()
    told = list[Notice]()
    bed.on_notice = told.append
    for process in (b"first", b"first", b"second"):
        connection = bed.connection(HIGH, dialed=True, process=process)
        assert told == [Restarted(HIGH)] * (process == b"second")
        bed.driver._lost(connection, None)
        assert bed.driver.connection(HIGH) is None
    await bed.driver.close()


async def test_the_stack_knows_of_a_connection_before_its_first_frame() -> None:
    bed = Bed()
    eager = FakeConnection(HIGH, dialed=False, log=bed.log)
    eager.start = lambda on_frame, on_closed: on_frame(b"early")  # type: ignore[method-assign]
    bed.driver.adopt(eager)  # type: ignore[arg-type]
    assert bed.core.inputs == [("opened", HIGH), ("receive", HIGH, b"early")], "in this order"
    assert bed.driver.connection(HIGH) is eager
    await bed.driver.close()


@pytest.mark.parametrize(("error", "refused"), [(Refused("nobody"), True), (Unreachable("silence"), False)])
async def test_a_dial_that_fails_says_whether_it_was_refused(
    error: IctError, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("ictp2p.runtime.driver.open_control", fail)
    bed = Bed()
    bed.driver.execute([Dial(HIGH, WHERE)])
    async with asyncio.timeout(5):
        while not bed.core.inputs:
            await asyncio.sleep(0)
    assert bed.core.inputs == [("dial_failed", HIGH, refused)]
    await bed.driver.close()


async def test_a_connection_that_the_stack_asked_for_shows_where_this_host_is_as_every_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: those that were dialed again after a loss did not, though that is when a host has moved."""
    bed = Bed()

    async def opened(*_: object, **__: object) -> FakeConnection:
        return FakeConnection(HIGH, dialed=True, log=bed.log, local=Address("192.0.2.7", 40000))

    monkeypatch.setattr("ictp2p.runtime.driver.open_control", opened)
    bed.connection(LOW, dialed=False)
    bed.driver.execute([Dial(HIGH, WHERE)])
    async with asyncio.timeout(5):
        while len(bed.shown) < 2:
            await asyncio.sleep(0)
    assert bed.shown == [WHERE.host, "192.0.2.7"]
    await bed.driver.close()


async def test_a_dial_that_ends_in_what_nobody_expects_has_failed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the stack took it for being under way, and never dialed that peer again."""

    async def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    monkeypatch.setattr("ictp2p.runtime.driver.open_control", fail)
    bed = Bed()
    bed.driver.execute([Dial(HIGH, WHERE)])
    async with asyncio.timeout(5):
        while not told:
            await asyncio.sleep(0)
            gc.collect()  # an exception that nobody asked for is told when its task is
    assert bed.core.inputs == [("dial_failed", HIGH, False)]
    assert [type(error) for error in told] == [ZeroDivisionError]
    await bed.driver.close()


@pytest.mark.parametrize("greets", [True, False])
async def test_who_does_not_greet_is_hung_up_on(greets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ictp2p.runtime.driver._GREETING", 0.0)
    bed = Bed()
    asked = asyncio.Event()

    def has_greeted(peer: PeerId) -> bool:
        asked.set()
        return greets

    bed.core.has_greeted = has_greeted  # type: ignore[method-assign]
    there = bed.connection(HIGH, dialed=False)
    async with asyncio.timeout(5):
        await asked.wait()
    assert there.is_open == greets
    await bed.driver.close()


@pytest.mark.parametrize("restarted", [True, False])
async def test_a_connection_is_read_whatever_its_coming_causes(*, restarted: bool) -> None:
    """Regression: it looked open for as long as the other side was there, and nobody ever read it."""
    bed = Bed()
    if restarted:
        bed.connection(HIGH, dialed=False)
    bed.core.answers = [bed.what_fails()]
    with pytest.raises(ZeroDivisionError):
        bed.connection(HIGH, dialed=False, process=b"second")
    there: Any = bed.driver.connection(HIGH)
    assert there.process == b"second"
    there.on_frame(b"hello")
    assert bed.core.inputs[-2:] == [("opened", HIGH), ("receive", HIGH, b"hello")]
    await bed.driver.close()


async def test_a_frame_for_a_peer_that_is_gone_is_dropped_and_a_hangup_ends_a_connection() -> None:
    bed = Bed()
    bed.driver.execute([Transmit(LOW, b"to nobody"), Hangup(LOW)])
    assert bed.log == []
    there = bed.connection(LOW, dialed=True)
    bed.driver.execute([Hangup(LOW)])
    assert not there.is_open
    await bed.driver.close()
