"""Whether a cluster waits while the mesh cannot decide, by itself; what follows is `test_leader`'s."""

from __future__ import annotations

import pytest

from ictp2p.sync.two_level.patience import Patience, WithoutQuorum


@pytest.mark.parametrize(
    ("without_quorum", "skipped", "does"),
    [
        ("wait", 0, "waits"),
        ("stop", 0, "stops"),
        ("continue", 0, "skips"),
        ("continue", 1, "skips"),
        ("continue", 2, "waits"),
    ],
)
def test_it_does_one_thing_at_a_time(without_quorum: WithoutQuorum, skipped: int, does: str) -> None:
    patience = Patience(without_quorum, most_skipped=2)
    patience.skipped = skipped
    assert [what for what in ("waits", "stops", "skips") if getattr(patience, what)] == [does]
