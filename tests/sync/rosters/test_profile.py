from __future__ import annotations

from ictp2p.sync.rosters.profile import RosterProfile


def test_presets_keep_their_order() -> None:
    local, lan, wan = RosterProfile.local(), RosterProfile.lan(), RosterProfile.wan()
    assert local.gather < lan.gather < wan.gather
    assert all(p.repeat < p.gather and p.backoff < p.backoff_most for p in (local, lan, wan))
