from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROKEN = """
import sys
from benchmarks.chaos import __main__ as chaos, worker

def work(options, out):
    raise OSError("no room for anything")

worker.work = work
sys.exit(chaos.main())
"""


@pytest.mark.real
def test_a_campaign_whose_workers_all_end_before_the_first_version_ends_with_the_log_of_one(tmp_path: Path) -> None:
    """Regression: it waited for ever for the founder's address."""
    command = [sys.executable, "-c", BROKEN, "--keep", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1, ran.stderr
    told = ran.stdout[ran.stdout.rindex("PROBLEM ") :]
    assert "every worker ended before the first version" in told
    assert told.endswith("OSError: no room for anything\n")
