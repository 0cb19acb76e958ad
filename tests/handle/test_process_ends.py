"""What becomes of a peer, and of its program, when the process of one of them is stopped, is killed, or ends."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import resource
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ictp2p
from ictp2p.async_peer import AsyncPeer
from ictp2p.concurrency.loop_thread import LoopThread
from ictp2p.disk import FileDisk
from ictp2p.errors import PeerClosed
from ictp2p.handle import Ended, Handle, line, process, thread, to_training
from ictp2p.handle.line import Line
from ictp2p.handle.memory import Arena
from ictp2p.handle.process import ProcessHandle
from ictp2p.handle.questions import Questions
from ictp2p.handle.requests import Requests
from ictp2p.handle.service import VIEWS
from ictp2p.handle.thread import beside
from tests.handle.homes import PATIENCE, ROOT, TOKEN, config

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("asked", ["leave", "give up its calls"])
def test_who_leaves_does_not_wait_for_a_process_that_is_stopped(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    """Regression: nothing that was said to it had a deadline, neither the answer nor the room in its socket."""
    monkeypatch.setattr(process, "CLOSING", 0.0)
    quick = replace(config("a").global_timeouts, connect=0.1)
    handle = ProcessHandle(config("a", "process", global_timeouts=quick), lambda kind, fields: None)
    assert handle.line.process is not None
    os.kill(handle.line.process, signal.SIGSTOP)
    if asked != "leave":
        handle.give_up()
    with pytest.raises(PeerClosed, match=rf"did not {asked} within 0\.1 s, and was ended by SIGKILL"):
        handle.leave() if asked == "leave" else handle.waiting()
    handle.leave()  # who is gone has left
    handle.close()


@pytest.mark.timeout(30)
def test_who_leaves_does_not_wait_for_a_process_that_does_not_die(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: one that waited for its disk was killed, and its end waited for: with it the program, for ever."""
    monkeypatch.setattr(process, "CLOSING", 0.0)
    monkeypatch.setattr(line, "_END", 0.05)
    quick = replace(config("a").global_timeouts, connect=0.1)
    handle = ProcessHandle(config("a", "process", global_timeouts=quick), lambda kind, fields: None)
    running = handle.line._process
    assert running is not None
    kill = running.kill
    monkeypatch.setattr(running, "kill", lambda: None)  # as where the kernel keeps the signal until the disk answers
    os.kill(running.pid, signal.SIGSTOP)
    with pytest.raises(PeerClosed, match=r"did not leave within 0\.1 s, and was killed, but has not ended"):
        handle.leave()
    handle.close()
    kill()
    running.wait()


def stop_reading(handle: ProcessHandle) -> None:
    """Have the process stopped, and no room in its socket."""
    assert handle.line.process is not None
    os.kill(handle.line.process, signal.SIGSTOP)
    with contextlib.suppress(BlockingIOError):
        while True:
            handle.line._ours.send(bytes(1 << 16), socket.MSG_DONTWAIT)


@pytest.mark.timeout(30)
def test_who_closes_has_nothing_to_say_to_a_process_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: that some memory was free was said first, and waited for the room to say it."""
    monkeypatch.setattr(line, "_END", 0.05)
    handle = ProcessHandle(config("a", "process"), lambda kind, fields: None)
    running = handle.line._process
    assert running is not None
    handle.empty(1 << 20)
    stop_reading(handle)
    handle.close()
    assert handle._arena.size == 0
    running.wait()


@pytest.mark.timeout(30)
def test_a_process_that_is_ended_by_a_signal_without_a_name_ends_every_wait() -> None:
    """Regression: the thread that tells of it failed over the name, and nobody was ever answered."""
    handle = ProcessHandle(config("a", "process"), lambda kind, fields: None)
    assert handle.line.process is not None
    nameless = signal.SIGRTMIN + 1
    os.kill(handle.line.process, nameless)
    with pytest.raises(PeerClosed, match=f"was ended by signal {nameless}"):
        handle.start()
    handle.close()


@pytest.mark.timeout(30)
def test_a_process_that_may_open_no_more_files_says_so_at_its_end() -> None:
    """Regression: memory that it was to be given was lost without a word, and all that was told was `KeyError: 0`."""
    handle = ProcessHandle(config("a", "process"), lambda kind, fields: None)
    assert handle.line.process is not None
    _, most = resource.prlimit(handle.line.process, resource.RLIMIT_NOFILE)
    resource.prlimit(handle.line.process, resource.RLIMIT_NOFILE, (3, most))
    held = handle.empty(1 << 20)
    with pytest.raises(PeerClosed, match="after Exhausted: the peer's process may open no more files"):
        handle.waiting()
    del held
    handle.close()


def test_the_end_of_a_process_is_told_to_all_rounds_while_another_one_is_brought() -> None:
    """Regression: it changed what was gone through, and neither the others nor whoever waited was told."""
    handle: Any = object.__new__(ProcessHandle)
    told: list[object] = []

    class Round:
        def over(self) -> None:
            told.append(self)
            handle._rounds[len(handle._rounds)] = Round()  # as `reduce` does in another thread

    handle._rounds = {0: Round(), 1: Round()}
    handle._requests = Requests(lambda number, message: None, lambda number: None)
    handle._subscribers = [told.append]
    handle._over(PeerClosed("it was killed"))
    assert [type(one) for one in told] == [Round, Round, Ended]


def test_a_process_is_ended_that_has_no_thread_to_answer_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it lived on with two threads, for as long as its program."""
    lines: list[Line] = []

    def none(self: Questions, arena: Arena, say: object, flush: object) -> None:
        raise RuntimeError("can't start new thread")

    def made(*args: Any) -> Line:
        lines.append(Line(*args))
        return lines[0]

    monkeypatch.setattr(process, "Line", made)
    monkeypatch.setattr(Questions, "__init__", none)
    with pytest.raises(RuntimeError, match="new thread"):
        ProcessHandle(config("a", "process"), lambda kind, fields: None)
    assert not lines[0]._thread.is_alive()
    assert not lines[0]._writer.is_alive()
    assert not lines[0]._watchdog._thread.is_alive()


def test_a_process_that_cannot_be_started_leaves_no_end_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: where there were no more descriptors, each try took one."""

    def none(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("ictp2p.handle.line.subprocess.Popen", none)
    ended: list[PeerClosed] = []
    line = Line("a", lambda number, message: None, ended.append)
    line._thread.join(10)
    assert "Too many open files" in str(ended[0])
    assert (line._ours.fileno(), line._theirs.fileno()) == (-1, -1)


def test_one_piece_of_a_state_is_made_at_a_time_and_the_next_one_when_it_has_left() -> None:
    """Otherwise all that others want of a state would be kept for a process that is stopped."""
    arena: Any = None
    done: queue.SimpleQueue[int | str] = queue.SimpleQueue()
    questions = Questions(arena, lambda number, message: done.put(number), lambda: done.put("left"))
    for number in range(3):
        questions.put(number, to_training.WantsChunk(b"", number))
    for number in range(3):
        assert [done.get(timeout=PATIENCE), done.get(timeout=PATIENCE)] == [number, "left"]
    questions.close()


def test_an_interrupt_while_a_peer_is_made_leaves_its_folder_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Regression: the loop made it all the same, nobody closed it, and its folder stayed in use by this process."""
    made: list[AsyncPeer] = []
    is_made = threading.Event()

    def make(*args: Any, **more: Any) -> AsyncPeer:
        made.append(AsyncPeer(*args, **more))
        is_made.set()
        return made[0]

    def interrupted(loop: LoopThread, future: Future[Any], timeout: float | None = None) -> None:
        is_made.wait(PATIENCE)
        raise KeyboardInterrupt

    monkeypatch.setattr(thread, "AsyncPeer", make)
    monkeypatch.setattr(LoopThread, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        thread.beside(config("a", data_dir=str(tmp_path)), lambda kind, fields: None)
    assert made
    FileDisk(tmp_path).close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_made_while_a_peers_process_starts_keeps_no_end_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: with that the line stayed open when the process died, and who waited was told once the fork ended."""
    start, forks = Line._start, list[int]()

    def starts(line: Line) -> subprocess.Popen[bytes]:
        fork = os.fork()
        if fork == 0:
            os._exit(stat.S_ISSOCK(os.fstat(line._theirs.fileno()).st_mode))
        forks.append(os.waitpid(fork, 0)[1])
        return start(line)

    monkeypatch.setattr(Line, "_start", starts)
    ProcessHandle(config("a", "process"), lambda kind, fields: None).close()
    assert forks == [0]


PROGRAM = """
import os, sys, ictp2p, ictp2p.errors
peer = ictp2p.Peer(ictp2p.Config.local(cluster="a", token="x" * 32, isolation="process"))
peer.start()  # no guard of __main__ is needed
kept = peer._handle.empty(1 << 20)
print(peer._handle.line.process, flush=True)
if os.fork() == 0:
    try:
        peer.status()
    except ictp2p.errors.PeerClosed as error:
        print("forked" in str(error), flush=True)
    peer.close()
    sys.stdin.read()  # holds the socket open for longer than its parent lives
    os._exit(0)
sys.stdin.read()
"""


def test_a_program_that_is_killed_leaves_no_process_and_no_memory() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as program:
        assert program.stdout is not None
        child = int(program.stdout.readline())
        assert program.stdout.readline() == "True\n"
        ended = os.pidfd_open(child)
        program.kill()
        program.wait()
        assert select.select([ended], [], [], PATIENCE)[0], "the peer's process lives on"
        os.close(ended)
    assert not [path for path in Path("/dev/shm").iterdir() if "ictp2p" in path.name]


LATE = """
import sys, ictp2p
class Holder:
    def __init__(self):
        self.peer = ictp2p.Peer(ictp2p.Config.local(cluster="a", token=sys.argv[1], isolation=sys.argv[2]))
        self.peer.start()
    def __del__(self):
        self.peer.close()
        print("closed", flush=True)
holder = Holder()
"""


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_peer_is_closed_even_by_what_is_deleted_when_the_interpreter_ends(isolation: str) -> None:
    script = [sys.executable, "-c", LATE, TOKEN, isolation]
    ran = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "closed\n", "")


@pytest.mark.parametrize("home", [beside, ProcessHandle])
def test_a_peer_that_is_still_to_start_says_so_wherever_it_lives(home: Callable[..., Handle]) -> None:
    """Regression: it had no attribute 'core' for whoever looked at it while it began, or an address that is not one."""
    handle = home(config("a"), lambda kind, fields: None)
    try:
        assert (handle.leader, handle.clusters, handle.agreed) == (None, 0, None)
        for look in (lambda: handle.address, *(partial(handle.view, name) for name in VIEWS)):
            with pytest.raises(PeerClosed, match="not running yet"):
                look()
    finally:
        handle.close()


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_threads_that_close_a_peer_at_once_all_come_back_when_it_is_closed(isolation: str) -> None:
    peer = ictp2p.Peer(config("a", isolation))
    peer.start()
    with ThreadPoolExecutor(4) as pool:
        for closing in [pool.submit(peer.close) for _ in range(4)]:
            closing.result(PATIENCE)
    with pytest.raises(PeerClosed):
        peer.status()


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_that_the_program_answers_is_not_the_end_of_its_peer(number: str) -> None:
    """Regression: a scheduler that told all processes of a job of its end (SIGUSR1) ended the peer at once."""
    with ictp2p.Peer(config("a", "process")) as peer:
        handle = peer._handle
        assert isinstance(handle, ProcessHandle)
        process = handle.line.process
        assert process is not None
        os.kill(process, getattr(signal, number))
        assert peer.status()["cluster"] == "a", "what ends a process does so before it runs on"
