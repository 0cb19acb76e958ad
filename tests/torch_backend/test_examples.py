"""The examples on process groups that refuse what they cannot do; `test_four_ranks` runs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import forked

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.real
@pytest.mark.parametrize("script", ["hsdp.py", "fsdp2_lanes.py"])
@pytest.mark.parametrize("environment", [{}, {"RANK": "0", "WORLD_SIZE": "3"}], ids=["alone", "three"])
def test_ranks_that_two_clusters_cannot_share_are_refused_in_a_sentence(
    script: str, environment: dict[str, str]
) -> None:
    """Regression: it ended in an IndexError."""
    ran = forked.run(str(EXAMPLES / script), env={**os.environ, **environment})
    assert ran.returncode == 1
    number = environment.get("WORLD_SIZE", "1")
    assert ran.stderr == (f"{number} ranks cannot be shared among 2 clusters: give torchrun an even --nproc-per-node\n")
