"""What the calls of one peer share, over a peer of the test's own: their order and end, and who gives way to whom."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ictp2p
import ictp2p.calls.engine
import ictp2p.work
from ictp2p.calls.engine import CallEngine
from ictp2p.calls.tensors import Bundle
from ictp2p.concurrency.threads import Condition, Thread, Threads
from ictp2p.errors import LocalProtocolError, PeerClosed, RoundAborted, RoundTimeout
from ictp2p.sync.state.global_state import GlobalState, entry
from ictp2p.training.mesh import TrainingMesh
from ictp2p.types import ClusterId
from ictp2p.work import WorkQueue
from tests.interrupts import interrupted, places

PATIENCE = 30.0


class Clock:
    """A condition nobody tells anything: whoever waits for it waits its time, which passes at once."""

    def __init__(self) -> None:
        self.now = 0.0

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert timeout > 0
        self.now += timeout
        return False


class Timeless(Threads):
    """Threads of the operating system's, on that clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.started = 0

    def condition(self) -> Condition:
        found: Any = self.clock
        return found

    def start(self, run: Callable[[], None], name: str) -> Thread:
        self.started += 1
        return super().start(run, name)


class Peer:
    """A peer (`Handle`) that notes what it is told."""

    id = "a" * 32
    left_behind = False
    config = ictp2p.Config.local(cluster="a", token="0123456789abcdef0123456789abcdef")

    def __init__(self) -> None:
        self.threads = Timeless()
        self.told: list[Any] = []
        self.here: Callable[[float], list[str]] = lambda now: []
        """Who takes part, by the time."""

    def clock(self) -> float:
        return self.threads.clock.now

    def wait(self, future: Future[Any], timeout: float | None = None) -> Any:
        return future.result(timeout)

    def taking_part(self) -> list[str]:
        return self.here(self.clock())

    def send(self, body: torch.Tensor, *others: object) -> Future[None]:
        self.told.append(("send", body.tolist(), *others))
        return Future()

    def receive(self, nbytes: int, *others: Any) -> Future[None]:
        *told, deliver = others
        self.told.append(("receive", nbytes, *told))
        deliver(torch.arange(nbytes, dtype=torch.uint8))
        return Future()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given: self.told.append((name, *given))


def engine_of(peer: Any) -> CallEngine:
    life: Any = SimpleNamespace()
    return CallEngine(peer, TrainingMesh(peer, life))


@pytest.fixture
def peer() -> Peer:
    return Peer()


class Asked(NamedTuple):
    """A call: whether it fails, and whether its caller waits for it before it makes the next one."""

    fails: bool
    heard: bool


@given(st.lists(st.builds(Asked, st.booleans(), st.booleans()), max_size=12))
def test_calls_run_in_order_and_none_after_one_that_failed_before_that_was_heard_of(calls: list[Asked]) -> None:
    """The others may still be at the call that failed here: the next one would be added to it."""
    peer, order, running = Peer(), list[int](), threading.Lock()
    engine = engine_of(peer)
    assert peer.threads.started == 0

    def body(number: int, fails: bool) -> int:
        with running:
            order.append(number)
        if fails:
            raise ValueError(number)
        return number

    works, expected, silent = list[ictp2p.work.Work[int]](), list[str](), False
    for number, call in enumerate(calls):
        works.append(engine.submit_all("it", lambda _, n=number, f=call.fails: body(n, f)))  # type: ignore[misc]
        expected.append("RoundAborted" if silent else "ValueError" if call.fails else "")
        silent = bool(expected[-1]) and not call.heard
        if call.heard:
            assert outcome(works[-1]) == expected[-1]
    assert [outcome(work) for work in works] == expected
    assert order == [n for n, how in enumerate(expected) if how != "RoundAborted"]
    assert peer.threads.started == min(1, len(calls))
    engine.close()


def outcome(work: ictp2p.work.Work[int]) -> str:
    try:
        work.wait(PATIENCE)
    except (RoundAborted, ValueError) as error:
        return type(error).__name__
    return ""


def test_who_has_heard_of_a_failure_may_ask_for_more_and_what_was_asked_for_before_stays_void(peer: Peer) -> None:
    queue, heard = WorkQueue("it", lambda: None, peer), threading.Event()  # type: ignore[arg-type]
    first = queue.submit("first", lambda: 1 // 0)
    queue.submit("between", lambda: heard.wait(PATIENCE), anyway=True)
    before = queue.submit("second", lambda: 2)
    with pytest.raises(ZeroDivisionError):
        first.wait(PATIENCE)
    after = queue.submit("third", lambda: 3)
    heard.set()
    with pytest.raises(RoundAborted, match="second was not begun: before it first failed: ZeroDivisionError"):
        before.wait(PATIENCE)
    assert after.wait(PATIENCE) == 3
    queue.close(PATIENCE)


def test_a_call_that_was_not_begun_leaves_nothing_to_the_garbage_collector(peer: Peer) -> None:
    engine, tensor = engine_of(peer), torch.ones(3)
    first = engine.submit_all("first", lambda _: 1 // 0)
    second = engine.submit_all("second", lambda _, t=tensor: t)  # type: ignore[misc]
    alive = weakref.ref(tensor)
    del tensor
    gc.disable()
    try:
        assert outcome(second) == "RoundAborted"
        assert alive() is None, "though the work is kept"
        assert isinstance(first.exception(), ZeroDivisionError)
    finally:
        gc.enable()
    engine.close()


def test_a_work_that_is_kept_keeps_nothing_of_its_queue() -> None:
    """Which holds the newest answer."""
    held = Clock()
    peer: Any = SimpleNamespace(threads=Threads(), wait=Future.result)
    queue = WorkQueue("it", lambda held=held: None, peer)  # type: ignore[misc]
    work, alive = queue.submit("one", lambda: 1), weakref.ref(held)
    assert work.wait(PATIENCE) == 1
    queue.close(PATIENCE)
    del queue, held
    gc.collect()
    assert alive() is None


def test_who_waits_for_what_was_cancelled_is_told_why() -> None:
    cancelled: Future[int] = Future()
    cancelled.cancel()

    def wait(future: Future[int], timeout: float | None) -> int:
        raise PeerClosed("the peer was closed")

    with pytest.raises(PeerClosed, match="the peer was closed"):
        ictp2p.work.Work("recv", cancelled, wait).wait()


def test_a_call_is_made_when_its_turn_comes(peer: Peer) -> None:
    engine, go, made = engine_of(peer), threading.Event(), list[str]()
    first = engine.submit_all("first", lambda _: go.wait(PATIENCE))

    def make() -> Any:
        made.append("second")
        raise ValueError("it cannot be made")

    second = engine.submit("second", make)
    assert not made
    assert not second.done()
    go.set()
    assert first.wait(PATIENCE)
    with pytest.raises(ValueError, match="it cannot be made"):
        second.wait(PATIENCE)
    assert made == ["second"]
    engine.close()


def test_closing_gives_up_what_runs_and_fails_what_waits(peer: Peer) -> None:
    engine, go = engine_of(peer), threading.Event()
    began = threading.Event()

    def body(_: object) -> str:
        began.set()
        assert go.wait(PATIENCE)
        return "it ended"

    running, waiting = engine.submit_all("one", body), engine.submit_all("two", lambda _: "never")
    assert began.wait(PATIENCE)
    peer.give_up = go.set
    engine.close()
    assert running.wait(PATIENCE) == "it ended"
    with pytest.raises(PeerClosed):
        waiting.wait(PATIENCE)
    with pytest.raises(PeerClosed):
        engine.submit_all("three", lambda _: None)


def test_an_engine_that_was_closed_before_its_first_call_begins_none(peer: Peer) -> None:
    """It would begin a thread that nobody ends."""
    engine = engine_of(peer)
    engine.close()
    with pytest.raises(PeerClosed, match="all_reduce: the peer is closed"):
        engine.submit_all("all_reduce", lambda _: None)
    assert peer.threads.started == 0


# ------------------------------------------------------------ who has the group


@pytest.mark.parametrize("fails", [False, True])
def test_whoever_has_its_answer_finds_the_queue_idle(peer: Peer, fails: bool) -> None:
    """Else a policy that begins when the last call is over would be refused now and then."""
    queue, go, idle = WorkQueue("it", lambda: None, peer), threading.Event(), list[bool]()  # type: ignore[arg-type]

    def wait(future: Future[Any], timeout: float | None = None) -> Any:
        future.add_done_callback(lambda _: idle.append(queue.idle))
        assert not queue.idle
        go.set()
        return future.exception(timeout)

    def body() -> None:
        assert go.wait(PATIENCE)
        if fails:
            raise ValueError

    peer.wait = wait  # type: ignore[method-assign]
    queue.submit("one", body).wait(PATIENCE)
    assert idle == [True]
    queue.close(PATIENCE)


def test_a_policy_is_refused_while_a_call_is_under_way_and_then_has_calls_leave_first(peer: Peer) -> None:
    engine, go = engine_of(peer), threading.Event()
    work = engine.submit_all("one", lambda _: go.wait(PATIENCE))
    with pytest.raises(LocalProtocolError, match="collective calls are under way"):
        engine.mesh.roster_ready(True)
    go.set()
    work.wait(PATIENCE)
    engine.submit_all("two", lambda _: engine.mesh.calls_ready(True)).wait(PATIENCE)
    peer.told.clear()
    engine.mesh.roster_ready(True)
    assert [told[0] for told in peer.told if told[0].startswith("wants")] == ["wants_out", "wants"]
    with pytest.raises(LocalProtocolError, match="a policy trains with this peer"):
        engine.submit_all("three", lambda _: engine.mesh.calls_ready(True)).wait(PATIENCE)
    engine.close()


@pytest.mark.timeout(60)  # else it waits for itself
def test_a_signals_handler_may_close_wherever_it_comes_into_a_call(peer: Peer) -> None:
    """Regression: it waited for ever for the lock that its own thread held."""
    modules = (ictp2p.calls.engine, ictp2p.work)
    other = engine_of(peer)
    for at in places(lambda: other.submit_all("one", lambda _: 1), *modules):
        engine = engine_of(peer)
        with interrupted(at, engine.close, *modules):
            try:
                answer = engine.submit_all("one", lambda _: 1)
            except PeerClosed:
                answer = None
        assert answer is None or isinstance(ended(answer), int | PeerClosed), at
        assert engine._queue is None or gone(engine._queue), at
    other.close()


def ended(work: ictp2p.work.Work[int]) -> object:
    try:
        return work.wait(PATIENCE)
    except PeerClosed as error:
        return error


def gone(queue: WorkQueue) -> bool:
    queue._thread.join(PATIENCE)
    return not queue._thread.is_alive()


def test_a_policy_has_nobody_leave_where_no_call_was_made(peer: Peer) -> None:
    engine = engine_of(peer)
    engine.mesh.roster_ready(True)
    assert [told[:2] for told in peer.told if told[0] == "wants"] == [("wants", True)]
    assert peer.threads.started == 0


def test_the_state_that_is_synchronised_is_the_one_that_is_served(peer: Peer) -> None:
    """Also after a policy has had its own served: else newcomers ask for what this peer does not give any more."""
    engine, tensors = engine_of(peer), {"w": torch.ones(3)}

    def served() -> list[Any]:
        return [told[1] for told in peer.told if told[0] == "serve_state"]

    engine.sync(tensors)
    engine.sync({"w": torch.zeros(3)})
    assert len(served()) == 1
    engine.sync({"w": torch.zeros(4)})
    mirror = served()[-1]
    assert len(served()) == 2
    other = GlobalState([entry("w", torch.ones(3))])
    engine.mesh.serve_state(other)
    engine.sync({"w": torch.ones(4)})
    assert served()[-2:] == [other, mirror]
    assert engine.mesh.global_state is mirror


# ------------------------------------------------------------ who takes part


@given(st.floats(0, 10), st.floats(0, 10))
def test_gathering_ends_when_enough_have_come_or_the_time_is_up(come: float, timeout: float) -> None:
    peer = Peer()
    peer.here = lambda now: ["a", "b"] if now >= come else ["a"]
    engine = engine_of(peer)
    if come <= timeout:
        engine.gather(2, timeout)
        assert peer.clock() <= timeout
    else:
        with pytest.raises(RoundTimeout, match=r"1 of 2 clusters take part after .* s: a"):
            engine.gather(2, timeout)
        assert peer.clock() == pytest.approx(timeout)
    assert peer.told.count(("set_training", True)) == 1


def test_nobody_is_named_as_such(peer: Peer) -> None:
    with pytest.raises(RoundTimeout, match="0 of 1 clusters take part after 1 s: none"):
        engine_of(peer).gather(1, 1.0)


# ------------------------------------------------------------ messages


def test_messages_go_beside_the_queue_and_end_when_the_peer_says_so(peer: Peer) -> None:
    engine, target = engine_of(peer), ClusterId("b")
    numbers = torch.tensor([1, 2], dtype=torch.uint8)
    sending = engine.send(Bundle(numbers), target, 7, 3.0)
    numbers.zero_()
    assert peer.told[-1] == ("send", [1, 2], b"uint8[2]", target, 7, 3.0)
    receiving = engine.receive(Bundle(numbers), target, 7, 3.0)
    assert peer.told[-1] == ("receive", 2, b"uint8[2]", target, 7, 3.0)
    assert numbers.tolist() == [0, 1]
    assert not sending.done()
    assert not receiving.done()
    assert peer.threads.started == 0
