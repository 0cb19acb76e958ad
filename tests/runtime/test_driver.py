"""The driver: commands in order whatever calls back, one connection per pair, one timer."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from ictp2p.core.commands import Command, Dial, Transmit
from ictp2p.core.machines import CODECS
from ictp2p.core.packets import Channel, Packet, encode_packet
from ictp2p.errors import LocalProtocolError
from ictp2p.machine import Persist
from ictp2p.sync.messages import Greet
from ictp2p.types import ClusterId, PeerId
from tests.runtime.driver_bed import HIGH, LOW, WHERE, Bed, Told


async def test_what_a_listener_asks_for_never_overtakes_a_persist() -> None:
    bed = Bed()
    bed.connection(LOW, dialed=True)
    bed.on_notice = lambda notice: bed.driver.execute([Transmit(LOW, b"from the listener")])
    bed.driver.execute([Told(), Persist("promise", b""), Transmit(LOW, b"reply")])
    assert bed.log == [("save", "promise"), ("send", b"reply"), ("send", b"from the listener")]
    await bed.driver.close()


async def test_nothing_leaves_any_more_once_the_disk_has_refused_what_it_relied_on() -> None:
    bed = Bed()
    connection = bed.connection(LOW, dialed=True)
    bed.driver.execute([Persist("promise", b""), Persist("too much", b""), Transmit(LOW, b"relies on it")])
    bed.driver.execute([Persist("promise", b""), Transmit(LOW, b"as if it had been kept")])
    connection.on_frame(b"a question")
    assert bed.log == [("save", "promise"), ("failed", "cannot write: No space left on device")]
    assert bed.core.inputs[-1] == ("opened", LOW), "the stack is told nothing either"
    await bed.driver.close()


async def test_a_disk_that_takes_long_is_told_of_once_it_has_kept_it() -> None:
    bed = Bed()
    save = bed.disk.save

    def slow(key: str, value: bytes) -> None:
        bed.now += len(value)
        save(key, value)

    bed.disk.save = slow  # type: ignore[method-assign]
    bed.driver.execute([Persist("at once", b""), Persist("term", bytes(3))])
    assert bed.log == [("save", "at once"), ("save", "term"), ("stalled", 3.0)]
    await bed.driver.close()


async def test_what_is_on_disk_already_is_not_written_again_and_what_is_not_is() -> None:
    bed = Bed()
    bed.connection(LOW, dialed=True)
    for value in (b"one", b"one", b"two", b"one"):
        bed.driver.execute([Persist("promise", value), Persist("term", b"one"), Transmit(LOW, value)])
    saves = [each for each in bed.log if each[0] == "save"]
    assert saves == [("save", "promise"), ("save", "term"), ("save", "promise"), ("save", "promise")]
    assert bed.log.index(("send", b"two")) > bed.log.index(saves[-1]), "still before what relies on it"
    await bed.driver.close()


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
async def test_nothing_leaves_any_more_once_keeping_it_ended_in_what_nobody_expects(error: type[BaseException]) -> None:
    """Regression: what was queued behind left with the next command."""
    bed = Bed()
    bed.connection(LOW, dialed=True)

    def interrupted(key: str, value: bytes) -> None:
        raise error

    bed.disk.save = interrupted  # type: ignore[method-assign]
    with contextlib.suppress(KeyboardInterrupt):
        bed.driver.execute([Persist("promise", b""), Transmit(LOW, b"relies on it")])
    bed.driver.execute([Transmit(LOW, b"as if it had been kept")])
    assert bed.log == ([("failed", "'promise' could not be kept: MemoryError()")] if error is MemoryError else [])
    await bed.driver.close()


async def test_time_is_not_forgotten_over_a_command_that_cannot_be_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a frame that was too long for its connection left the timer unset until somebody else spoke."""
    monkeypatch.setattr("ictp2p.runtime.driver._AFTER_A_FAULT", 0.01)
    bed = Bed()
    bed.core.due = 0.0
    with pytest.raises(ZeroDivisionError):
        bed.driver.execute([bed.what_fails()])
    async with asyncio.timeout(5):
        while ("handle_timeout",) not in bed.core.inputs:
            await asyncio.sleep(0.001)
    await bed.driver.close()


def packet(body: bytes) -> bytes:
    return encode_packet(Packet(PeerId("a" * 32), ClusterId("a"), PeerId("b" * 32), 1, Channel.ROUNDS, body))


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (packet(CODECS[Channel.ROUNDS].encode(Greet(7, b"lineage!"))), "ROUNDS Greet"),
        (packet(b"?"), "message that nobody could read"),
        (b"?", "message that nobody could read"),
    ],
)
async def test_a_message_of_ours_that_is_too_long_is_lost_and_said_and_nothing_else(frame: bytes, what: str) -> None:
    """Regression: what was asked for behind it waited, and whoever's message it answered was taken for its cause."""
    bed = Bed()
    there = bed.connection(HIGH, dialed=False)
    bed.connection(LOW, dialed=True)

    def refuse(frame: bytes) -> bool:
        raise LocalProtocolError("over the limit")

    there.send = refuse  # type: ignore[method-assign]
    bed.driver.execute([Transmit(HIGH, frame), Persist("promise", b""), Transmit(LOW, b"reply")])
    said = f"{what} of {len(frame)} bytes was not sent: over the limit"
    assert bed.log == [("fault", said), ("save", "promise"), ("send", b"reply")]
    assert there.is_open
    await bed.driver.close()


async def test_what_we_get_wrong_over_a_message_is_no_fault_of_its_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: its connection was closed for that, and nothing was said."""
    monkeypatch.setattr("ictp2p.runtime.driver._AFTER_A_FAULT", 0.01)
    bed = Bed()
    there = bed.connection(HIGH, dialed=False)
    bed.core.due = 0.0

    def stumble(*_: object) -> list[Command]:
        raise LocalProtocolError("cannot propose")

    monkeypatch.setattr(bed.core, "receive", stumble, raising=False)
    there.on_frame(b"question")
    assert bed.log == [("fault", "cannot propose")]
    assert there.is_open
    async with asyncio.timeout(5):
        while ("handle_timeout",) not in bed.core.inputs:
            await asyncio.sleep(0.001)
    await bed.driver.close()


async def test_what_became_due_is_not_put_off_to_what_was_due_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a timer that was set already stayed as it was, however soon what the faulty input made due."""
    monkeypatch.setattr("ictp2p.runtime.driver._AFTER_A_FAULT", 0.01)
    bed = Bed()
    bed.core.due = 1000.0
    bed.driver.execute([])
    bed.core.due = 0.0
    with pytest.raises(ZeroDivisionError):
        bed.driver.execute([bed.what_fails()])
    async with asyncio.timeout(5):
        while ("handle_timeout",) not in bed.core.inputs:
            await asyncio.sleep(0.001)
    await bed.driver.close()


async def test_what_is_queued_behind_a_command_that_fails_is_carried_out() -> None:
    """Regression: it waited for the next input, though it might be what the others wait for."""
    bed = Bed()
    bed.connection(LOW, dialed=True)
    with pytest.raises(ZeroDivisionError):
        bed.driver.execute([bed.what_fails(), Persist("promise", b""), Transmit(LOW, b"reply")])
    async with asyncio.timeout(5):
        while not bed.log:
            await asyncio.sleep(0)
    assert bed.log == [("save", "promise"), ("send", b"reply")]
    await bed.driver.close()


async def test_time_passes_once_it_is_due_and_not_after_the_end() -> None:
    bed = Bed()
    bed.core.due = 0.0
    bed.driver.execute([])
    async with asyncio.timeout(5):
        while ("handle_timeout",) not in bed.core.inputs:
            await asyncio.sleep(0.001)
    await bed.driver.close()
    count = len(bed.core.inputs)
    bed.connection(HIGH, dialed=False)
    assert len(bed.core.inputs) == count


async def test_time_goes_on_after_an_exception_that_nobody_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ictp2p.runtime.driver._AFTER_A_FAULT", 0.01)
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    bed = Bed()
    bed.core.due = 0.0
    bed.core.answers = [bed.what_fails()]
    bed.driver.execute([])
    async with asyncio.timeout(5):
        while bed.core.inputs.count(("handle_timeout",)) < 2:
            await asyncio.sleep(0.001)
    await bed.driver.close()
    assert [type(error) for error in told] == [ZeroDivisionError]


async def test_nothing_is_dialed_or_sent_after_the_end() -> None:
    bed = Bed()
    await bed.driver.close()
    bed.driver.execute([Dial(HIGH, WHERE), Persist("promise", b""), Told()])
    assert bed.log == []
    assert len(asyncio.all_tasks()) == 1
