"""Scripts and modules as a reader runs them, in forks of one process that has loaded torch and what takes as long.

To load the libraries takes two to five seconds of a core each time, and there are many such processes. Whatever depends
on what is loaded, or on Ctrl-C, wants a process of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO

ROOT = Path(__file__).parents[1]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["torch", "torch._dynamo", "ictp2p.peer", "ictp2p.torch_backend", "ictp2p.collective_calls"]
)


class Fork:
    """`python *command`, in the project's folder: a script with its arguments, or `-m` and a module with its own.

    As `subprocess.Popen`, as far as tests use it; `stderr`: a file, instead of a pipe.
    """

    def __init__(self, *command: str, env: Mapping[str, str] = os.environ, stderr: IO[str] | None = None) -> None:
        self.args = command
        self.returncode: int | None = None
        theirs, self.stdin = _pipe(reads=True)
        out, self.stdout = _pipe(reads=False)
        errors, self.stderr = _pipe(reads=False) if stderr is None else (os.dup(stderr.fileno()), None)
        ends = [Connection(end) for end in (theirs, out, errors)]
        self._process = _FORKS.Process(target=_become, args=(command, dict(env), ends))
        self._process.start()
        self.pid = self._process.pid
        for end in ends:
            end.close()

    def poll(self) -> int | None:
        """Its status, if it has ended."""
        self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its status, once it has ended."""
        self._process.join(timeout)
        if (status := self.poll()) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.poll() is None and self.pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile, and was waited for by its parent
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, if it has not ended."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end, and give what it printed that nobody has read yet."""
        self.stdin.close()
        found = ["", ""]

        def read(at: int, stream: IO[str]) -> None:
            found[at] = stream.read()

        streams = [(at, each) for at, each in enumerate((self.stdout, self.stderr)) if each and not each.closed]
        readers = [threading.Thread(target=read, args=given, daemon=True) for given in streams]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join()
        for stream in (self.stdout, self.stderr):
            if stream:
                stream.close()
        return found[0], found[1]


def run(*command: str, env: Mapping[str, str] = os.environ, timeout: float = 80) -> CompletedProcess[str]:
    """Run one to its end."""
    process = Fork(*command, env=env)
    try:
        printed = process.communicate(timeout)
        return CompletedProcess(command, process.wait(), *printed)
    finally:
        process.kill()


def _pipe(*, reads: bool) -> tuple[int, IO[str]]:
    """A pipe: the end of the process, which `reads` from it or writes to it, and ours."""
    reading, writing = os.pipe()
    return (reading, os.fdopen(writing, "w")) if reads else (writing, os.fdopen(reading))


def _become(command: tuple[str, ...], env: dict[str, str], ends: list[Connection]) -> None:
    for descriptor, end in enumerate(ends):
        os.dup2(end.fileno(), descriptor)
        end.close()
    sys.stdin = os.fdopen(os.dup(0))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which who runs in the background ignores
    if "PYTHONFAULTHANDLER" in env:
        faulthandler.enable()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(ROOT)
    os._exit(_end(_main(command, env)))


def _main(command: tuple[str, ...], env: dict[str, str]) -> int:
    """Run it; give its status."""
    try:
        if command[0] == "-m":
            sys.argv = list(command[1:])
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(command)
            sys.path[:0] = [str(Path(command[0]).parent), *env.get("PYTHONPATH", "").split(os.pathsep)]
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)  # noqa: T201
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(status: int) -> int:
    """What an interpreter does as it ends."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status
