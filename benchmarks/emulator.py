"""A wide-area network on one machine: network namespaces, joined by a forwarder in user space (`forwarder.c`).

netem is not in every kernel, and tbf alone has no delay. So each node is a namespace with one TUN device, and one small
C program carries the packets between them: every node has an uplink and a downlink with a rate and a queue, every pair
a delay and perhaps a line of its own, all pairs a loss; rates and cuts can change while it runs.

The namespaces have no names. They are held by file descriptors of this process, and by who runs in them, so that the
kernel takes them back whatever ends the run, even SIGKILL; the forwarder ends when its standard input does.

Needs root, Linux, a C compiler, `ip` and `nsenter`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

DEVICE = "wan0"
PAYLOAD = 1448 / 1538
"""Share of a line's rate that is left for what TCP carries: 1500 bytes a packet with 52 of headers, 38 of Ethernet."""
_FIRST = -20
"""Niceness of the forwarder: a network does not wait for the programs that use it."""
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET, <sched.h>
_CAPABILITIES_3, _CAP_NET_ADMIN = 0x20080522, 12  # <linux/capability.h>


class Emulator:
    """A network, up within the context.

    Args:
        up: Mbit/s that each node can send.
        down: Mbit/s that each node can receive; as much as `up` if None.
        delay: one-way delay in milliseconds, for all pairs or as a matrix.
        loss: probability of a packet's loss.
        pairs: Mbit/s of a line of its own from one node to another, between the lines of both.
        nat: nodes that nobody can open a connection to.
        queue: milliseconds of its own rate that a line can queue.
        offload: carry the kernel's large packets; without, each is of 1500 bytes, and a loss is that of one.
    """

    def __init__(
        self,
        up: Sequence[float],
        down: Sequence[float] | None = None,
        delay: float | Sequence[Sequence[float]] = 0.0,
        *,
        loss: float = 0.0,
        pairs: Mapping[tuple[int, int], float] | None = None,
        nat: Sequence[int] = (),
        queue: float = 100.0,
        offload: bool = True,
    ) -> None:
        self.nodes = len(up)
        self.up, self.down = tuple(up), tuple(down or up)
        self.delay = [
            [0.0 if a == b else delay if isinstance(delay, int | float) else delay[a][b] for b in range(self.nodes)]
            for a in range(self.nodes)
        ]
        self.loss, self._queue, self._offload = loss, queue, offload
        self.pairs, self.nat = dict(pairs or {}), tuple(nat)
        self._namespaces: list[int] = []
        self._forwarder: subprocess.Popen[str] | None = None

    def __enter__(self) -> Emulator:
        try:
            self._build()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._forwarder is not None:
            self._forwarder.kill()
            self._forwarder.communicate()
        for namespace in self._namespaces:
            os.close(namespace)
        self._namespaces.clear()

    def address(self, node: int) -> str:
        """Give a node's address."""
        return f"10.99.0.{node + 1}"

    def paths(self) -> list[str]:
        """Give the files that stand for the nodes' namespaces, for as long as the network is up."""
        return [f"/proc/{os.getpid()}/fd/{namespace}" for namespace in self._namespaces]

    def tell(self, command: str) -> None:
        """Change the network as it runs: a command of `forwarder.c`."""
        assert self._forwarder is not None
        assert self._forwarder.stdin is not None
        self._forwarder.stdin.write(command + "\n")
        self._forwarder.stdin.flush()

    def stats(self) -> dict[str, Any]:
        """Give the forwarder's CPU seconds, bytes carried, and packets lost and dropped."""
        self.tell("stats")
        assert self._forwarder is not None
        assert self._forwarder.stdout is not None
        return cast("dict[str, Any]", json.loads(self._forwarder.stdout.readline()))

    def _build(self) -> None:
        self._namespaces = [_new_namespace() for _ in range(self.nodes)]
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory) / "forwarder"
            source = Path(__file__).with_name("forwarder.c")
            subprocess.run(["cc", "-O2", "-o", str(program), str(source), "-lm"], check=True)
            self._forwarder = subprocess.Popen(
                [str(program), DEVICE, str(int(self._offload)), str(self._queue), *self.paths()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self._forwarder.stdout is not None
            if self._forwarder.stdout.readline().strip() != "ready":
                raise OSError("the forwarder did not start")
            os.setpriority(os.PRIO_PROCESS, self._forwarder.pid, _FIRST)
        for node, path in enumerate(self.paths()):
            for command in (
                "link set lo up",
                f"addr add {self.address(node)}/24 dev {DEVICE}",
                f"link set {DEVICE} up txqueuelen 10000",
            ):
                subprocess.run(["nsenter", f"--net={path}", "ip", *command.split()], check=True)
            self.tell(f"rate {node} {self.up[node]} {self.down[node]}")
            for other in range(self.nodes):
                self.tell(f"delay {node} {other} {self.delay[node][other]}")
        self.tell(f"loss {self.loss}")
        for (source, target), mbit in self.pairs.items():
            self.tell(f"pair {source} {target} {mbit}")
        for node in self.nat:
            self.tell(f"nat {node}")


def require_root(parser: argparse.ArgumentParser) -> None:
    """End the program, with the reason, where nobody lets it make networks."""
    if sys.platform != "linux" or os.geteuid():
        parser.exit(1, f"{parser.prog}: network namespaces need root, on Linux\n")


def enter(path: str) -> None:
    """Move this thread, and what it starts, to the namespace of a node."""
    namespace = os.open(path, os.O_RDONLY)
    try:
        _call("setns", namespace, _NEW_NETWORK)
    finally:
        os.close(namespace)


def renounce() -> None:
    """Give up the right to administrate networks: buffers of this thread's sockets are as large as the host allows."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0)
    held = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; and the same of those from 32 on
    _call("capget", header, held)
    held[0] &= ~(1 << _CAP_NET_ADMIN)
    _call("capset", header, held)


def _new_namespace() -> int:
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        _call("unshare", _NEW_NETWORK)
        try:
            return os.open("/proc/self/ns/net", os.O_RDONLY)
        finally:
            _call("setns", before, _NEW_NETWORK)
    finally:
        os.close(before)


def _call(name: str, *arguments: Any) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
