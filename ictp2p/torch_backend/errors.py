"""What a process group raises when it is formed, used or ended, as ictp2p's errors and as torch's at once.

A training script that runs on Gloo catches torch's, which are RuntimeErrors; one that knows ictp2p its own; both are
right here. An argument that cannot be right is a `ConfigError`, which is a ValueError, before anything has left.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from ictp2p.collectives.channel import CallsDiffer, CollectiveTimeout, ParticipantLost
from ictp2p.errors import (
    HandshakeFailed,
    IctError,
    LocalProtocolError,
    PeerClosed,
    RemoteProtocolError,
    RoundTimeout,
    VersionMismatch,
)
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


class RanksDiffer(CallsDiffer, dist.DistBackendError):
    """Ranks made different calls, or with different sizes, as their next one; `ranks` names who differs from us."""

    def __init__(self, message: str, suspects: Sequence[PeerId], ranks: Sequence[int]) -> None:
        super().__init__(message, suspects)
        self.ranks = tuple(ranks)


class GroupClosed(PeerClosed, dist.DistBackendError):
    """The group was shut down or aborted, or lives in the process that this one was forked from."""


class CalledInCallback(LocalProtocolError, dist.DistBackendError):
    """A collective was called in a callback of a future, where ranks have no order in common."""


class RanksMissing(RoundTimeout, dist.DistStoreError):
    """A group was not formed: not all ranks came in time; `ranks` names those that did not."""

    def __init__(self, message: str, ranks: Sequence[int]) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


class RankRefused(HandshakeFailed, dist.DistStoreError):
    """A group was not formed: a rank does not know the token, or was started with other options."""


class SizeRefused(RankRefused):
    """A group was not formed: a rank was started as one of another number of ranks."""


class CardRefused(RemoteProtocolError, dist.DistStoreError):
    """A group was not formed: what stands in the store for a rank is no card, or two have the same."""


class VersionRefused(VersionMismatch, dist.DistStoreError):
    """A group was not formed: a rank has cards of another version."""


def translated(error: BaseException, doing: str, names: Sequence[PeerId], aside: str = "") -> BaseException:
    """Give what a caller sees of an error that ended what was being done.

    Args:
        error: it.
        doing: what was being done.
        names: the ranks' ids, in order.
        aside: what is said beside it where ranks call different things.
    """
    if isinstance(error, TimeoutError):
        return RankTimeout(f"{doing}: {str(error) or 'nobody came in time'}", (), ())
    if not isinstance(error, IctError):
        return error
    return named(error, doing, names, aside if isinstance(error, CallsDiffer) else "")


def again(error: BaseException) -> BaseException:
    """Give an error of ours to be raised, as another one: who keeps it would know the frames that it goes through.

    torch's own frames know the `Work` that knows the error, and the tensors would wait for the garbage collector.
    """
    if not isinstance(error, IctError):
        return error
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(vars(error))
    return twin


def named(error: IctError, doing: str, names: Sequence[PeerId], aside: str = "") -> IctError:
    """Say the same with ranks for peers, and what was being done."""
    text = f"{error}{aside}"
    for rank, name in enumerate(names):
        text = text.replace(name, f"rank {rank}")
    if isinstance(error, ParticipantLost | CollectiveTimeout | CallsDiffer):
        ranks = [names.index(suspect) for suspect in error.suspects if suspect in names]
        kinds = {ParticipantLost: RankLost, CollectiveTimeout: RankTimeout, CallsDiffer: RanksDiffer}
        ours = next(ours for kind, ours in kinds.items() if isinstance(error, kind))
        return ours(f"{doing}: {text}", error.suspects, ranks)
    return type(error)(f"{doing}: {text}")
