"""What tests of policies use."""

from __future__ import annotations

import pytest

from tests.sync.fake_group import Killed
from tests.sync.policy_world import World


@pytest.fixture
def make_world() -> type[World]:
    return World


@pytest.fixture
def killed() -> type[Killed]:
    return Killed
