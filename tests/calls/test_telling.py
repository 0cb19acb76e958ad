"""What the workers of a cluster raise of what became of a call at its leader."""

from __future__ import annotations

import pytest

from ictp2p.calls.telling import as_told, in_bytes
from ictp2p.errors import IctError, LocalGroupError, MeshMismatch, PeerClosed, RoundError, RoundMissed


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RoundMissed("round 3: too late"), RoundMissed),
        (MeshMismatch("float32, not float64"), MeshMismatch),
        (LocalGroupError("broke"), RoundError),
        (PeerClosed("closed"), RoundError),
    ],
)
def test_whose_error_it_was_is_said_once_however_often_it_is_handed_on(error: IctError, kind: type[IctError]) -> None:
    """Regression: who was handed it by a follower read of its leader twice."""
    told = as_told(in_bytes(error))
    for each in (told, as_told(in_bytes(told))):
        assert type(each) is kind
        assert str(each) == f"at this cluster's leader: {error}"
