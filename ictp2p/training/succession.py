"""A process that trains again takes the state over from what it held before: nobody else need be asked for it.

That is so even where a cluster would take but the name of another one's state (`sync.state.own`): what was its own, it
takes over with all its content.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from ictp2p.concurrency.interrupts import Answer
from ictp2p.concurrency.threads import Threads
from ictp2p.sync.mesh import Receiver
from ictp2p.sync.values import StateRef

if TYPE_CHECKING:
    from ictp2p.sync.state.global_state import GlobalState


def holder(mine: GlobalState | None, ref: StateRef) -> GlobalState | None:
    """What this process held before `mine`, if that is the state that is wanted."""
    kept = None if mine is None else mine.predecessor
    return kept if kept is not None and ref.digest in (kept.digest, kept.sealed) else None


def heir(mine: GlobalState | None, kept: GlobalState, receiver: Receiver) -> Receiver:
    """Who receives it: all of `mine`, if that is the same kind of state and holds nothing yet, else the receiver."""
    return mine if mine is not None and not mine.version and mine.entries == kept.entries else receiver


def hand_on(threads: Threads, kept: GlobalState, ref: StateRef, receiver: Receiver) -> Future[None]:
    """Have it handed on, beside the training thread, which has to show meanwhile that it lives."""
    handed = Answer[None]()

    def run() -> None:
        try:
            kept.hand_on(ref.digest, ref.version, receiver)
        except BaseException as error:
            handed.set_exception(error)
        else:
            handed.set_result(None)

    handed.set_running_or_notify_cancel()  # nothing stops a thread: what it holds is taken back instead
    threads.start(run, "ictp2p state")
    return handed
