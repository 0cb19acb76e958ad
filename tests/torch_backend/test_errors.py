"""Whatever ends a group or keeps it from being formed is an error of torch's as well as one of ours."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from ictp2p.errors import HandshakeFailed, IctError, PeerClosed, RemoteProtocolError, RoundTimeout, VersionMismatch
from ictp2p.torch_backend import errors


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
