"""The driver: commands in order whatever calls back, one connection per pair, one timer."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from dataclasses import dataclass, field
from typing import Any

import pytest

from ictp2p.core.cards import PeerCard
from ictp2p.core.commands import Command, Dial, Hangup, Restarted, Transmit
from ictp2p.core.machines import CODECS
from ictp2p.core.packets import Channel, Packet, encode_packet
from ictp2p.errors import IctError, LocalProtocolError, Refused, StateError, Unreachable
from ictp2p.machine import Notice, Persist
from ictp2p.runtime.driver import Driver
from ictp2p.sync.messages import Greet
from ictp2p.types import Address, ClusterId, PeerId

ME, LOW, HIGH = PeerId("5"), PeerId("1"), PeerId("9")
WHERE = Address("127.0.0.1", 1)


@dataclass
class FakeCore:
    """Notes its inputs, and answers with what the test scripted."""

    card: PeerCard = field(default_factory=lambda: PeerCard(ME, ClusterId("a"), "", bytes(32)))
    inputs: list[tuple[Any, ...]] = field(default_factory=list)
    due: float | None = None
    answers: list[Command] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        def called(*arguments: Any) -> list[Command]:
            self.inputs.append((name, *arguments[:-1]))
            answers, self.answers = self.answers, []
            return answers

        return called

    def next_timeout(self) -> float | None:
        return self.due


@dataclass(eq=False)
class FakeConnection:
    """A control connection that nobody is at the other end of."""

    peer_id: PeerId
    dialed: bool
    log: list[Any] = field(default_factory=list)
    process: bytes = b"first"
    local: Address = WHERE
    is_open: bool = True
    on_frame: Any = None
    on_closed: Any = None

    def start(self, on_frame: Any, on_closed: Any) -> None:
        self.on_frame, self.on_closed = on_frame, on_closed

    def send(self, frame: bytes) -> bool:
        self.log.append(("send", frame))
        return True

    def close(self) -> None:
        self.end(None)

    abort = close

    async def wait_closed(self) -> None:
        return

    def end(self, reason: IctError | None) -> None:
        if self.is_open:
            self.is_open = False
            if self.on_closed is not None:
                self.on_closed(reason)


class FakeDisk:
    """Notes what it is given among everything else that happens."""

    def __init__(self, log: list[Any]) -> None:
        self._log = log

    def load(self, key: str) -> bytes | None:
        return None

    def save(self, key: str, value: bytes) -> None:
        if key == "too much":
            raise StateError("cannot write: No space left on device")
        self._log.append(("save", key))


@dataclass(frozen=True, slots=True)
class Told(Notice):
    """Something for the floor above."""


class Bed:
    """A driver with fakes all around it; `log` has everything in order."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.shown: list[str] = []
        self.core = FakeCore()
        self.disk = FakeDisk(self.log)
        self.on_notice: Any = lambda notice: None
        self.now = 0.0
        self.driver = Driver(
            self.core,  # type: ignore[arg-type]
            network=self,  # type: ignore[arg-type]
            security=None,  # type: ignore[arg-type]
            disk=self.disk,
            clock=lambda: self.now,
            on_notice=lambda notice: self.on_notice(notice),
            on_failure=lambda error: self.log.append(("failed", str(error))),
            on_shown=self.shown.append,
            on_stall=lambda seconds: self.log.append(("stalled", seconds)),
            on_fault=lambda error: self.log.append(("fault", str(error))),
        )

    def what_fails(self) -> Notice:
        """A command that cannot be carried out, and after which all goes well again."""

        def fail_once(notice: Notice) -> None:
            self.on_notice = lambda notice: None
            raise ZeroDivisionError

        self.on_notice = fail_once
        return Told()

    def connection(self, peer: PeerId, *, dialed: bool, process: bytes = b"first") -> FakeConnection:
        made = FakeConnection(peer, dialed, self.log, process)
        self.driver.adopt(made)  # type: ignore[arg-type]
        return made


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
    return encode_packet(Packet(PeerId("a" * 32), ClusterId("a"), HIGH, 1, Channel.ROUNDS, body))


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
    bed.driver.execute([Transmit(LOW, b"to nobody"), Hangup(LOW, "nobody")])
    assert bed.log == []
    there = bed.connection(LOW, dialed=True)
    bed.driver.execute([Hangup(LOW, "garbage")])
    assert not there.is_open
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
