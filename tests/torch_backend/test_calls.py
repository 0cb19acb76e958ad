"""The calls of one rank: each ends once, whatever they race with."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.collectives.channel import ParticipantLost
from ictp2p.concurrency.loop_thread import LoopThread
from ictp2p.errors import PeerClosed
from ictp2p.torch_backend import work as work_module
from ictp2p.torch_backend.calls import Calls
from ictp2p.torch_backend.errors import RankLost, RankTimeout, translated
from ictp2p.torch_backend.memory import Memory
from ictp2p.torch_backend.work import GroupWork
from ictp2p.types import PeerId
from tests.interrupts import interrupted, places

PEERS = [PeerId("a" * 32), PeerId("b" * 32)]


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    running = LoopThread("calls under test")
    yield running
    running.close()


@given(before=st.lists(st.sampled_from(["at once", "never"]), max_size=4), late=st.integers(0, 2), landed=st.booleans())
def test_a_call_ends_well_or_with_the_group_but_always(
    loop: LoopThread, before: list[str], late: int, landed: bool
) -> None:
    calls = Calls(loop)

    async def start(kind: str) -> None:
        if kind == "never":
            await asyncio.Event().wait()

    works = [calls.begin(kind, "g", lambda kind=kind: start(kind), Memory(), []) for kind in before]  # type: ignore[misc]
    if landed:  # else they may be on their way to the loop when the group ends
        loop.call(calls.under_way)
    assert calls.close()
    assert not calls.close()
    works += [calls.begin("late", "", lambda: start("at once"), Memory(), []) for _ in range(late)]
    loop.call(calls.cancel)
    for kind, work in zip([*before, *["late"] * late], works, strict=True):
        if kind == "at once":
            assert work.wait()
        else:
            with pytest.raises(PeerClosed, match=kind):
                work.wait()
    assert not loop.call(calls.under_way)


@pytest.mark.parametrize("chained", [False, True])
def test_no_call_is_made_in_a_callback_where_ranks_have_no_order_in_common(loop: LoopThread, chained: bool) -> None:
    """Regression: two of these, of equal sizes, were paired crosswise, and gave wrong sums without a word."""
    calls, gate, found = Calls(loop), asyncio.Event(), list[object]()

    async def start() -> None:
        await gate.wait()

    def call(ended: object) -> None:
        found.append(ended)
        calls.number("all_reduce")

    future = calls.begin("all_reduce", "g", start, Memory(), []).get_future()
    after = future.then(lambda ended: None).then(call) if chained else future.then(call)
    loop.call(gate.set)
    with pytest.raises(RuntimeError, match="CalledInCallback: all_reduce in a callback of a future"):
        after.wait()
    assert found
    assert calls.number("all_reduce") == 1, "and what the program calls next has the number that it has elsewhere"


@given(number=st.integers(1, 12), limit=st.integers(1, 4), failing=st.sets(st.integers(0, 11)))
def test_collectives_run_in_order_and_only_so_many_at_a_time(
    loop: LoopThread, number: int, limit: int, failing: set[int]
) -> None:
    began, running, most = list[int](), set[int](), 0

    async def start(n: int) -> None:
        nonlocal most
        began.append(n)
        running.add(n)
        most = max(most, len(running))
        await asyncio.sleep(0)
        running.discard(n)
        if n in failing:
            raise ValueError(n)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ictp2p.torch_backend.abreast.MOST", limit)
        calls = Calls(loop)
        works = [
            calls.begin(str(n), "g", lambda n=n: start(n), Memory(), [], patience=3600.0)  # type: ignore[misc]
            for n in range(number)
        ]
        for n, work in enumerate(works):
            if n in failing:
                with pytest.raises(ValueError, match=str(n)):
                    work.wait()
            else:
                assert work.wait()
    assert began == list(range(number))
    assert most <= limit


def test_a_collective_does_not_wait_for_its_turn_for_ever_and_a_message_for_none(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ictp2p.torch_backend.abreast.MOST", 1)
    calls = Calls(loop)

    async def never() -> None:
        await asyncio.Event().wait()

    async def at_once() -> None:
        pass

    first = calls.begin("first", "g", never, Memory(), [], number=1, patience=3600.0)
    late = calls.begin("late", "g", at_once, Memory(), [], number=2, patience=0.01)
    assert calls.begin("message", "g", at_once, Memory(), []).wait()
    words = (
        r"late: no call before it has succeeded for 0\.01 s: first, the group's collective no\. 1, is still under way"
    )
    with pytest.raises(RankTimeout, match=words):
        late.wait()
    loop.call(calls.cancel)
    with pytest.raises(PeerClosed):
        first.wait()


def test_calls_are_numbered_without_gaps_by_any_number_of_threads(loop: LoopThread) -> None:
    calls = Calls(loop)
    with ThreadPoolExecutor(4) as threads:
        numbers = list(threads.map(lambda _: calls.number("barrier"), range(100)))
    assert sorted(numbers) == list(range(1, 101))
    assert calls.number("reduce") == 101, "in one line, of whatever kind"


def test_an_error_names_the_rank_and_the_call() -> None:
    lost = translated(ParticipantLost(f"{PEERS[1]}: gone", [PEERS[1]]), "broadcast", PEERS)
    assert isinstance(lost, RankLost)
    assert lost.ranks == (1,)
    assert str(lost) == "broadcast: rank 1: gone"
    late = translated(TimeoutError(), "gather", PEERS)
    assert isinstance(late, RankTimeout)
    assert str(late) == "gather: nobody came in time", "an error without words says what it is all the same"
    mine = ValueError("of the program itself")
    assert translated(mine, "gather", PEERS) is mine


def test_a_signal_may_end_the_group_in_the_middle_of_a_call(loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler runs in the thread that makes the call, and waits for nobody who waits for it."""
    calls, first, post = Calls(loop), list[bool](), loop.post

    def interrupted(act: Callable[[], object]) -> bool:
        first.append(calls.close())
        return post(act)

    async def start() -> None:
        """Nothing is to be done."""

    monkeypatch.setattr(loop, "post", interrupted)
    calling = threading.Thread(target=calls.begin, args=("call", "", start, Memory(), []), daemon=True)
    calling.start()
    calling.join(10)
    assert first == [True]
    assert not calling.is_alive()


@pytest.mark.timeout(20)  # else it waits for itself
@pytest.mark.parametrize("ends", ["before", "in it", "after"])
def test_a_signals_handler_may_ask_wherever_it_comes_into_what_its_thread_asks_of_a_call(ends: str) -> None:
    def begun() -> GroupWork:
        work = GroupWork("one", [])
        if ends == "before":
            work.finish()
        return work

    def ask(work: GroupWork) -> tuple[Any, Any]:
        return work.get_future(), work.is_success()

    other = begun()
    for at in places(lambda: ask(other), work_module):
        work, asked = begun(), list[Any]()

        def handler(work: GroupWork = work, asked: list[Any] = asked) -> None:
            asked.append(ask(work))
            if ends == "before":
                asked[0][0].wait()
            elif ends == "in it":
                work.finish()
                work.wait()

        with interrupted(at, handler, work_module):
            asked.append(ask(work))
        work.finish()
        assert [future.wait() for future, _ in asked] == [[], []], at


_LAST = """
import time
from ictp2p.torch_backend.work import GroupWork

work = GroupWork("a call", [])
work.get_future().then(lambda future: time.sleep(0.5) or print("called", flush=True))
work.finish()
"""


def test_a_script_ends_with_its_own_status_though_futures_still_call_back() -> None:
    """A thread that wakes up in torch when the interpreter has gone would abort the process."""
    script = subprocess.run([sys.executable, "-c", _LAST + "raise SystemExit(7)"], capture_output=True, timeout=60)
    assert (script.returncode, script.stdout) == (7, b"called\n"), script.stderr
