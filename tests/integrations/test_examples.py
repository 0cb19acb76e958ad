"""The examples with other libraries' trainers, in two clusters; and what they say where they cannot begin."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.integrations.callbacks import ENVIRONMENT, EXAMPLES, LIBRARIES

NAMES = {
    "transformers.py": "TrainerCallback = GPT2Config = GPT2LMHeadModel = Trainer = TrainingArguments = dict",
    "lightning/__init__.py": "LightningModule = object",
    "lightning/pytorch.py": "Callback = object",
}
MODULES = {"huggingface": ("transformers", "hf"), "lightning": ("lightning", "lightning")}
Start = Callable[..., subprocess.Popen[str]]


@contextlib.contextmanager
def starting(script: str, **environment: str) -> Iterator[Start]:
    """Starts an example with arguments, as often as it is called; what it has started ends with this."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(EXAMPLES / script), *arguments]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, text=True, env={**ENVIRONMENT, **environment}, **pipes))
        return processes[-1]

    try:
        yield start
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.fixture(params=LIBRARIES)
def two(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Starts the example in two clusters."""
    script = request.param
    if importlib.util.find_spec(LIBRARIES[script]) is None:
        pytest.skip(f"{LIBRARIES[script]} is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"

    with starting(script) as start:
        places = (("oslo", "--listen", address), ("tokyo", "--join", address))
        yield lambda steps: [start("--steps", str(steps), "--cluster", *place) for place in places]


def ended(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=150)
    assert process.returncode == 0, errors
    return output


@pytest.mark.real
@pytest.mark.timeout(180)
def test_a_trainer_in_each_of_two_clusters(two: Any) -> None:
    texts = [ended(process) for process in two(40)]
    found = [re.findall(r"version (\d+)  digest (\w+)", text)[0] for text in texts]
    # One that was in before the other may have had rounds alone; the other's begin from there.
    assert all(int(version) >= 5 for version, _ in found)
    assert len(set(found)) == len({version for version, _ in found}), "equal versions are equal states"
    for text in texts:
        losses = [float(loss) for loss in re.findall("losses (.*)", text)[0].split()]
        assert losses[-1] < losses[0]
        assert float(re.findall(r"weight ([\d.]+)", text)[0]) in (8 * 32, 16), "tokens for one, samples for the other"


@pytest.mark.real
@pytest.mark.timeout(180)
def test_a_trainer_ends_when_its_peer_has_drained(two: Any) -> None:
    oslo, tokyo = two(1_000_000)
    for process in (oslo, tokyo):
        assert next(line for line in process.stdout if "loss" in line)
        process.send_signal(signal.SIGINT)
        assert "digest" in ended(process)


@pytest.fixture
def names(tmp_path: Path) -> str:
    """A path with nothing but the names of the libraries: they do for all that an example says before it trains."""
    for path, text in NAMES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return os.pathsep.join([str(tmp_path), str(EXAMPLES.parent)])


@pytest.mark.real
@pytest.mark.parametrize("script", LIBRARIES)
@pytest.mark.parametrize("steps", ["-1", "0"])
def test_a_number_of_steps_that_cannot_be_is_refused_at_once(names: str, script: str, steps: str) -> None:
    """Regression: it waited for another cluster, and then ended with a traceback."""
    environment = {**ENVIRONMENT, "PYTHONPATH": names}
    ran = forked.run(str(EXAMPLES / script), "--cluster", "oslo", "--steps", steps, env=environment)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"error: --steps {steps} is less than 1\n" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.real
@pytest.mark.parametrize("script", LIBRARIES)
def test_who_waits_for_another_cluster_says_so_and_can_be_stopped(names: str, script: str) -> None:
    """Regression: it waited without a word, and a first Ctrl-C then was no drain."""
    with starting(script, PYTHONPATH=names) as start:
        process = start("--cluster", "oslo")
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert re.fullmatch(r"oslo listens on 127\.0\.0\.1:\d+, and waits for another cluster\n", line)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "draining; Ctrl-C again to end at once\n"
        process.send_signal(signal.SIGINT)
        assert (process.wait(60), process.stderr.read()) == (130, "")


@pytest.mark.parametrize("module", MODULES)
def test_a_missing_library_is_named_with_its_extra(module: str) -> None:
    library, extra = MODULES[module]
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    with pytest.raises(ImportError, match=rf"pip install 'ictp2p\[{extra}\]'"):
        importlib.import_module(f"ictp2p.integrations.{module}")


@pytest.mark.real
@pytest.mark.parametrize("script", LIBRARIES)
def test_an_example_without_its_library_says_in_one_line_what_to_install(script: str) -> None:
    """Regression: it was a traceback."""
    library = LIBRARIES[script]
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    ran = forked.run(str(EXAMPLES / script), "--cluster", "oslo", env=ENVIRONMENT)
    extra = {"transformers": "hf", "lightning": "lightning"}[library]
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"No module named '{library}': pip install 'ictp2p[{extra}]'\n"
