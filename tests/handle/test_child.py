"""The peer's end of the line: whatever comes with one read, every request is answered once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.handle import to_peer, to_training
from ictp2p.handle.child import Child
from ictp2p.handle.framing import Frames
from ictp2p.handle.messages import encode
from ictp2p.handle.process import ProcessHandle
from ictp2p.runtime.reduction import Outcome, Reduction
from ictp2p.sync.state.global_state import GlobalState, entry
from ictp2p.sync.values import Spec, StateRef

REDUCE = to_peer.Reduce(
    Spec("reduce", "", "float32", 0, "avg", "raw"), StateRef(0, b"", ()), 1.0, (), (), False, 0.0, False, b"", ()
)
TURNS = 12
"""Turns of a loop in which it has read what there is and done what follows."""


class Busy:
    """A peer whose rounds never end by themselves, and of whom nothing else is asked."""

    assembled = False

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


async def test_it_answers_for_what_training_has_landed_and_for_what_may_be_agreed_on_besides() -> None:
    ours, theirs = socket.socketpair()
    body = msgspec.msgpack.encode
    with ours, theirs:
        child, served = Child(asyncio.get_running_loop(), theirs), list[Any]()
        peer: Any = SimpleNamespace(provide=served.append)
        child.peer = peer
        child.heard(0, body(to_peer.Holds(0, b"", b"")))
        child.heard(0, body(to_peer.Holds(3, b"three", b"four")))
        asyncio.get_running_loop().remove_reader(theirs.fileno())
    assert served == [child]
    assert (child.held(), child.sealed()) == ((3, b"three"), b"four")


def test_training_tells_its_peer_what_it_has_sealed_before_anything_else_and_once() -> None:
    """Regression: what had yet to land was not answered for, and the mesh went back to the version before."""
    handle, sent = object.__new__(ProcessHandle), list[Any]()
    state = GlobalState([entry("weight", torch.zeros(3))])
    questions: Any = SimpleNamespace(state=state)
    line: Any = SimpleNamespace(send=lambda number, message: sent.append(message))
    handle._where, handle._said, handle._questions, handle.line = None, {}, questions, line
    state.begin()["weight"].fill_(1.0)
    digest = state.seal({})
    for _ in range(2):
        handle._say(1, to_peer.Waiting())
    state.commit(7)
    handle._say(1, to_peer.Waiting())
    first, asked = to_peer.Holds(0, b"", digest), to_peer.Waiting()
    assert sent == [first, asked, asked, to_peer.Holds(7, digest, b""), asked]
