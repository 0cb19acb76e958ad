"""Requests to a peer's process: each is answered once, and keeps what belongs to it until then."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.errors import PeerClosed, StateError
from ictp2p.handle import requests as module
from ictp2p.handle import to_peer
from ictp2p.handle.messages import raw
from ictp2p.handle.requests import Requests
from tests.interrupts import interrupted, places

Fate = st.sampled_from(["answered", "failed", "left", "cancelled, then answered", "cancelled, then failed"])


class Peer:
    """What it was sent."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.cancelled: list[int] = []

    def requests(self) -> Requests:
        return Requests(lambda number, _: self.asked.append(number), self.cancelled.append)


@given(fates=st.lists(Fate, max_size=6))
def test_every_request_ends_once_and_what_belongs_to_it_is_let_go_when_the_peer_has_answered(fates: list[str]) -> None:
    peer = Peer()
    requests, let_go = peer.requests(), list[int]()
    futures = [
        requests.ask(to_peer.Start(), int, number, after=lambda number=number: let_go.append(number))  # type: ignore[misc]
        for number in (requests.number() for _ in fates)
    ]
    assert len(set(peer.asked)) == len(fates)
    for number, future, fate in zip(peer.asked, futures, fates, strict=True):
        if "cancelled" in fate:
            assert future.cancel()
            assert peer.cancelled[-1] == number
            assert number not in let_go
        if "answered" in fate:
            requests.answered(number, raw(number))
        elif "failed" in fate:
            requests.failed(number, StateError("not held"))
    gone = PeerClosed("the process was killed")
    requests.refuse(gone)
    with pytest.raises(PeerClosed, match="killed"):
        requests.ask(to_peer.Start(), None)
    requests.end(gone)
    assert let_go == [number for number, fate in zip(peer.asked, fates, strict=True) if fate != "left"]
    for number, future, fate in zip(peer.asked, futures, fates, strict=True):
        assert future.done()
        match fate:
            case "answered":
                assert future.result() == number
            case "failed":
                assert isinstance(future.exception(), StateError)
            case "left":
                assert future.exception() is gone
            case _:
                assert future.cancelled()


def test_what_is_done_last_is_done_before_the_answer_and_its_error_is_the_answer() -> None:
    peer = Peer()
    requests, seen = peer.requests(), list[Any]()
    well = requests.ask(to_peer.Start(), None, last=lambda: seen.append(well.done()))
    requests.answered(peer.asked[0], raw(None))
    assert seen == [False]
    assert well.result() is None

    def fail() -> None:
        raise ValueError("no room")

    badly = requests.ask(to_peer.Start(), None, last=fail)
    requests.answered(peer.asked[1], raw(None))
    assert isinstance(badly.exception(), ValueError)


def test_an_answer_of_another_type_is_an_error() -> None:
    peer = Peer()
    requests = peer.requests()
    future = requests.ask(to_peer.Start(), int)
    requests.answered(peer.asked[0], raw("text"))
    assert future.exception() is not None


def test_who_asks_for_something_of_a_peer_that_is_gone_has_an_error_of_its_own() -> None:
    """Regression: all had the one that is kept, which knew more frames each time, and all that was in them."""
    requests = Peer().requests()
    requests.refuse(PeerClosed("the process was killed"))
    for _ in range(3):
        with pytest.raises(PeerClosed, match="was killed") as told:
            requests.ask(to_peer.Start(), None)
        assert told.value is not requests.error
    assert requests.error is not None
    assert requests.error.__traceback__ is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_does_not_wait_for_a_thread_that_was_asking_when_it_was_made() -> None:
    """Regression: it waited for ever for a lock that nobody holds there, before it was told that it is a fork."""
    requests, asking, over = Peer().requests(), threading.Event(), threading.Event()

    def ask() -> None:
        with requests._lock:
            asking.set()
            over.wait()

    thread = threading.Thread(target=ask)
    thread.start()
    asking.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # ends it if it waits
        try:
            requests.ask(to_peer.Start(), None)
        except PeerClosed:
            os._exit(0)
        finally:
            os._exit(1)
    over.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.timeout(20)  # else it waits for itself
def test_a_signals_handler_may_ask_wherever_it_comes_into_a_question() -> None:
    """Regression: it waited for ever for the lock that its own thread held."""
    other = Peer().requests()
    for at in places(lambda: other.ask(to_peer.Start(), int), module):
        peer = Peer()
        requests, asked = peer.requests(), list[Any]()

        def handler(requests: Requests = requests, asked: list[Any] = asked) -> None:
            asked.append(requests.ask(to_peer.Start(), int))

        with interrupted(at, handler, module):
            asked.append(requests.ask(to_peer.Start(), int))
        assert sorted(peer.asked) == [1, 2]
        for number in peer.asked:
            requests.answered(number, raw(number))
        assert sorted(future.result(0) for future in asked) == [1, 2], at


def test_what_could_not_be_said_is_asked_of_nobody_and_keeps_nothing() -> None:
    """Regression: it stood for ever, and so did the memory that the peer might have used for it."""

    def refuse(*_: object) -> None:
        raise StateError("too long")

    requests, let_go = Requests(refuse, lambda _: None), list[str]()
    with pytest.raises(StateError, match="too long"):
        requests.ask(to_peer.Start(), None, keeps=bytearray(9), after=lambda: let_go.append("it"))
    assert let_go == ["it"]
    assert not requests._standing
