"""Programs that are started without some of their standard streams, as `nohup python train.py <&-` is."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest

STREAMS = (0, 1, 2)
SOME = [closed for count in STREAMS for closed in itertools.combinations(STREAMS, count + 1)]
"""All that a program may lack."""

_LOOP = """
from ictp2p.concurrency.loop_thread import LoopThread
loop = LoopThread("test")
assert loop.call(int) == 0
loop.close()
"""
_LINE = """
import socket, threading
from ictp2p.handle.line import Line
numbers = []
def pair(made=socket.socketpair):
    ends = made()
    numbers.extend(end.fileno() for end in ends)
    return ends
def start(thread):
    raise RuntimeError("no process is needed here")
socket.socketpair, threading.Thread.start = pair, start
try:
    Line("test", print, print)
except RuntimeError:
    assert min(numbers) > 2, numbers
"""
_HELD = """
for stream in CLOSED:
    assert os.path.samestat(os.fstat(stream), os.stat(os.devnull))
    assert not os.get_inheritable(stream)
assert not os.path.exists("/proc/self/fd") or "/dev/null" not in (
    os.readlink(f"/proc/self/fd/{number}") for number in range(3, 256) if os.path.exists(f"/proc/self/fd/{number}")
)
"""


def ends(script: str, closed: tuple[int, ...]) -> None:
    """Run a script that finds these streams closed; whatever it says goes to the end of a pipe that is none of them."""
    told, tell = os.pipe()
    begin = f"""
import os, sys, traceback
CLOSED = {closed}
def say(*what):
    os.write({tell}, "".join(traceback.format_exception(*what)).encode())
sys.excepthook = say
for stream in CLOSED:
    os.close(stream)
"""
    try:
        with subprocess.Popen([sys.executable, "-c", begin + script + _HELD], pass_fds=[tell]) as process:
            status = process.wait(60)
    finally:
        os.close(tell)
    with os.fdopen(told, "rb") as said:
        assert (status, said.read().decode()) == (0, "")


@pytest.mark.parametrize("closed", SOME)
def test_a_loop_takes_the_number_of_no_standard_stream(closed: tuple[int, ...]) -> None:
    """Regression: its selector was descriptor 0, and libuv ended the process (SIGABRT) when the loop was closed."""
    ends(_LOOP, closed)


@pytest.mark.parametrize("closed", SOME)
def test_a_line_takes_the_number_of_no_standard_stream(closed: tuple[int, ...]) -> None:
    """Regression: the process was given the line as its standard output, and whatever it printed went there."""
    ends(_LINE, closed)
