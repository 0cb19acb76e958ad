import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ictp2p.demo import plot


def report() -> dict[str, Any]:
    return {
        "started_at": 1000.0,
        "losses": [
            {"time": 1000.0 + t, "cluster": c, "worker": f"{c}/0", "step": t, "loss": 5.5 - t / 20}
            for t in range(30) for c in ("oslo", "tokyo")
        ],
        "validation": [{"time": 1000.0 + t, "worker": "oslo/0", "version": t, "loss": 5.5 - t / 10} for t in range(30)],
        "rounds": [
            {"participants": ("oslo", "tokyo"), "outcome": outcome, "time": 1000.0 + t}
            for t, outcome in enumerate(["committed", "aborted", "committed", "open"])
        ],
        "events": [
            {"kind": "kill", "cluster": "tokyo", "time": 1010.0, "recovery_seconds": 1.25},
            {"kind": "other", "cluster": "oslo", "time": 1020.0, "recovery_seconds": 0.5},
        ],
    }  # fmt: skip


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot.draw(report(), tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_who_joins_is_marked_when_it_was_ready_as_what_it_took_is_counted_from() -> None:
    """Regression: it was marked when its process was started, and its first round was long after what was said."""
    axes = Mock()
    joined = {"kind": "join", "cluster": "quito", "time": 1005.0, "start_seconds": 7.0, "recovery_seconds": 2.0}
    plot._draw_events(axes, {**report(), "events": [joined]}, labelled=True)
    assert axes.axvline.call_args.args == (12.0,)


def test_what_a_drain_took_is_not_called_the_time_to_the_next_round_in_which_who_drains_still_is() -> None:
    """Regression: it was, beside the dots of the rounds that showed another one before."""
    axes = Mock()
    done = [{"kind": kind, "cluster": "tokyo", "time": 1.0, "recovery_seconds": 2.0} for kind in ("kill", "drain")]
    plot._draw_events(axes, {**report(), "events": done}, labelled=True)
    labels = [call.args[0] for call in axes.annotate.call_args_list]
    assert labels == ["kill tokyo\n2.0 s to the next round", "drain tokyo\n2.0 s to the first round without it"]


def test_a_failed_run_can_be_drawn_too(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot.draw({**report(), "losses": [], "validation": [], "events": []}, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").exists()


def test_the_controller_does_not_need_matplotlib_or_torch() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import ictp2p.demo.controller as c;"
    program += "print([m for m in ('torch', 'matplotlib', 'numpy') if m in sys.modules])"
    root = str(Path(plot.__file__).parents[2])
    ran = subprocess.run([sys.executable, "-c", program, root], capture_output=True, text=True, check=True, timeout=50)
    assert ran.stdout == "[]\n"
