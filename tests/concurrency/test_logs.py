"""What is logged by a peer reaches the program's handlers, and nothing of theirs reaches the peer."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from ictp2p.concurrency import logs
from ictp2p.concurrency.logs import Desk
from ictp2p.telemetry import Event, Telemetry

LOGGER = logging.getLogger("ictp2p.test_logs")
FULL = OSError("no space left on device")


class Handler(logging.Handler):
    """Blocks as long as its gate is shut, and raises if it is to."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.raises: BaseException | None = None
        self.gate.set()
        self.entered = threading.Event()
        self.seen: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.entered.set()
        assert self.gate.wait(20)
        self.seen.append(record)
        if self.raises is not None:
            raise self.raises


@pytest.fixture
def handler() -> Iterator[Handler]:
    handler = Handler()
    LOGGER.addHandler(handler)
    yield handler
    handler.gate.set()
    logs.flush()
    LOGGER.removeHandler(handler)


def test_a_warning_is_one_line_whatever_others_said_that_stands_in_it(handler: Handler) -> None:
    """Regression: what a stranger answered to a dial was written as it came, as another line, or a colour."""
    logs.warning(LOGGER, "%s refused: %s", "tokyo", "\x1b[2J\r\nWARNING:root:all is well")
    logs.warning(LOGGER, "probe of zürich failed: \x9b31m")
    assert logs.flush()
    assert [record.getMessage() for record in handler.seen] == [
        r"tokyo refused: \x1b[2J\r\nWARNING:root:all is well",
        r"probe of zürich failed: \x9b31m",
    ]


@pytest.mark.parametrize("error", [FULL, SystemExit(1)], ids=["an error", "an exit"])
def test_a_handler_that_raises_raises_into_nobody_and_is_told_of_what_comes_next(
    handler: Handler, error: BaseException
) -> None:
    handler.raises = error
    for number in range(3):
        logs.warning(LOGGER, "round %d", number)
    assert logs.flush()
    assert [record.getMessage() for record in handler.seen] == ["round 0", "round 1", "round 2"]


def test_a_handler_that_blocks_holds_up_nobody_and_costs_so_much_memory(handler: Handler) -> None:
    handler.gate.clear()
    for number in range(logs._ROOM + 50):
        logs.warning(LOGGER, "%d", number)
    assert not logs.flush(0.01)
    handler.gate.set()
    assert logs.flush(20.0)
    texts = [record.getMessage() for record in handler.seen]
    (lost,) = (text for text in texts if "dropped" in text)
    assert int(lost.split()[0]) == logs._ROOM + 50 - (len(texts) - 1)


def test_a_record_says_who_logged_it_and_what_was_raised(handler: Handler) -> None:
    try:
        raise KeyError("loss")
    except KeyError:
        logs.exception(LOGGER, "failed")
    assert logs.flush()
    (record,) = handler.seen
    assert record.pathname == __file__
    assert record.levelno == logging.ERROR
    assert "KeyError: 'loss'" in logging.Formatter().format(record)


def test_what_nobody_wants_is_not_kept(handler: Handler) -> None:
    LOGGER.setLevel(logging.CRITICAL)
    try:
        logs.warning(LOGGER, "unheard")
    finally:
        LOGGER.setLevel(logging.NOTSET)
    assert logs.flush()
    assert handler.seen == []


def test_where_no_thread_can_be_started_it_is_written_at_once(
    handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", cannot)
    handler.raises = FULL
    Desk().take(LOGGER, logging.WARNING, "no threads")
    assert [record.getMessage() for record in handler.seen] == ["no threads"]


def test_what_was_logged_last_is_written_before_the_process_ends() -> None:
    program = "import logging; from ictp2p.concurrency import logs; logs.warning(logging.getLogger('a'), 'the last')"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stderr == "the last\n"


def test_a_subscriber_that_fails_is_dropped_whatever_the_log_does(handler: Handler) -> None:
    """Regression: the handler's error went on into the protocol, and the subscriber failed on each later event."""
    telemetry, told, root = Telemetry(lambda: 0.0), list[str](), logging.getLogger("ictp2p.telemetry")

    def broken(event: Event) -> None:
        told.append(event.kind)
        raise RuntimeError("display gone")

    handler.raises = FULL
    root.addHandler(handler)
    try:
        telemetry.subscribe(broken)
        telemetry.event("one")
        telemetry.event("two")
        assert logs.flush()
    finally:
        root.removeHandler(handler)
    assert told == ["one"]
