"""The examples, run as a reader would run them."""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forked

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]
EXAMPLES = Path(__file__).parent.parent / "examples"
ENVIRONMENT = {**os.environ, "ICTP2P_TOKEN": "0123456789abcdef0123456789abcdef", "OMP_NUM_THREADS": "1"}


class Reader(threading.Thread):
    """Reads all that a process prints as it comes: one whose pipe is full stands still, and all who wait for it."""

    def __init__(self, process: forked.Fork) -> None:
        super().__init__(daemon=True)
        self._process = process
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def until(self, text: str) -> str:
        """The next line with `text`."""
        return next(line for line in iter(self._lines.get, None) if text in line)


class Terminals:
    def __init__(self) -> None:
        self.processes: list[forked.Fork] = []
        self.readers: list[Reader] = []

    def reader(self, script: str, *arguments: str) -> Reader:
        self.readers.append(Reader(self.start(script, *arguments)))
        return self.readers[-1]

    def start(self, script: str, *arguments: str) -> forked.Fork:
        process = forked.Fork(str(EXAMPLES / script), *arguments, env=ENVIRONMENT)
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
        for reader in terminals.readers:
            reader.join()
        for process in terminals.processes:
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


def test_elastic_data(terminals: Terminals) -> None:
    address = free_address()
    terminals.start("elastic_data.py", "oslo", "--listen", address)
    terminals.start("elastic_data.py", "tokyo", "--join", address)
    texts = terminals.outputs()
    assert all(text.endswith("4000 of 4000 samples were seen\n") for text in texts)
    steps = [int(re.findall(r"took (\d+) steps", text)[0]) for text in texts]
    assert sum(steps) >= 2000, "two epochs of a thousand batches"


def test_paths(terminals: Terminals) -> None:
    terminals.start("paths.py")
    (text,) = terminals.outputs()
    assert text.endswith("the same at all holders: {'common': True, 'even': True}\n")
    assert len(re.findall(r"^\w+ +\w+ +loss [\d.]+ -> [\d.]+$", text, re.MULTILINE)) == 3


def test_pccl_loop(terminals: Terminals) -> None:
    address = free_address()
    steps = ("--clusters", "2", "--outer-steps", "12")
    terminals.start("pccl_loop.py", "--cluster", "oslo", "--listen", address, *steps)
    terminals.start("pccl_loop.py", "--cluster", "tokyo", "--join", address, *steps)
    texts = terminals.outputs()
    weights = {re.findall("weights (.*)", text)[0] for text in texts}
    assert len(weights) == 1, "everybody ended with the same parameters"
    for text in texts:
        losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", text)]
        assert len(losses) == 12
        assert losses[-1] < losses[0]
        assert text.count("clusters oslo, tokyo") == 12


def test_pccl_loop_with_a_newcomer(terminals: Terminals) -> None:
    address = free_address()
    for_ever = ("--outer-steps", "1000000")
    first = terminals.reader("pccl_loop.py", "--cluster", "oslo", "--listen", address, *for_ever)
    first.until("revision 3 ")
    newcomer = terminals.reader("pccl_loop.py", "--cluster", "tokyo", "--join", address, *for_ever)
    line = newcomer.until("clusters oslo, tokyo")
    assert int(re.findall(r"revision (\d+)", line)[0]) > 3, "it fetched the state instead of beginning its own"
    first.until("clusters oslo, tokyo")


def test_pccl_loop_under_torchrun_is_one_cluster_from_its_first_step_to_its_last() -> None:
    """Regression: rank 0 had taken all steps and left before the others were there, who then found nobody."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(EXAMPLES / "pccl_loop.py")]
    ran = subprocess.run([*command, "--outer-steps", "3"], capture_output=True, text=True, timeout=80, env=ENVIRONMENT)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("revision 3 ") == 2
    assert len(set(re.findall("weights (.*)", ran.stdout))) == 1


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        (["all_reduce.py"], 2, "the following arguments are required: cluster, value"),
        (["all_reduce.py", "oslo", "three"], 2, "argument value: invalid float value: 'three'"),
        (["all_reduce.py", "oslo", "3.0", "--listn", "127.0.0.1:7001"], 2, "unrecognized arguments: --listn"),
        (["all_reduce.py", "Oslo", "3.0"], 1, "ConfigError: cluster: cluster name 'Oslo' is not valid"),
        (["elastic_data.py"], 2, "the following arguments are required: cluster"),
        (["elastic_data.py", "oslo", "--join", "7001"], 1, "ConfigError: join: address '7001' is not valid"),
        (["pccl_loop.py"], 1, "ConfigError: parameter 'cluster' must be given"),
        (["pccl_loop.py", "--cluster", "oslo", "--clusters", "0"], 1, "ConfigError: clusters = 0 is not valid"),
        (["elastic_data.py", "oslo", "--epochs", "0"], 1, "ConfigError: epochs 0 is not a whole number of at least 1"),
        (["train.py", "--cluster", "oslo", "--data-dir", ""], 1, "ConfigError: data_dir: '' is not valid"),
        (["train.py", "--cluster", "oslo", "--steps", "-1"], 2, "--steps -1 is less than 0"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_whatever_is_asked_wrongly_is_answered_in_words(command: list[str], status: int, words: str) -> None:
    """Regression: all but one of the examples ended with a traceback."""
    script, *arguments = command
    ran = forked.run(str(EXAMPLES / script), *arguments, env=ENVIRONMENT)
    assert ran.returncode == status
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


COMMANDS = {
    "all_reduce.py": ["oslo", "3.0"],
    "elastic_data.py": ["oslo"],
    "pccl_loop.py": ["--cluster", "oslo"],
    "train.py": ["--cluster", "oslo"],
}


@pytest.mark.parametrize("script", COMMANDS)
def test_who_gives_no_token_is_told_how_to_make_one(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ICTP2P_TOKEN", raising=False)
    ran = forked.run(str(EXAMPLES / script), *COMMANDS[script])
    assert (ran.returncode, "Traceback" in ran.stderr) == (2, False)
    assert "ICTP2P_TOKEN; `ictp2p token` makes one" in ran.stderr


@pytest.fixture
def foreground() -> Iterator[None]:
    """Who is started in the background ignores Ctrl-C, and so would what it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("foreground")
@pytest.mark.parametrize(
    ("script", "module"),
    [
        ("train.py", "numpy"),
        ("train.py", "torch.nn.modules"),
        ("train.py", "ictp2p.runtime.participation"),
        *((script, "torch") for script in ("all_reduce.py", "elastic_data.py", "paths.py", "pccl_loop.py")),
        ("hf_trainer.py", "transformers"),
        ("lightning_module.py", "lightning"),
    ],
)
def test_ctrl_c_while_the_libraries_load_is_no_traceback(script: str, module: str, tmp_path: Path) -> None:
    """Regression: it was a long one, and some libraries lost it: the example went on."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS.format(module=module))
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, str(EXAMPLES / script), *COMMANDS.get(script, ())]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=80, env=environment)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("option", "value", "status"), [("--steps", "-1", 2), ("--join", "7001", 1), ("--cluster", "Oslo", 1)]
)
def test_what_is_asked_wrongly_is_said_before_torch_is_loaded(
    option: str, value: str, status: int, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was loaded')")
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, str(EXAMPLES / "train.py"), "--cluster", "oslo", option, value]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=80, env=environment)
    assert ran.returncode == status
    assert value in ran.stderr
    assert "torch was loaded" not in ran.stderr


INTERRUPTS = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, *_):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
"""


@pytest.mark.usefixtures("foreground")
def test_ctrl_c_while_waiting_for_another_is_no_traceback() -> None:
    command = [sys.executable, str(EXAMPLES / "pccl_loop.py"), "--cluster", "oslo", "--clusters", "2"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None
        assert any("listens on" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 130


def test_who_names_a_folder_for_its_data_gets_no_other(
    terminals: Terminals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: an empty one was made beside it, which stayed when the process was killed."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setitem(ENVIRONMENT, "TMPDIR", str(temporary))
    data = tmp_path / "oslo"
    terminals.reader("train.py", "--cluster", "oslo", "--data-dir", str(data)).until("listens on")
    terminals.processes[0].kill()
    terminals.processes[0].wait()
    assert data.is_dir()
    assert not list(temporary.glob("ictp2p-*"))


def test_a_mistake_is_answered_in_one_line() -> None:
    mistake = ("--cluster", "tokyo", "--join", "127.0.0.1:99999")
    ran = forked.run(str(EXAMPLES / "train.py"), *mistake, env=ENVIRONMENT)
    assert ran.returncode == 1
    assert ran.stderr.strip() == (
        "ConfigError: join: address '127.0.0.1:99999' is not valid: port '99999' is not a number from 0 to 65535"
    )


THREE = {"oslo": (), "tokyo": ("oslo",), "zurich": ("tokyo",)}
"""The clusters of the README's three terminals, and whom each joins."""


@pytest.mark.timeout(240)
def test_three_that_all_ended_go_on_with_the_same_lines(terminals: Terminals, tmp_path: Path) -> None:
    """Regression: the state had died with them, and the same lines waited for ever for somebody who holds it."""
    addresses = {name: free_address() for name in THREE}

    def versions_once_all_train() -> list[int]:
        readers = []
        for name, others in THREE.items():
            joins = [word for other in others for word in ("--join", addresses[other])]
            where = ("--cluster", name, "--listen", addresses[name], "--data-dir", str(tmp_path / name))
            readers.append(terminals.reader("train.py", *where, *joins))
        return [int(re.findall(r"version (\d+)", reader.until("step 50 "))[0]) for reader in readers]

    before = versions_once_all_train()
    for end in (signal.SIGINT, signal.SIGKILL):
        for process in terminals.processes:
            process.send_signal(end)
        for process in terminals.processes:
            process.wait(60)
        after = versions_once_all_train()
        assert min(after) > max(before)
        before = after
