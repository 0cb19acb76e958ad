"""News on its way between the peer's process and the training program; see `handle.News`."""

from __future__ import annotations

from ictp2p.errors import PeerClosed
from ictp2p.handle import (
    Asking,
    Decided,
    Ended,
    LeftOut,
    NewcomerWaits,
    News,
    Regrouped,
    StateAdvanced,
    WorkerGone,
    failures,
    messages,
)


def packed(news: News) -> messages.ToTraining:
    """News as it travels."""
    match news:
        case Asking(ready=ready):
            return messages.Readiness(ready)
        case Regrouped(roster=roster, well=well):
            return messages.Rostered(roster, well)
        case LeftOut(roster=roster):
            return messages.Rostered(roster, None)
        case NewcomerWaits():
            return messages.Newcomer()
        case WorkerGone(worker=worker, status=status):
            return messages.Gone(worker, status)
        case StateAdvanced(ref=ref):
            return messages.Advanced(ref)
        case Decided(slot=slot, value=value):
            return messages.Decision(slot, value)
        case Ended(error=error):
            return messages.Ending(failures.packed(error))


def unpacked(message: messages.ToTraining) -> News | None:
    """The news that arrived, if it is any."""
    match message:
        case messages.Readiness(ready=ready):
            return Asking(ready)
        case messages.Rostered(roster=roster, well=None):
            return LeftOut(roster)
        case messages.Rostered(roster=roster, well=well):
            return Regrouped(roster, well or ())
        case messages.Newcomer():
            return NewcomerWaits()
        case messages.Gone(worker=worker, status=status):
            return WorkerGone(worker, status)
        case messages.Advanced(ref=ref):
            return StateAdvanced(ref)
        case messages.Decision(slot=slot, value=value):
            return Decided(slot, value)
        case messages.Ending(failure=failure):
            error = failures.unpacked(failure)
            return Ended(error if isinstance(error, PeerClosed) else PeerClosed(str(error)))
        case _:
            return None
