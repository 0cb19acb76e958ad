"""Whatever a signal's handler does, and wherever it comes, nobody else waits for what its thread has left."""

from __future__ import annotations

import asyncio
import concurrent.futures._base as futures
import threading
from asyncio import base_events, selector_events
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

import pytest

from ictp2p.concurrency import interrupts, loop_thread
from ictp2p.concurrency.interrupts import Answer, Condition, Event
from ictp2p.concurrency.loop_thread import LoopThread
from tests.interrupts import ctrl_c, interrupted, places

MODULES = (interrupts, futures, threading)
MOMENT = 0.001
"""Seconds that a wait takes which is not answered."""


def in_another_thread(act: Callable[[], object]) -> bool:
    """Whether something ends in another thread."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


def waited(answer: Future[int]) -> None:
    with pytest.raises(TimeoutError):
        answer.result(MOMENT)


def held(condition: Condition) -> None:
    with condition:
        condition.wait(MOMENT)


def test_who_was_interrupted_while_it_waited_for_an_answer_holds_up_nobody_who_answers() -> None:
    """Regression: the future stayed locked, and the peer's thread stood still when it came to answer."""
    nobody = Answer[int]()
    for at in places(lambda: waited(nobody), *MODULES):
        answer = Answer[int]()
        with pytest.raises(KeyboardInterrupt), interrupted(at, ctrl_c, *MODULES):
            waited(answer)
        assert in_another_thread(lambda answer=answer: answer.set_result(1)), at
        assert answer.result() == 1


def test_who_was_interrupted_at_a_condition_has_left_it() -> None:
    other = Condition()
    for at in places(lambda: held(other), *MODULES):
        condition = Condition()
        with pytest.raises(KeyboardInterrupt), interrupted(at, ctrl_c, *MODULES):
            held(condition)
        assert in_another_thread(lambda condition=condition: held(condition)), at


def test_a_handler_may_set_what_its_thread_waits_for() -> None:
    other = Event()
    for at in places(lambda: other.wait(MOMENT), *MODULES):
        event = Event()
        with interrupted(at, event.set, *MODULES):
            event.wait(MOMENT)
        assert event.is_set()
        assert in_another_thread(event.wait), at


def test_a_handler_may_wait_for_what_its_thread_sets_or_waits_for() -> None:
    for act in (Event.set, lambda event: event.wait(MOMENT)):
        for at in places(lambda act=act: act(Event()), *MODULES):
            event = Event()
            with interrupted(at, lambda event=event: event.wait(MOMENT), *MODULES):
                act(event)
            event.set()
            assert event.wait(0)


def test_who_was_interrupted_while_it_waited_for_an_event_is_told_of_it_no_more() -> None:
    for at in places(lambda: Event().wait(MOMENT), *MODULES):
        event = Event()
        with suppress(KeyboardInterrupt), interrupted(at, ctrl_c, *MODULES):
            event.wait(MOMENT)
        assert in_another_thread(event.set), at
        assert event.wait(10)


@pytest.mark.parametrize("setters", [1, 3])
@pytest.mark.parametrize("_", range(20))
def test_all_who_wait_for_an_event_are_told_whoever_sets_it(setters: int, _: int) -> None:
    event, told = Event(), list[bool]()
    waiting = [threading.Thread(target=lambda: told.append(event.wait(10))) for _ in range(4)]
    setting = [threading.Thread(target=event.set) for _ in range(setters)]
    for thread in (*waiting, *setting):
        thread.start()
    for thread in (*waiting, *setting):
        thread.join(20)
    assert told == [True] * 4
    assert event.is_set()


def test_what_is_set_while_its_waiter_gets_ready_is_not_missed() -> None:
    class Late(deque[threading.Lock]):
        def append(self, waiter: threading.Lock) -> None:
            event.set()
            super().append(waiter)

    event = Event()
    event._waiting = Late()
    assert event.wait(MOMENT)


def test_who_gave_up_waiting_for_an_event_leaves_nothing() -> None:
    """A call that is asked for with short timeouts, over and over, would gather a lock for each."""
    event = Event()
    assert not event.wait(0)
    assert not event.wait(-1.0)
    assert not event._waiting


def test_who_waits_at_a_condition_is_told_and_holds_it_then() -> None:
    condition, told = Condition(), list[bool]()

    def wait() -> None:
        with condition:
            told.append(condition.wait(10))

    waiting = threading.Thread(target=wait)
    waiting.start()
    while waiting.is_alive():
        with condition:
            condition.notify_all()
    assert told == [True]
    assert not condition._is_owned()
    with condition, condition:
        assert not condition.wait(0)
        assert condition._is_owned(), "as often as before"
    with pytest.raises(RuntimeError):
        condition.wait(0)


@pytest.mark.filterwarnings("error")
def test_a_loop_goes_on_wherever_an_interrupt_comes_into_a_call() -> None:
    """Regression: it stood still for ever, or a coroutine was made of which nobody knew."""
    loop = LoopThread("test")
    asked = (*MODULES, loop_thread)
    for at in places(lambda: loop.call(lambda: 1), *asked):
        with suppress(KeyboardInterrupt), interrupted(at, ctrl_c, *asked):  # an answer may come without a wait
            loop.call(lambda: 1)
        assert loop.submit(one).result(10) == 1, at
    loop.close()


def test_a_loop_ends_wherever_an_interrupt_comes_into_its_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression, on asyncio's own loop: it was taken to be told to stop, and was not."""
    monkeypatch.setattr(loop_thread, "new_loop", asyncio.new_event_loop)
    asked = (*MODULES, loop_thread, base_events, selector_events)
    for at in places(LoopThread("test").close, *asked):
        loop = LoopThread("test")
        with suppress(KeyboardInterrupt), interrupted(at, ctrl_c, *asked):
            loop.close()
        loop.close()
        assert not loop._thread.is_alive(), at


async def one() -> int:
    return 1


@pytest.mark.parametrize("timeout", [float("inf"), 1e12])
def test_a_wait_may_be_longer_than_the_platform_counts(timeout: float) -> None:
    event = Event()
    waiting = threading.Thread(target=lambda: event.wait(timeout))
    waiting.start()
    event.set()
    waiting.join()
    condition = interrupts.Condition()

    def tell() -> None:
        with condition:  # free as soon as the other waits
            condition.notify_all()

    with condition:
        thread = threading.Thread(target=tell)
        thread.start()
        assert condition.wait(timeout)
    thread.join()
