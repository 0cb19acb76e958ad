from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.real
def test_a_rank_dies_before_the_others_can_be_done_however_small_the_tensor() -> None:
    """Regression: it died when it had half of the result, and the other one of two had all of it: nobody died."""
    asked = [sys.executable, "benchmarks/recovery.py", "--ranks", "2", "--mb", "0.01", "--repeat", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=100, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("median later than clean:")
