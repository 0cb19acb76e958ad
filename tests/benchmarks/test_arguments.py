from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import arguments
import pytest

from tests import forked

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("take", "text", "words"),
    [
        (arguments.count, "0", "0 is not at least 1"),
        (arguments.count, "1.5", "'1.5' is no whole number"),
        (arguments.positive, "0", "0 is not above 0 and finite"),
        (arguments.positive, "nan", "nan is not above 0 and finite"),
        (arguments.positive, "inf", "inf is not above 0 and finite"),
        (arguments.positive, "much", "'much' is no number"),
        (arguments.seconds, "-1", "-1 is not at least 0 and finite"),
        (arguments.seconds, "nan", "nan is not at least 0 and finite"),
        (arguments.whole(2, 7), "8", "8 is not from 2 to 7"),
        (arguments.between(0.5, 1000), "1e30", "1e30 is not from 0.5 to 1000"),
        (arguments.between(0.5, 1000), "0.4", "0.4 is not from 0.5 to 1000"),
        (arguments.between(0.5, 1000), "nan", "nan is not above 0 and finite"),
        (arguments.megabytes, "1e-9", "1e-9 is not from 0.001 to 1e+06"),
        (arguments.even, "0", "0 is not at least 2"),
        (arguments.even, "33", "33 is not even"),
        (arguments.fraction, "1", "1 is not above 0 and below 1"),
        (arguments.fraction, "nan", "nan is not above 0 and below 1"),
        (arguments.output, "/nonexistent/x", "'/nonexistent/x': there is no folder '/nonexistent'"),
        (arguments.output, "/", "'/' is a folder"),
    ],
)
def test_a_value_that_nothing_can_run_with_is_named(take: Callable[[str], object], text: str, words: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as raised:
        take(text)
    assert str(raised.value) == words


def test_values_that_are_good_are_taken(tmp_path: Path) -> None:
    assert (arguments.count("1"), arguments.positive("1e-3"), arguments.seconds("0")) == (1, 1e-3, 0.0)
    assert (arguments.even("32"), arguments.fraction("0.5")) == (32, 0.5)
    assert (arguments.whole(2, 7)("7"), arguments.between(1, 1000)("1000")) == (7, 1000.0)
    assert arguments.output(str(tmp_path / "rows.json")) == tmp_path / "rows.json"
    assert not list(tmp_path.iterdir()), "nothing is written before there are results"


@pytest.mark.real
@pytest.mark.parametrize(
    "command",
    [
        "allreduce.py --kind nan",
        "allreduce.py --codec nan",
        "memory.py --kind nan",
        "learning.py --only nan",
        "policy_memory.py --only nan",
        "streams.py --only nan",
    ],
)
def test_a_name_of_nothing_is_refused_with_those_there_are(command: str) -> None:
    """Regression: some ended with a traceback, and some measured nothing and were content."""
    ran = forked.run(*f"benchmarks/{command}".split())
    assert ran.returncode == 2
    assert "invalid choice: 'nan' (choose from " in ran.stderr.splitlines()[-1]


@pytest.mark.real
@pytest.mark.parametrize("script", ["allreduce", "learned_lines", "layer_by_layer"])
def test_a_benchmark_may_be_run_by_its_name(script: str) -> None:
    """Regression: it did not find what it imports from beside it; and one ran, whatever it was given."""
    asked = [sys.executable, "-m", f"benchmarks.{script}", "--help"]
    ran = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "[-h]" in ran.stdout


@pytest.mark.real
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("-m benchmarks.chaos --rate nan", "argument --rate: nan is not above 0 and finite"),
        ("-m benchmarks.chaos --seconds -1", "argument --seconds: -1 is not at least 0 and finite"),
        ("-m benchmarks.chaos --workers 0", "argument --workers: 0 is not from 2 to 7"),
        ("-m benchmarks.chaos --wide --virtual", "argument --wide: simulated workers have no processes"),
        ("-m benchmarks.chaos --most 3", "argument --most: 3 is less than the 6 workers to begin with"),
        ("benchmarks/acceptance.py --scale nan", "argument --scale: nan is not above 0 and finite"),
        ("benchmarks/acceptance.py --scale 1e30", "argument --scale: 1e30 is not from 0.001 to 1000"),
        ("benchmarks/acceptance.py --scale 1e-9", "argument --scale: 1e-9 is not from 0.001 to 1000"),
        ("benchmarks/acceptance.py --json /nonexistent/x", "'/nonexistent/x': there is no folder '/nonexistent'"),
        ("benchmarks/convergence.py --timeout nan", "argument --timeout: nan is not above 0 and finite"),
        ("benchmarks/convergence.py --json /", "'/' cannot be written to: Is a directory"),
        ("benchmarks/convergence.py --json Makefile", "Expecting value: line 1 column 1 (char 0)"),
        ("benchmarks/allreduce.py --tensors 0", "argument --tensors: 0 is not at least 1"),
        ("benchmarks/allreduce.py --tensors 300 --mb 0.001", "300 are more than 0.001 MB can be cut into"),
        ("benchmarks/learned_lines.py --networks nan", "argument --networks: 'nan' is no whole number"),
        ("benchmarks/streams.py --controls nan", "this kernel has no 'nan': No such file or directory"),
        ("benchmarks/utilization.py --only nan", "argument --only: no line has 'nan' in its name"),
        ("benchmarks/codecs.py --mb 1e-9", "argument --mb: 1e-9 is not from 0.001 to 1e+06"),
        ("benchmarks/learning.py --warmup 0", "argument --warmup: 0 is not at least 1"),
        ("benchmarks/adaptive.py --budget 1e-9", "argument --budget: 1e-9 is not from 1 to 1e+06"),
        ("benchmarks/adaptive.py --most 49", "argument --most: 49 is not at least 50"),
        ("benchmarks/utilization.py --plot /nonexistent/x", "there is no folder '/nonexistent'"),
        ("benchmarks/scale.py train --minutes 0", "argument --minutes: 0 is not above 0 and finite"),
        ("benchmarks/recovery.py --repeat 0", "argument --repeat: 0 is not at least 1"),
        ("benchmarks/recovery.py --ranks 1", "argument --ranks: 1 is not at least 2"),
        ("benchmarks/recovery.py --mb 0", "argument --mb: 0 is not above 0 and finite"),
        ("benchmarks/recovery.py --json /nonexistent/x", "'/nonexistent/x': there is no folder '/nonexistent'"),
    ],
)
def test_a_benchmark_refuses_it_before_it_runs(command: str, words: str) -> None:
    """Regression: some waited for ever, and some ran all the way to a traceback."""
    ran = forked.run(*command.split())
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].endswith(words)
