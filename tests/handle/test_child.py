"""The peer's end of the line: whatever comes with one read, every request is answered once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.handle import to_peer, to_training
from ictp2p.handle.child import Child
from ictp2p.handle.framing import Frames
from ictp2p.handle.messages import encode
from ictp2p.runtime.participation import Outcome, Reduction
from ictp2p.sync.values import Spec, StateRef

REDUCE = to_peer.Reduce(
    Spec("reduce", "", "float32", 0, "avg", "raw"), StateRef(0, b"", ()), 1.0, (), (), False, 0.0, False, b"", ()
)
TURNS = 12
"""Turns of a loop in which it has read what there is and done what follows."""


class Busy:
    """A peer whose rounds never end by themselves."""

    async def reduce(self, work: Reduction) -> Outcome:
        found: Outcome = await asyncio.get_running_loop().create_future()
        return found


async def answers(writes: list[bytes]) -> list[tuple[int, to_training.ToTraining]]:
    """What a peer's process says to some writes, each of which it reads at once."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop = asyncio.get_running_loop()
        ours.setblocking(False)
        child = Child(loop, theirs)
        busy: Any = Busy()
        child.peer = busy
        for written in writes:
            ours.sendall(written)
            for _ in range(TURNS):
                await asyncio.sleep(0)
        loop.remove_reader(theirs.fileno())
        assert not child._tasks
        said = ours.recv(1 << 18) if any(writes) else b""
        return [(number, to_training.decode(body)) for number, body in Frames().take(said)]


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@given(steps=st.lists(st.sampled_from(["ask", "cancel", "read"]), max_size=20))
def test_every_request_is_answered_once_however_early_it_is_cancelled(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], steps: list[str]
) -> None:
    asked, standing, writes = 0, list[int](), [b""]
    for step in [*steps, *["cancel"] * steps.count("ask")]:
        match step:
            case "ask":
                asked += 1
                standing.append(asked)
                writes[-1] += encode(asked, REDUCE)
            case "cancel" if standing:
                writes[-1] += encode(standing.pop(0), to_peer.Cancel())
            case "read":
                writes.append(b"")
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        said = runner.run(answers(writes))
    for number in range(1, asked + 1):
        over, failed = (message for about, message in said if about == number)
        assert isinstance(over, to_training.Over)
        assert isinstance(failed, to_training.Failed)
        assert failed.failure.kind == "CancelledError"
