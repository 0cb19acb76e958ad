"""A driver whose stack, connections and disk are made up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ictp2p.core.cards import PeerCard
from ictp2p.core.commands import Command
from ictp2p.errors import IctError, StateError
from ictp2p.machine import Notice
from ictp2p.runtime.driver import Driver
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
