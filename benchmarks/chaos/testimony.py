"""What a worker says of itself when it is asked: what it believes, what it waits for, and where its threads are.

It is asked when the mesh stands still, so nothing here may wait for long for anything: the event loop is given
`PATIENCE` seconds to answer, and that it does not is an answer too.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import ictp2p
from ictp2p.async_peer import AsyncPeer
from ictp2p.errors import PeerClosed

PATIENCE = 2.0
"""Seconds that the event loop has."""
_FRAMES = 5
"""Innermost calls of a thread or task that are named."""
_OURS = ("ictp2p", "benchmarks")
_ASIDE = ("testimony.", "worker._testify", "worker._die_with")
"""Threads of the campaign's own."""


def of(peer: ictp2p.Peer) -> dict[str, Any]:
    """Everything that explains a standstill, as plain data."""
    threads = _threads()
    handle: Any = peer._handle
    if handle is None:
        return {"threads": threads, "beliefs": {"silent": "the peer is not started, or closed"}}

    async def ask() -> dict[str, Any]:
        return {**beliefs(handle.service.peer), "tasks": _tasks()}

    try:
        believed = handle.wait(handle.loop.submit(ask), PATIENCE)
    except TimeoutError:
        believed = {"silent": f"its loop did not answer within {PATIENCE:g} s"}
    except (PeerClosed, RuntimeError, AttributeError, AssertionError) as error:
        believed = {"silent": f"{type(error).__name__}: {error}"}
    return {"threads": threads, "beliefs": believed}


def beliefs(inside: AsyncPeer) -> dict[str, Any]:
    """What the machines of a started peer hold; asked on its loop."""
    status, m = inside.status(), inside.core.m
    part, rosters = m.rounds._part, m.rosters
    standing = inside.participation._standing
    return {
        **{name: status.get(name) for name in ("life", "phase", "leading", "leader", "term", "slot", "decision")},
        **{name: status.get(name) for name in ("round", "attempt", "state_version", "voters", "waiting")},
        "coordinator": m.rounds.agreement.coordinator,
        "suspects": sorted({*m.rounds.agreement.missing, *m.members.suspects()}),
        "bound": None if part.bound is None else f"{part.bound.round}.{part.bound.attempt} {part.progress}",
        "stands": part.standing is not None,
        "call": standing is not None,
        "holds": inside.held()[0],
        "connected": sorted(inside.core.connected()),
        "clusters": [[c["cluster"], c["status"], c["leader"], c["term"]] for c in status["clusters"]],
        "members": [[row["peer"], row["status"]] for row in status["members"]],
        "roster": None if rosters.roster is None else [*rosters.roster.generation, list(rosters.roster.members)],
        "office": f"{rosters._office} ready={rosters._worker.ready}",
    }


def _threads() -> dict[str, str]:
    """Where each thread that runs our code is."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = {names.get(number, str(number)): _way(frame) for number, frame in sys._current_frames().items()}
    return {name: way for name, way in frames.items() if way and not way.startswith(_ASIDE)}


def _way(frame: FrameType | None) -> str:
    """The innermost calls, innermost first; those of the standard library only where they are the very end."""
    calls = [(Path(f.f_code.co_filename), f.f_code.co_name, line) for f, line in traceback.walk_stack(frame)]
    ours = [call for call in calls if set(call[0].parts) & set(_OURS)]
    return " < ".join(f"{path.stem}.{name}:{line}" for path, name, line in ours[:_FRAMES])


def _tasks() -> list[str]:
    """Where each task of the loop waits."""
    ways = (_awaits(task) for task in asyncio.all_tasks())
    return sorted(way for way in ways if "ask" not in way)


def _awaits(task: asyncio.Task[Any]) -> str:
    """The chain of awaits, innermost first."""
    calls: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None and hasattr(awaited, "cr_code"):
        line = awaited.cr_frame.f_lineno if awaited.cr_frame is not None else 0
        calls.append(f"{Path(awaited.cr_code.co_filename).stem}.{awaited.cr_code.co_name}:{line}")
        awaited = awaited.cr_await
    return " < ".join(reversed(calls[-_FRAMES:]))
