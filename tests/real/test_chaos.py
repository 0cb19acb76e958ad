"""Workers under random harm, as processes and in the simulator; see `benchmarks/chaos` for what is checked.

The default run takes about half a minute. For a campaign, and to repeat one:

    ICTP2P_CHAOS_SEED=7 ICTP2P_CHAOS_SECONDS=600 python -m pytest tests/real/test_chaos.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("ICTP2P_CHAOS_SEED", "1")
SECONDS = os.environ.get("ICTP2P_CHAOS_SECONDS", "12")


def chaos(*arguments: str, seconds: float) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.chaos", "--seed", SEED, *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-2_000:] + done.stdout[-20_000:]


@pytest.mark.real
@pytest.mark.timeout(float(SECONDS) + 300)
def test_no_harm_breaks_the_books_stops_the_rounds_or_ends_a_worker_without_a_reason(tmp_path: Path) -> None:
    chaos("--seconds", SECONDS, "--keep", str(tmp_path), seconds=float(SECONDS) + 240)


@pytest.mark.timeout(180)
def test_nor_does_it_on_virtual_time() -> None:
    chaos("--virtual", "--seconds", "4", "--ballast", "500", seconds=170)
