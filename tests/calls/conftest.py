"""What tests of calls use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.calls.callers import Mesh


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    with Mesh() as mesh:
        yield mesh
