import io
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ictp2p.demo import worker
from ictp2p.demo.corpus import Corpus
from ictp2p.demo.lines import Commands, Events, decode
from ictp2p.demo.model import Shape
from ictp2p.errors import HandshakeFailed

TEXT = b"the quick brown fox jumps over the lazy dog. " * 20
ARGUMENTS = ["--cluster", "oslo", "--sync-every", "2", "--batch", "2"]


class FakePeer:
    """Trains alone; ends its steps when drained."""

    id = "a" * 32
    address = "127.0.0.1:7001"

    def __init__(self, config: Any) -> None:
        self.config = config
        self.drained = threading.Event()
        self.callbacks: list[Callable[[dict[str, Any]], None]] = []

    def __enter__(self) -> "FakePeer":
        for callback in self.callbacks:
            callback({"kind": "started", "time": 0.0, "peer": self.id})
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def on_event(self, callback: Callable[[dict[str, Any]], None]) -> None:
        self.callbacks.append(callback)

    def steps(self, loader: Iterable[Any]) -> Iterator[Any]:
        return itertools.takewhile(lambda _: not self.drained.is_set(), loader)

    def drain(self) -> None:
        self.drained.set()

    def stats(self) -> dict[str, int]:
        return {"frames": 3}


class FakePolicy:
    """A new version every `sync_every` steps of the optimizer, announced to the test before the next one."""

    def __init__(self, peer: FakePeer, model: nn.Module, inner: torch.optim.Optimizer, sync_every: int) -> None:
        self._model, self._inner, self._sync_every, self._steps = model, inner, sync_every, 0
        self.version = 1

    def __enter__(self) -> "FakePolicy":
        self._hook = self._inner.register_step_post_hook(self._stepped)
        return self

    def __exit__(self, *error: object) -> None:
        self._hook.remove()

    def _stepped(self, *_: object) -> None:
        self._steps += 1
        self.version = 1 + self._steps // self._sync_every

    def digest(self) -> str:
        return f"digest-of-{self.version}"

    def global_parameters(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self._model.named_parameters()}


class Stdin:
    """Commands whose next line comes when what the worker has told makes it so, and is heard before it goes on."""

    def __init__(self, replies: list[tuple[Callable[[dict[str, Any]], bool], dict[str, Any]]]) -> None:
        self._replies = replies
        self._due = threading.Semaphore(0)
        self._heard = threading.Semaphore(0)

    def told(self, event: dict[str, Any]) -> None:
        if self._replies and self._replies[0][0](event):
            self._due.release()
            assert self._heard.acquire(timeout=30)

    def __iter__(self) -> Iterator[str]:
        while self._replies:
            assert self._due.acquire(timeout=30)
            yield json.dumps(self._replies.pop(0)[1])
            self._heard.release()  # asked for the next one, the reader has done with this one
        threading.Event().wait()  # the line stays open, as the controller's does


class Worker:
    """A worker over a fake peer, and what it told."""

    def __init__(self, replies: list[tuple[Callable[[dict[str, Any]], bool], dict[str, Any]]]) -> None:
        self.told: list[dict[str, Any]] = []
        self._stdin = Stdin(replies)
        outer = self

        class Told(io.StringIO):
            def write(self, line: str) -> int:
                event = decode(line)
                assert event is not None
                outer.told.append(event)
                outer._stdin.told(event)
                return len(line)

        self._events = Events(Told())

    def run(self, *arguments: str) -> None:
        options = worker._parser().parse_args([*ARGUMENTS, *arguments])
        worker.train(options, self._events, Commands(self._stdin))  # type: ignore[arg-type]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.told if event["kind"] == kind]


def when(kind: str, **fields: Any) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event["kind"] == kind and fields.items() <= event.items()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    configured = SimpleNamespace(local=lambda **fields: SimpleNamespace(**fields))
    monkeypatch.setattr(worker.ictp2p, "Peer", FakePeer, raising=False)
    monkeypatch.setattr(worker.ictp2p, "DiLoCo", FakePolicy, raising=False)
    monkeypatch.setattr(worker.ictp2p, "Config", configured, raising=False)
    monkeypatch.setattr(worker.corpus, "load", lambda shards: Corpus((TEXT,) * shards, TEXT))
    monkeypatch.setattr(worker.model, "Shape", lambda: Shape(context=8, layers=1, heads=2, width=16))
    monkeypatch.setenv("ICTP2P_TOKEN", "0123456789abcdef")


def test_it_waits_for_go_and_tells_what_happens() -> None:
    run = Worker([(when("ready"), {"do": "go"}), (when("version", version=4), {"do": "drain"})])
    run.run("--validate")
    assert [event["kind"] for event in run.told[:4]] == ["started", "ready", "version", "validation"]
    assert run.of("ready")[0]["address"] == "127.0.0.1:7001"
    versions = [event["version"] for event in run.of("version")]
    assert versions == list(range(1, versions[-1] + 1))
    assert [event["digest"] for event in run.of("version")] == [f"digest-of-{v}" for v in versions]
    assert [event["version"] for event in run.of("validation")] == versions
    assert run.told[-1]["kind"] == "drained"


def test_it_stops_at_exactly_the_version_asked_for() -> None:
    run = Worker(
        [(when("ready"), {"do": "go"}), (when("version", version=1), {"do": "stop", "version": 40}),
         (when("stopped"), {"do": "exit"})]
    )  # fmt: skip
    run.run()
    (stopped,) = run.of("stopped")
    assert (stopped["version"], stopped["digest"]) == (40, "digest-of-40")
    assert stopped["stats"] == {"frames": 3}
    assert stopped["validation_loss"] > 0
    assert run.told[-1] is stopped
    assert max(event["version"] for event in run.of("version")) == 40


def test_a_later_stop_sends_it_on() -> None:
    run = Worker(
        [(when("ready"), {"do": "go"}), (when("version", version=1), {"do": "stop", "version": 40}),
         (when("stopped", version=40), {"do": "stop", "version": 42}), (when("stopped", version=42), {"do": "exit"})]
    )  # fmt: skip
    run.run()
    assert [event["version"] for event in run.of("stopped")] == [40, 42]


def test_a_stop_that_comes_too_late_is_answered_at_once() -> None:
    run = Worker(
        [(when("ready"), {"do": "go"}), (when("version", version=9), {"do": "stop", "version": 3}),
         (when("stopped"), {"do": "exit"})]
    )  # fmt: skip
    run.run()
    (stopped,) = run.of("stopped")
    assert stopped["version"] >= 9


def test_told_to_exit_before_training_it_does() -> None:
    run = Worker([(when("ready"), {"do": "exit"})])
    run.run()
    assert [event["kind"] for event in run.told] == ["started", "ready"]


def test_the_loss_is_told_every_few_steps_and_falls() -> None:
    run = Worker(
        [(when("ready"), {"do": "go"}), (when("version", version=1), {"do": "stop", "version": 60}),
         (when("stopped"), {"do": "exit"})]
    )  # fmt: skip
    run.run("--learning-rate", "0.01")
    steps = run.of("step")
    assert [event["step"] for event in steps] == list(range(worker.STEP_EVERY, 119, worker.STEP_EVERY))
    assert steps[-1]["loss"] < steps[0]["loss"]


def test_an_error_is_told_by_name_and_fails_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise HandshakeFailed("127.0.0.1:7001 refused our join token")

    stream = io.StringIO()
    monkeypatch.setattr(worker, "train", refuse)
    monkeypatch.setattr(worker.Events, "take_stdout", lambda: Events(stream))
    assert worker.main(ARGUMENTS) == 1
    event = decode(stream.getvalue())
    assert event is not None
    assert (event["error"], event["text"]) == ("HandshakeFailed", "127.0.0.1:7001 refused our join token")


def test_the_configuration_is_the_command_line_and_the_token_of_the_environment() -> None:
    arguments = ["--join", "127.0.0.1:7001", "--join", "127.0.0.1:7002", "--bulk-rate", "8e6", "--data-dir", "d"]
    config = worker._config(worker._parser().parse_args([*ARGUMENTS, *arguments]))
    assert vars(config) == {
        "cluster": "oslo", "token": "0123456789abcdef", "listen": "127.0.0.1:0", "data_dir": "d",
        "join": ("127.0.0.1:7001", "127.0.0.1:7002"), "bulk_rate": 8e6,
    }  # fmt: skip
