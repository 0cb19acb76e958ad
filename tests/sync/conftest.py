"""What tests of policies use."""

from __future__ import annotations

import pytest

from ictp2p.sync.model import stepping
from tests.sync.fake_group import Killed
from tests.sync.policy_world import World


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have models of a few elements stepped while their average arrives, as those of gigabytes are."""
    monkeypatch.setattr(stepping, "_BATCH", 8)


@pytest.fixture
def make_world() -> type[World]:
    return World


@pytest.fixture
def killed() -> type[Killed]:
    return Killed
