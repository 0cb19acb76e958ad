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
    to_training,
)


def packed(news: News) -> to_training.ToTraining:
    """News as it travels."""
    match news:
        case Asking(ready=ready):
            return to_training.Readiness(ready)
        case Regrouped(roster=roster, well=well):
            return to_training.Rostered(roster, well)
        case LeftOut(roster=roster):
            return to_training.Rostered(roster, None)
        case NewcomerWaits():
            return to_training.Newcomer()
        case WorkerGone(worker=worker, status=status):
            return to_training.Gone(worker, status)
        case StateAdvanced(ref=ref):
            return to_training.Advanced(ref)
        case Decided(slot=slot, value=value):
            return to_training.Decision(slot, value)
        case Ended(error=error):
            return to_training.Ending(failures.packed(error))


def unpacked(message: to_training.ToTraining) -> News | None:
    """The news that arrived, if it is any."""
    match message:
        case to_training.Readiness(ready=ready):
            return Asking(ready)
        case to_training.Rostered(roster=roster, well=None):
            return LeftOut(roster)
        case to_training.Rostered(roster=roster, well=well):
            return Regrouped(roster, well or ())
        case to_training.Newcomer():
            return NewcomerWaits()
        case to_training.Gone(worker=worker, status=status):
            return WorkerGone(worker, status)
        case to_training.Advanced(ref=ref):
            return StateAdvanced(ref)
        case to_training.Decision(slot=slot, value=value):
            return Decided(slot, value)
        case to_training.Ending(failure=failure):
            error = failures.unpacked(failure)
            return Ended(error if isinstance(error, PeerClosed) else PeerClosed(str(error)))
        case _:
            return None
