"""The examples, run as a reader would run them."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]
EXAMPLES = Path(__file__).parent.parent / "examples"
ENVIRONMENT = {**os.environ, "ICTP2P_TOKEN": "0123456789abcdef0123456789abcdef", "OMP_NUM_THREADS": "1"}


class Terminals:
    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self.processes.append(process)
        return process

    def outputs(self) -> list[str]:
        """What each printed, once all have ended well."""
        found = [process.communicate(timeout=60) for process in self.processes]
        assert [process.returncode for process in self.processes] == [0] * len(found), [errors for _, errors in found]
        return [output for output, _ in found]


@pytest.fixture
def terminals() -> Iterator[Terminals]:
    terminals = Terminals()
    try:
        yield terminals
    finally:
        for process in terminals.processes:
            process.kill()
            process.communicate()


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_all_reduce(terminals: Terminals) -> None:
    address = free_address()
    terminals.start("all_reduce.py", "oslo", "3.0", "--listen", address)
    terminals.start("all_reduce.py", "tokyo", "5.0", "--join", address)
    assert terminals.outputs() == ["mean of oslo, tokyo: [4.0, 4.0, 4.0, 4.0]\n"] * 2


def test_pccl_loop_with_a_newcomer(terminals: Terminals) -> None:
    address = free_address()
    steps = ("--outer-steps", "12")
    first = terminals.start("pccl_loop.py", "--cluster", "oslo", "--listen", address, "--clusters", "2", *steps)
    terminals.start("pccl_loop.py", "--cluster", "tokyo", "--join", address, "--clusters", "2", *steps)
    assert first.stdout is not None
    seen = ""
    while "revision 1 " not in seen:
        seen += first.stdout.readline()
    terminals.start("pccl_loop.py", "--cluster", "zurich", "--join", address, *steps)
    texts = terminals.outputs()
    texts[0] = seen + texts[0]
    weights = {re.findall("weights (.*)", text)[0] for text in texts}
    assert len(weights) == 1, "everybody ended with the same parameters"
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", texts[0])]
    assert losses[-1] < losses[0] / 10
    assert "revision 1  " in texts[0]
    assert "clusters oslo, tokyo" in texts[0]
