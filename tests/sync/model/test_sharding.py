"""Models that are sharded, with process groups, in a process of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ictp2p.errors import ConfigError, shown
from ictp2p.shards import shard_token
from tests.forked import ROOT


@pytest.mark.real
def test_shards_are_trained_saved_and_healed_as_whole_models_are(tmp_path: Path) -> None:
    """Regression: gradients of shards were not averaged, their optimizers not carried over, and nothing said so."""
    command = [sys.executable, "-W", "error", "-m", "tests.sync.model.sharded_worker", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert (ran.returncode, ran.stdout) == (0, "all of it\n"), ran.stderr


def test_each_shard_has_a_token_of_its_own_that_all_clusters_make_alike() -> None:
    token = "0123456789abcdef" * 2
    assert len({shard_token(token, shard) for shard in range(64)} | {token}) == 65
    assert shard_token(token, 3) == shard_token(token, 3) != shard_token(token[::-1], 3)


@pytest.mark.parametrize("shard", [-1, True, 1.0, "1", 10**400, pytest.param(10**5000, id="5000 digits")])
def test_what_is_no_shard_is_named(shard: object) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"shard {shown(shard)} is not a whole number")):
        shard_token("0" * 32, shard)  # type: ignore[arg-type]


@pytest.mark.parametrize("token", ["", None, b"t" * 32, "\ud800" * 20])
def test_what_is_no_token_is_said(token: object) -> None:
    with pytest.raises(ConfigError, match="token is not valid: it must be text"):
        shard_token(token, 0)  # type: ignore[arg-type]
