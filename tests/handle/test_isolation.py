"""A peer in a thread and one in a process of its own are the same to whoever trains with them.

Real processes, which take seconds to start, so the tests of this module share one mesh where they can: cluster a's peer
lives where the test says, cluster b's in a thread.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.async_peer import AsyncPeer
from ictp2p.calls.runner import Deadline
from ictp2p.concurrency.loop_thread import LoopThread
from ictp2p.disk import FileDisk
from ictp2p.errors import AddressInUse, ConfigError, MeshMismatch, PeerClosed, RoundTimeout
from ictp2p.handle import Ended, line, messages, process, thread, to_peer, to_training
from ictp2p.handle.line import Line
from ictp2p.handle.memory import Arena
from ictp2p.handle.process import ProcessHandle
from ictp2p.handle.questions import Questions
from ictp2p.handle.requests import Requests

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]
TOKEN = "0123456789abcdef0123456789abcdef"
PATIENCE = 60.0
ROOT = Path(__file__).parent.parent.parent


def config(cluster: str, isolation: str = "thread", join: ictp2p.Peer | None = None, **more: Any) -> ictp2p.Config:
    seeds = (str(join.address),) if join is not None else ()
    return ictp2p.Config.local(cluster=cluster, token=TOKEN, join=seeds, isolation=isolation, **more)


class Pair:
    """Two clusters of one worker each."""

    def __init__(self, isolation: str) -> None:
        self.events: list[dict[str, Any]] = []
        self.b = ictp2p.Peer(config("b"))
        self.b.start()
        self.a = ictp2p.Peer(config("a", isolation, self.b))
        self.a.on_event(self.events.append)
        self.a.start()
        self.both(lambda name, peer: peer.gather(2, timeout=PATIENCE))
        self.both(lambda name, peer: peer.barrier())

    def both(self, body: Callable[[str, ictp2p.Peer], Any]) -> tuple[Any, Any]:
        with ThreadPoolExecutor(2) as pool:
            a, b = pool.submit(body, "a", self.a), pool.submit(body, "b", self.b)
            return a.result(PATIENCE), b.result(PATIENCE)

    def close(self) -> None:
        self.a.close()
        self.b.close()


@pytest.fixture(scope="module", params=["thread", "process"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(request.param)
    try:
        yield pair
    finally:
        pair.close()


VALUE = {"a": 1.5, "b": 4.0}


def test_collective_calls(pair: Pair) -> None:
    def body(name: str, peer: ictp2p.Peer) -> Any:
        flat = torch.arange(70_001, dtype=torch.float32) * VALUE[name]
        strided, half = torch.full((3, 4), VALUE[name]).t(), torch.full((9,), VALUE[name], dtype=torch.bfloat16)
        done = peer.all_reduce([flat, strided, torch.empty(0)], weight=VALUE[name])
        later = [peer.all_reduce(half, op="sum", async_op=True), peer.barrier(async_op=True)]
        for work in later:
            work.wait(PATIENCE)
        copied = [torch.full((5,), VALUE[name]), torch.tensor([name == "a"])]
        peer.broadcast(copied, "b")
        part = peer.reduce_scatter(torch.full((7,), VALUE[name]), op="sum")
        rows = peer.all_gather(torch.full((300_000,), VALUE[name], dtype=torch.float64)).tensors
        return done.clusters, [flat, strided, half, *copied, part.part, *rows["a"], *rows["b"]], (part.start, part.stop)

    (clusters, ours, here), (_, theirs, there) = pair.both(body)
    assert clusters == ("a", "b")
    mean = sum(v * v for v in VALUE.values()) / sum(VALUE.values())
    scale = (torch.arange(70_001) * 1.5 * 1.5 + torch.arange(70_001) * 4.0 * 4.0) / 5.5
    assert torch.allclose(ours[0], scale)
    assert torch.allclose(ours[1], torch.full((4, 3), mean))
    assert ours[2].tolist() == [5.5] * 9
    assert ours[3].tolist() == [4.0] * 5
    assert ours[4].tolist() == [False]
    assert ours[6].tolist() == [1.5] * 300_000
    assert ours[7].tolist() == [4.0] * 300_000
    assert sorted((here, there)) == [(0, here[1] if here[0] == 0 else there[1]), max(here, there)]
    assert set(ours[5].tolist()) == {5.5}
    assert all(torch.equal(one, other) for n, (one, other) in enumerate(zip(ours, theirs, strict=True)) if n != 5)


def test_messages(pair: Pair) -> None:
    for sender, receiver, name in ((pair.a, pair.b, "b"), (pair.b, pair.a, "a")):
        sent = [torch.arange(100_000), torch.tensor([True])]
        work = sender.send(sent, name, tag=3, async_op=True)
        small = torch.zeros(3)
        with pytest.raises(MeshMismatch, match="holds int64"):
            receiver.recv(small, str(sender.cluster), tag=3)
        room = [torch.zeros(100_000, dtype=torch.int64), torch.tensor([False])]
        receiver.recv(room, str(sender.cluster), tag=3)
        work.wait(PATIENCE)
        assert all(torch.equal(one, other) for one, other in zip(sent, room, strict=True))


def test_what_is_seen(pair: Pair) -> None:
    a, b = pair.a, pair.b
    assert a.leader == a.id
    assert [row["peer"] for row in a.members] == [a.id]
    assert {row["cluster"] for row in a.clusters} == {"a", "b"}
    assert a.status()["peer"] == a.id
    assert a.status()["life"] == a.state
    assert a.status().keys() == b.status().keys()
    assert a.stats()["illegal_transitions"] == 0
    assert "control_round_trip_p99" in a.stats()
    assert isinstance(a.links, list)
    assert isinstance(a.routes, list)
    assert "clusters=2" in repr(a)
    assert a._handle.lineage == b._handle.lineage != b""  # what a checkpoint says where it belongs by
    kinds = {event["kind"] for event in pair.events}
    assert {"started", "leader", "life", "round_committed"} <= kinds
    (opened, *_) = [event for event in pair.events if event["kind"] == "round_opened"]
    assert opened["participants"] == ["a", "b"]


def test_a_state_goes_to_whoever_lacks_it(pair: Pair) -> None:
    def body(name: str, peer: ictp2p.Peer) -> Any:
        state = {"weight": torch.full((900_000,), VALUE[name]), "step": torch.tensor(3)}
        found = peer.sync_state(state)
        again = peer.sync_state(state)
        return found, again, state

    (first, second, ours), (other, same, theirs) = pair.both(body)
    assert {first.received, other.received} == {True, False}
    assert (first.version, second.version) == (1, 2)
    assert (second.received, same.received) == (False, False)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    if not first.received:  # then a gave its state to b; now it takes b's
        theirs["weight"] += 1
        kept = {key: tensor.clone() for key, tensor in theirs.items()}
        pair.both(lambda name, peer: peer.sync_state(ours if name == "a" else theirs))
        assert torch.equal(ours["weight"], theirs["weight"])
        assert kept.keys() == ours.keys()


def test_errors_are_the_same(pair: Pair) -> None:
    a, _ = pair.a, pair.b
    assert a._engine is not None
    patience, a._engine.patience = a._engine.patience, 0.5
    try:
        with pytest.raises(RoundTimeout, match=r"within 0.5 s"):
            a.barrier()
        with pytest.raises(RoundTimeout, match="2 of 9 clusters"):
            a.gather(9, timeout=0.1)
    finally:
        a._engine.patience = patience
    with pytest.raises(ConfigError, match="cannot send to itself"):
        a.send(torch.ones(1), "a")


class Together:
    """Both clusters begin at once, and neither ends before they hold three versions in common."""

    def __init__(self) -> None:
        self._begin = threading.Barrier(2)
        self.digests: dict[str, dict[int, str]] = {"a": {}, "b": {}}

    @property
    def common(self) -> set[int]:
        """The versions after the first that both hold."""
        return {version for version in {*self.digests["a"]} & {*self.digests["b"]} if version > 1}

    def train(self, peer: ictp2p.Peer) -> None:
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 3)
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        seed = torch.Generator().manual_seed(ord(peer.cluster))
        with ictp2p.DiLoCo(peer, net, inner, sync_every=2) as policy:
            self._begin.wait(PATIENCE)
            for _ in peer.steps(range(1_000_000)):
                net(torch.randn(8, 4, generator=seed)).square().mean().backward()
                inner.step()
                inner.zero_grad()
                self.digests[peer.cluster][policy.version] = policy.digest()
                if len(self.common) >= 3:
                    peer.drain()


def test_a_policy_trains_to_equal_bits_beside_a_peer_in_a_thread_and_drains() -> None:
    b, together = ictp2p.Peer(config("b")), Together()
    with b, ictp2p.Peer(config("a", "process", b)) as a, ThreadPoolExecutor(2) as pool:
        for work in [pool.submit(together.train, peer) for peer in (a, b)]:
            work.result(PATIENCE)
        assert all(together.digests["a"][version] == together.digests["b"][version] for version in together.common)
        assert a.state == "DRAINING"

        # The same process: it does not mind an interrupt, and its death ends every wait at once, with its cause.
        handle: Any = a._handle
        assert isinstance(handle, ProcessHandle)
        process = handle.line.process
        assert process is not None
        os.kill(process, signal.SIGINT)
        os.kill(process, signal.SIGTERM)
        assert a.status()["peer"] == a.id
        waiting = a.barrier(async_op=True), a.recv(torch.ones(1), "b", async_op=True)
        os.kill(process, signal.SIGKILL)
        for work in waiting:
            with pytest.raises(PeerClosed, match="was ended by SIGKILL"):
                work.wait(PATIENCE)
        with pytest.raises(PeerClosed, match="was ended by SIGKILL"):
            a.status()


def test_what_keeps_a_peer_from_starting_is_told_as_what_it_is() -> None:
    with ictp2p.Peer(config("b")) as b:
        taken = ictp2p.Peer(config("a", "process", b, listen=str(b.address)))
        with pytest.raises(AddressInUse):
            taken.start()
        assert "not started" in repr(taken)


def test_whoever_exits_in_the_thread_that_reads_ends_no_wait_in_silence() -> None:
    """Regression: `sys.exit` ended that thread without a word, and nobody was ever answered."""

    def exits(*_: object) -> None:
        raise SystemExit(1)

    handle = ProcessHandle(config("a", "process"), exits)
    handle.start()
    assert handle.waiting()[0]
    handle.line._heard = exits
    with pytest.raises(PeerClosed, match="after SystemExit: 1"):
        handle.waiting()
    handle.close()


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


@contextlib.contextmanager
def standing_still(handle: Any) -> Iterator[None]:
    """The peer answers nobody meanwhile, as while it is stopped, or waits for its disk."""
    if isinstance(handle, ProcessHandle):
        assert handle.line.process is not None
        os.kill(handle.line.process, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(handle.line.process, signal.SIGCONT)
    else:
        moves = threading.Event()
        handle.loop.post(moves.wait)
        try:
            yield
        finally:
            moves.set()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_who_counts_seconds_does_not_wait_for_a_peer_that_stands_still(isolation: str) -> None:
    """Regression: when time was over the peer was asked what was waited for, and nobody counted the seconds of that."""
    quick = replace(config("a").global_timeouts, connect=0.5)
    with ictp2p.Peer(config("a", isolation, global_timeouts=quick)) as peer:
        assert peer._handle is not None
        over = Deadline(0.0, peer._handle.waiting)
        with standing_still(peer._handle):
            with pytest.raises(RoundTimeout, match=r"itself stands still .* no answer within 0\.5 s"):
                peer.gather(2, timeout=0.1)
            with pytest.raises(RoundTimeout, match="itself stands still"):
                over.check()
        with pytest.raises(RoundTimeout, match="1 of 2 clusters take part"):
            peer.gather(2, timeout=0.1)


@pytest.mark.timeout(60)
def test_who_counts_seconds_does_not_wait_for_room_in_the_line_to_a_process_that_is_stopped() -> None:
    """Regression: where it was stopped while a state was handed to it, whatever was said waited until it went on."""
    quick = replace(config("a").global_timeouts, connect=0.5)
    with ictp2p.Peer(config("a", "process", global_timeouts=quick)) as peer:
        handle = peer._handle
        assert isinstance(handle, ProcessHandle)
        unasked = to_peer.Answered(messages.raw(bytes(8 << 20)))
        with standing_still(handle):
            handle.line.send(1 << 40, unasked)
            serving = threading.Thread(target=handle.line.flush)
            serving.start()
            with pytest.raises(RoundTimeout, match=r"itself stands still .* no answer within 0\.5 s"):
                peer.gather(2, timeout=0.1)
        serving.join()
        with pytest.raises(RoundTimeout, match="1 of 2 clusters take part"):
            peer.gather(2, timeout=0.1)


def test_who_leaves_does_not_wait_for_a_thread_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "CLOSING", 0.0)
    quick = replace(config("a").global_timeouts, connect=0.1)
    handle = thread.beside(config("a", global_timeouts=quick), lambda kind, fields: None)
    handle.start()
    with standing_still(handle):
        handle.give_up()
        with pytest.raises(PeerClosed, match=r"did not leave within 0\.1 s"):
            handle.leave()
    handle.close()
    handle.leave()  # who has ended has left


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
