"""The calls of one rank: numbered as they are made, run side by side on the event loop, each ended once.

A call is made in a thread of the training program and runs on the loop's, so what both touch is under a lock: the
numbers, which must be the same on every rank, and whether the group still runs. From the moment that it does not, a
call ends with `GroupClosed` however it raced with the end: it is refused, or it is found among those under way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from torch import Tensor

from ictp2p.concurrency.blocking import blocking
from ictp2p.concurrency.loop_thread import LoopThread
from ictp2p.torch_backend.abreast import Abreast
from ictp2p.torch_backend.errors import CalledInCallback, GroupClosed, translated
from ictp2p.torch_backend.memory import Memory
from ictp2p.torch_backend.work import GroupWork, calls_back
from ictp2p.types import PeerId

_SEVERAL = " (this rank calls from several threads: ranks have to call in one order, or in a group for each thread)"
"""What else is said where ranks call different things, if so."""
Start: TypeAlias = Callable[[], Awaitable[int | None]]
"""Runs a call; gives the rank that a message came from, if it is one."""


class Calls:
    """All calls of one rank. `peers` are the ranks' ids, in order, as soon as they are known."""

    def __init__(self, loop: LoopThread) -> None:
        self.peers: Sequence[PeerId] = ()
        self._loop = loop
        self._number = 0
        self._caller = 0
        """The thread that made the last one."""
        self._several = False
        """Whether more than one has made any."""
        self._lock = threading.RLock()  # reentrant: a signal handler may end the group while its thread makes a call
        self._pending: dict[asyncio.Task[None], None] = {}
        self._abreast = Abreast()
        self._closed = False

    def number(self, kind: str) -> int:
        """Count one more collective, of some kind, in the order that all ranks have in common.

        Raises:
            GroupClosed: this process is another one's fork.
            CalledInCallback: a callback makes the call. Ranks run their callbacks in other orders, and would pair it
                with another call: of equal sizes, without a word.
        """
        if calls_back():
            raise CalledInCallback(
                f"{kind} in a callback of a future: ranks run these in no common order. Wait for the future, then call"
            )
        self._loop.check_process()  # before the lock, which a thread may have held that was not forked along
        with self._lock:
            self._number += 1
            before, self._caller = self._caller, threading.get_ident()
            self._several = self._several or before not in (0, self._caller)
            return self._number

    def begin(
        self,
        name: str,
        group: str,
        start: Start,
        memory: Memory,
        results: Sequence[Tensor],
        *,
        number: int = 0,
        nbytes: int = 0,
        patience: float | None = None,
        failed: Callable[[Exception], object] = lambda error: None,
    ) -> GroupWork:
        """Start a call; returns at once.

        Args:
            name: what it is called in errors.
            group: the group's name, for people.
            start: runs it, on the loop.
            memory: what is copied back when it has succeeded.
            results: what its work gives then.
            number: its place among the collectives, if it is one.
            nbytes: what it moves, about.
            patience: seconds that it waits for its turn while none before it ends well; None: it need not wait.
            failed: told, on the loop, why it has, perhaps before its turn came.

        Raises:
            GroupClosed: this process is another one's fork.
        """
        self._loop.check_process()
        work = GroupWork(f"{name} of group {group or 'without a name'}", results)
        place = f"{name}, the group's collective no. {number},"
        with self._lock:
            taken = not self._closed and self._loop.post(
                lambda: self._launch(work, name, self._in_turn(start, place, nbytes, patience, failed), memory)
            )
        if taken:
            return work
        work.finish(_shut_down(name))
        return work

    def under_way(self) -> bool:
        """Whether any call is. On the loop."""
        return bool(self._pending)

    def close(self) -> bool:
        """Refuse every later call; gives whether this is the first time, and ours to do: not in a fork."""
        if self._loop.left_behind:  # before the lock, as above
            return False
        with self._lock:
            first, self._closed = not self._closed, True
        return first

    def cancel(self) -> None:
        """End what is under way. On the loop."""
        for task in tuple(self._pending):
            task.cancel()

    def _in_turn(
        self, start: Start, place: str, nbytes: int, patience: float | None, failed: Callable[[Exception], object]
    ) -> Start:
        if patience is None:
            return start

        async def run() -> int | None:
            try:
                turn = await self._abreast.begin(place, nbytes, patience)
                well = False
                try:
                    source = await start()
                    well = True
                    return source
                finally:
                    self._abreast.end(turn, well=well)
            except Exception as error:
                failed(error)
                raise

        return run

    def _launch(self, work: GroupWork, name: str, start: Start, memory: Memory) -> None:
        task = asyncio.get_running_loop().create_task(self._run(work, name, start, memory))
        self._pending[task] = None
        task.add_done_callback(self._pending.pop)

    async def _run(self, work: GroupWork, name: str, start: Start, memory: Memory) -> None:
        try:
            source = await start()
            if memory.returns:
                await blocking(memory.give_back)
        except asyncio.CancelledError:
            work.finish(_shut_down(name))
            raise
        except BaseException as error:
            work.finish(translated(error, name, self.peers, _SEVERAL if self._several else ""))
        else:
            work.finish(source=-1 if source is None else source)


def _shut_down(name: str) -> GroupClosed:
    return GroupClosed(f"{name}: the process group was shut down")
