"""Whatever ends a group or keeps it from being formed is an error of torch's as well as one of ours."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from ictp2p.errors import HandshakeFailed, IctError, PeerClosed, RemoteProtocolError, RoundTimeout, VersionMismatch
from ictp2p.torch_backend import errors
from ictp2p.torch_backend.work import GroupWork
from ictp2p.types import PeerId
from tests.garbage import LARGE, uncollected


@pytest.mark.parametrize(
    ("kind", "ours"),
    [
        (errors.GroupClosed, PeerClosed),
        (errors.RanksMissing, RoundTimeout),
        (errors.RankRefused, HandshakeFailed),
        (errors.SizeRefused, HandshakeFailed),
        (errors.CardRefused, RemoteProtocolError),
        (errors.VersionRefused, VersionMismatch),
        (errors.RankLost, IctError),
        (errors.RankTimeout, IctError),
    ],
)
def test_each_is_caught_by_a_script_for_gloo_and_by_one_for_ictp2p(kind: type[Exception], ours: type[IctError]) -> None:
    """Regression: what a shutdown ended, and a group that could not be formed, were none of torch's."""
    assert issubclass(kind, ours)
    assert issubclass(kind, dist.DistError)
    assert issubclass(kind, RuntimeError)


@pytest.mark.parametrize("how", ["wait", "future"])
def test_a_call_that_failed_leaves_nothing_to_the_garbage_collector(how: str) -> None:
    """Regression: its error knew the frames of who waited, these the `Work`, and that the error and the tensors."""
    given, told = ("all_reduce: rank 2 died", (PeerId("2" * 32),), (2,)), []

    def fail() -> None:
        work = GroupWork("all_reduce", [torch.ones(LARGE)])
        work.finish(errors.RankLost(*given))
        for _ in range(2):
            try:
                work.wait() if how == "wait" else work._unwrapped(None)
            except errors.RankLost as error:
                told.append((str(error), error.suspects, error.ranks))

    with uncollected(GroupWork) as left:
        fail()
    assert left == []
    assert told == [given] * 2
