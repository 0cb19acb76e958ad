"""The demo, as a user runs it: real processes, one is killed in mid-reduce, one cluster joins, another leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RECOVERY = 2.0  # seconds from SIGKILL to the next committed round, in the demo's profile, with a machine to itself
LOADED = 5.0  # the same where other tests may run beside it


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_one_run_survives_a_death_a_join_and_a_leave(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    plot = tmp_path / "plot.png"
    arguments = ["--rounds", "1", "--sync-every", "4", "--report", str(report), "--plot", str(plot)]
    done = subprocess.run(
        [sys.executable, "-m", "ictp2p", "demo", *arguments], capture_output=True, text=True, timeout=230, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    told = json.loads(report.read_text())
    assert len(set(told["final_digests"].values())) == 1
    assert len(told["final_digests"]) == 5
    assert told["final_validation_loss"] < told["start_validation_loss"] - 1.0
    events = {event["kind"]: event for event in told["events"]}
    assert events.keys() == {"kill", "join", "drain"}
    assert events["kill"]["recovery_seconds"] < LOADED
    outcomes = [r["outcome"] for r in told["rounds"] if r["round"] == events["kill"]["round"]]
    assert "aborted" in outcomes
    assert outcomes[-1] == "committed"
    assert plot.read_bytes().startswith(b"\x89PNG")
