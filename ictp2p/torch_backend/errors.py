"""What a collective of a process group raises, as ictp2p's errors and as torch's at once.

A training script that runs on Gloo catches torch's, one that knows ictp2p its own; both are right here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from ictp2p.collectives.channel import CollectiveTimeout, ParticipantLost
from ictp2p.errors import IctError
from ictp2p.types import PeerId


class RankLost(ParticipantLost, dist.DistNetworkError):
    """A rank died, stalled, or gave up; `ranks` names whom we suspect, in this group's numbers."""

    def __init__(self, message: str, suspects: Sequence[PeerId], ranks: Sequence[int]) -> None:
        super().__init__(message, suspects)
        self.ranks = tuple(ranks)


class RankTimeout(CollectiveTimeout, dist.DistBackendError):
    """A collective did not end in time; `ranks` names whom it waited for, in this group's numbers."""

    def __init__(self, message: str, suspects: Sequence[PeerId], ranks: Sequence[int]) -> None:
        super().__init__(message, suspects)
        self.ranks = tuple(ranks)


def translated(error: BaseException, doing: str, names: Sequence[PeerId]) -> BaseException:
    """Give what a caller sees of an error that ended what was being done; `names` are the ranks' ids, in order."""
    while isinstance(error, BaseExceptionGroup):  # several pairs of one call failed: one reason is enough
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return RankTimeout(f"{doing}: nobody came in time", (), ())
    return named(error, doing, names) if isinstance(error, IctError) else error


def named(error: IctError, doing: str, names: Sequence[PeerId]) -> IctError:
    """Say the same with ranks for peers, and what was being done."""
    text = str(error)
    for rank, name in enumerate(names):
        text = text.replace(name, f"rank {rank}")
    if isinstance(error, ParticipantLost | CollectiveTimeout):
        ranks = [names.index(suspect) for suspect in error.suspects if suspect in names]
        kind = RankLost if isinstance(error, ParticipantLost) else RankTimeout
        return kind(f"{doing}: {text}", error.suspects, ranks)
    return type(error)(f"{doing}: {text}")
