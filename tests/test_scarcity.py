"""A peer where there is no more of something: typed errors that say of what, and nothing that is left behind."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ictp2p
from ictp2p.concurrency.loop_thread import _RUNNING, LoopThread
from ictp2p.errors import ConfigError, Exhausted

NOT_THERE = not Path("/proc/self/fd").exists()


def config(isolation: str, data_dir: str | None = None) -> ictp2p.Config:
    return ictp2p.Config.local(
        cluster="a", token="a token for tests only", listen="127.0.0.1:0", isolation=isolation, data_dir=data_dir
    )


def cannot(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@contextmanager
def nothing_left() -> Iterator[None]:
    """Nothing that is done within leaves a descriptor open; the garbage collector would close them some day."""
    LoopThread("the first").close()  # uvloop keeps a pipe from the first loop of a process on
    gc.collect()
    gc.disable()
    try:
        before = set(Path("/proc/self/fd").iterdir())
        yield
        assert set(Path("/proc/self/fd").iterdir()) <= before
    finally:
        gc.enable()


@pytest.mark.skipif(NOT_THERE, reason="counts descriptors in /proc")
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_start_without_threads_is_a_typed_error_and_leaves_no_descriptor(
    isolation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = ictp2p.Peer(config(isolation, str(tmp_path)))
    with nothing_left(), monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot)
        for _ in range(3):
            with pytest.raises(Exhausted, match="can't start new thread"):
                peer.start()
    with peer:
        assert peer.leader == peer.id


@pytest.mark.skipif(NOT_THERE, reason="counts descriptors in /proc")
def test_a_loop_ends_also_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its executor is waited for in one."""

    async def busy() -> None:
        await loop._loop.run_in_executor(None, int)

    with nothing_left(), monkeypatch.context() as patch:
        loop = LoopThread("test")
        loop.run(busy)
        patch.setattr(threading.Thread, "start", cannot)
        loop.close()
    assert loop not in _RUNNING


def test_a_peer_in_a_process_leaves_politely_also_where_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: its deadline was to be kept by a thread that could not be had, and the others noticed a death."""
    with ictp2p.Peer(config("thread")) as a:
        gone: list[str] = []
        left = threading.Event()

        def watch(event: dict[str, object]) -> None:
            if event["kind"] == "member" and event.get("status") in ("left", "dead"):
                gone.append(str(event["status"]))
                left.set()

        a.on_event(watch)
        b = ictp2p.Peer(
            ictp2p.Config.local(
                cluster="b",
                token="a token for tests only",
                listen="127.0.0.1:0",
                join=(str(a.address),),
                isolation="process",
            )
        )
        b.start()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", cannot)
            b.close()
        assert left.wait(20.0)
        assert gone == ["left"]


def refused(*_: object) -> int:
    """As seccomp does."""
    raise PermissionError(1, "Operation not permitted")


def test_a_peer_in_a_process_needs_memory_that_can_be_shared_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "memfd_create", refused)
    with pytest.raises(ConfigError, match=r"isolation = 'process'.*memfd_create.*not permitted.*'thread'"):
        ictp2p.Peer(config("process")).start()


def test_a_folder_whose_name_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/donn\xe9es")
    with pytest.raises(ConfigError, match=r"donn.*UTF-8"):
        ictp2p.Peer(config("process", name)).start()


@pytest.mark.parametrize(
    "make", [lambda: OSError(24, "Too many open files"), lambda: RuntimeError("can't start new thread")]
)
def test_what_lacks_is_known_through_what_came_of_it(make: Callable[[], Exception]) -> None:
    error = ConfigError("no peer")
    error.__cause__ = make()
    assert ictp2p.errors.lacking(error)
    assert not ictp2p.errors.lacking(ConfigError("no peer"))
