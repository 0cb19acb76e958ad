"""Work that blocks beside a loop, also when the interpreter has no more threads for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ictp2p.concurrency.blocking import blocking

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 60.0


async def test_it_runs_in_another_thread_and_gives_what_that_gives() -> None:
    assert await blocking(threading.get_ident) != threading.get_ident()
    assert await blocking(max, 3, 4) == 4
    with pytest.raises(ZeroDivisionError):
        await blocking(lambda: 1 / 0)


async def test_it_is_begun_though_nobody_comes_to_wait_for_it() -> None:
    """Regression: a store's close that was shielded had not begun when all tasks were cancelled, and never did."""
    done: list[int] = []
    blocking(done.append, 1)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert done == [1]


async def test_a_loop_that_takes_no_more_work_while_the_program_goes_on_says_so() -> None:
    await blocking(int)
    await asyncio.get_running_loop().shutdown_default_executor()
    done: list[int] = []
    with pytest.raises(RuntimeError, match="shutdown"):
        await blocking(done.append, 1)
    assert done == []


LOOP_AT_EXIT = """
import atexit
from ictp2p.concurrency.blocking import blocking
from ictp2p.concurrency.loop_thread import LoopThread
loop, done = LoopThread("x"), []

async def first():
    await blocking(int)

loop.run(first)

async def last():
    done.append(await blocking(max, 3, 4))

atexit.register(lambda: print(done, flush=True))
atexit.register(lambda: loop.close(last))
"""


def test_a_loop_may_end_when_the_program_exits() -> None:
    """Since Python 3.12 the interpreter begins no thread any more by then, also none that would end the others."""
    ran = subprocess.run(
        [sys.executable, "-c", LOOP_AT_EXIT], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[4]\n", "")


AT_EXIT = """
import atexit, sys, torch, ictp2p
peer = ictp2p.Peer(ictp2p.Config.local(cluster="a", token=sys.argv[1], isolation=sys.argv[2]))
peer.start()
net = torch.nn.Linear(2, 1)
inner = torch.optim.SGD(net.parameters(), lr=0.1)
policy = ictp2p.LocalSGD(peer, net, inner, sync_every=1).__enter__()
net(torch.ones(1, 2)).sum().backward()
inner.step()
atexit.register(lambda: print(policy.version, peer.state, flush=True))
atexit.register(peer.close)
"""


@pytest.mark.real
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_peer_may_be_closed_when_the_program_exits(isolation: str) -> None:
    """Regression: its group's store is closed in a thread, and there were none any more."""
    script = [sys.executable, "-c", AT_EXIT, "x" * 32, isolation]
    ran = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "2 EXIT\n", "")
