"""Scripts and modules as a reader runs them, in forks of one process that has loaded torch and what takes as long.

What is refused before anything runs takes no time but that of loading libraries, two to five seconds of a core each
time, and there are many such tests. Whatever depends on what is loaded, or on signals, wants a process of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

ROOT = Path(__file__).parents[1]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["torch", "torch._dynamo", "ictp2p.peer"])


def run(*command: str, env: Mapping[str, str] = os.environ, timeout: float = 80) -> CompletedProcess[str]:
    """Run `python *command` in the project's folder: a script with its arguments, or `-m` and a module with its own."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder, "stdout"), Path(folder, "stderr")
        process = _FORKS.Process(target=_become, args=(command, dict(env), outputs))
        process.start()
        process.join(timeout)
        process.kill()
        process.join()
        status = process.exitcode
        process.close()
        return CompletedProcess(command, status or 0, *(path.read_text() for path in outputs))


def _become(command: tuple[str, ...], env: dict[str, str], outputs: tuple[Path, Path]) -> None:
    for descriptor, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), descriptor)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(ROOT)
    if command[0] == "-m":
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(command)
        sys.path[:0] = [str(Path(command[0]).parent), *env.get("PYTHONPATH", "").split(os.pathsep)]
        runpy.run_path(command[0], run_name="__main__")
