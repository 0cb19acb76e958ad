"""Where contenders take turns: ranks as processes on loopback, ours and torch's Gloo in one run; the machine's bound.

Every rank runs all contenders in turn (A B C A B C ...), so that they share whatever else the machine does. A turn's
time is that of the slowest rank, its CPU seconds those of all ranks together.

Where it may (root on Linux), the run gets a network namespace of its own, in which Gloo is measured twice: with the
host's congestion control, and with cubic, which ours asks for on short ways.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import multiprocessing
import os
import socket
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
import uvloop

from ictp2p.bulk import Agreed, Bulk, BulkProfile
from ictp2p.collectives.channel import Links, RoundTag
from ictp2p.collectives.codecs.prices import AUTO, PRICES, leaves_out
from ictp2p.collectives.plan import Plan
from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest, plan
from ictp2p.collectives.running.attempt import ExecuteProfile
from ictp2p.collectives.running.execute import Stats, all_reduce
from ictp2p.errors import Unreachable
from ictp2p.types import PeerId

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET, <sched.h>
_ROUTE = "ip route replace local {} dev lo table local proto kernel scope host src 127.0.0.1"
SECONDS = timedelta(seconds=120)
LOCAL = BulkProfile(stall=2.0, handshake=2.0, patience=0.25)
"""For one machine."""


def own_network() -> bool:
    """Move this process, and those that it starts, to a network of their own; False if that is not allowed."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "unshare") or library.unshare(_NEW_NETWORK):
        return False
    return subprocess.run(["ip", "link", "set", "lo", "up"], check=False).returncode == 0 and prefer(None)


def prefer(control: str | None) -> bool:
    """Let connections that are opened from now on in our own network use `control`; None: the host's choice."""
    suffix = f" congctl {control}" if control else ""
    commands = [(_ROUTE.format(where) + suffix).split() for where in ("127.0.0.0/8", "127.0.0.1")]
    return all(subprocess.run(command, check=False).returncode == 0 for command in commands)


@dataclass(frozen=True, slots=True)
class Turn:
    """One measurement on one rank."""

    seconds: float
    cpu: float


class Rank:
    """One process of a run: its data planes, and its Gloo groups."""

    def __init__(self, number: int, ranks: int, port: int) -> None:
        self.number = number
        self.ranks = ranks
        self.names = [PeerId(f"{n:032x}") for n in range(ranks)]
        self.hosts, self.device = ["127.0.0.1"] * ranks, "lo"
        self.store = self._store(port)
        self.servers: list[asyncio.Server] = []
        """Where its data planes are reached."""
        self._groups = 0

    def gloo(self, control: str | None = None) -> Any:
        """Open a Gloo group, with another congestion control if one is named."""
        self._groups += 1
        if control is not None and self.number == 0:
            prefer(control)
        self.agree(f"before-{self._groups}")
        os.environ["GLOO_SOCKET_IFNAME"] = self.device
        prefix = dist.PrefixStore(f"gloo-{self._groups}", self.store)
        group = cast("Any", dist.ProcessGroupGloo)(prefix, self.number, self.ranks, SECONDS)
        group.allreduce([torch.zeros(1)]).wait()
        self.agree(f"after-{self._groups}")
        if control is not None and self.number == 0:
            prefer(None)
        return group

    def agree(self, name: str, count: int | None = None) -> None:
        """Wait until all ranks are here, or so many."""
        if self.store.add(name, 1) == (count or self.ranks):
            self.store.set(f"{name}-all", "")
        self.store.wait([f"{name}-all"], SECONDS)

    async def bulk(self, name: str, *, sealed: bool, profile: BulkProfile | None = None, **options: Any) -> Bulk:
        """Open a data plane of ours among the ranks; `options` as `Bulk` has them."""
        loop = asyncio.get_running_loop()

        def keys(peer: PeerId, context: bytes) -> Agreed:
            send, receive = (
                hashlib.blake2b(context + bytes.fromhex(i), digest_size=16).digest()
                for i in (self.names[self.number], peer)
            )
            return Agreed(send, receive)

        async def dial(peer: PeerId, timeout: float) -> asyncio.Transport:
            port = int(self.store.get(f"{name}-{peer}"))
            host = self.hosts[self.names.index(peer)]
            try:
                async with asyncio.timeout(timeout):
                    transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
            except OSError as error:  # a timeout is one too
                raise Unreachable(f"{peer} at {host}: {error}") from error
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return transport

        profile = replace(profile or LOCAL, sealed=sealed)
        bulk = Bulk(self.names[self.number], keys, dial, profile=profile, membership=b"benchmark", **options)

        class Accept(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                bulk.accept(cast("asyncio.Transport", transport))

        server = await loop.create_server(Accept, self.hosts[self.number], 0)
        self.servers.append(server)
        self.store.set(f"{name}-{self.names[self.number]}", str(server.sockets[0].getsockname()[1]))
        return bulk

    def _store(self, port: int) -> Any:
        return dist.TCPStore("127.0.0.1", port, self.ranks, is_master=self.number == 0, timeout=SECONDS)

    def plan(
        self, elements: int, kind: str | None = None, among: Sequence[int] | None = None, codec: str = "none"
    ) -> Plan:
        """Plan an all-reduce of float32 among some ranks, nothing measured."""
        names = tuple(self.names[n] for n in (among or range(self.ranks)))
        links = {(a, b): LinkEstimate() for a in names for b in names if a != b}
        return plan(PlanRequest(names, elements, 4, links, only=kind, codec=codec, small=True)).plan

    async def reduce(
        self,
        chosen: Plan,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        bulk: Links,
        attempt: int,
        *,
        pace: bool = False,
        **options: Any,
    ) -> Stats:
        """Run one all-reduce of ours, perhaps with each connection held near its planned rate."""
        tag = RoundTag(b"benchmark", attempt, 0, chosen.digest())
        me = chosen.participants.index(self.names[self.number])
        profile = ExecuteProfile(total=120.0, pace=pace)
        return await all_reduce(chosen, me, inputs, outputs, bulk, tag, op="sum", profile=profile, **options)


KINDS = ("star", "parameter_server", "ring", "halving_doubling", "tree")
"""Schedules that may be asked for."""
CODECS = (*(name for name in PRICES if not leaves_out(name)), AUTO)
"""Ways to write elements after which a sum can be checked."""
Contender = Callable[[int], Awaitable[None]]


async def take_turns(
    barrier: Callable[[], None],
    contenders: dict[str, Contender],
    prepare: Callable[[str], None],
    check: Callable[[str], None],
    repeat: int,
    rest: float = 0.0,
) -> dict[str, list[Turn]]:
    """Measure each contender `repeat` times, in turn, `rest` seconds apart, after a round that counts for nothing."""
    measured: dict[str, list[Turn]] = {name: [] for name in contenders}
    for turn in range(repeat + 1):
        for name, run in contenders.items():
            prepare(name)
            await asyncio.sleep(rest)
            await asyncio.to_thread(barrier)  # our loop still hands out what others need
            began, cpu = time.perf_counter(), time.process_time()
            await run(turn)
            if turn:  # the first one opens connections
                measured[name].append(Turn(time.perf_counter() - began, time.process_time() - cpu))
            check(name)
    return measured


def processes(ranks: int, work: Callable[..., Any], *arguments: Any, seconds: float = 600, dying: int = 0) -> list[Any]:
    """Run `work(rank, *arguments)`, a coroutine function, in one process for each rank; give what each returns.

    Of the last `dying` ranks nothing is awaited; they are killed at the end.
    """
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    workers = [
        context.Process(target=_be, args=(number, ranks, dying, port, work, arguments, results), daemon=True)
        for number in range(ranks)
    ]
    for process in workers:
        process.start()
    collected = dict(results.get(timeout=seconds) for _ in workers[dying:])
    for process in workers[ranks - dying :]:
        process.kill()
    for process in workers:
        process.join()
    return [collected[number] for number in range(ranks - dying)]


def _be(
    number: int,
    ranks: int,
    dying: int,
    port: int,
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    results: Any,
) -> None:
    torch.set_num_threads(1)
    rank = Rank(number, ranks, port)
    try:
        results.put((number, uvloop.run(work(rank, *arguments))))
    except BaseException as error:
        results.put((number, RuntimeError(f"rank {number}: {error!r}")))  # not every error can be pickled
        raise
    rank.agree("the end", ranks - dying)


def summary(collected: Sequence[dict[str, list[Turn]]], size: float) -> dict[str, dict[str, Any]]:
    """Give each contender's turns, median seconds, and CPU seconds per GB of a tensor of `size` bytes over ranks."""
    for failed in collected:
        if isinstance(failed, BaseException):
            raise failed
    found = {}
    for name in collected[0]:
        turns = list(zip(*(rank[name] for rank in collected), strict=True))
        cpu = statistics.median(sum(turn.cpu for turn in each) for each in turns)
        slowest = [max(turn.seconds for turn in each) for each in turns]
        found[name] = {
            "seconds": statistics.median(slowest),
            "cpu_seconds_per_gb": cpu / (size / 1e9),
            "turns": slowest,
        }
    return found


def wire_cost(size: int = 1_000_000_000, chunk: int = 1024 * 1024, repeat: int = 5) -> float:
    """Measure CPU seconds per GB of raw one-way TCP, both ends: blocking sockets, cubic, memory out of the caches."""
    return statistics.median(_one_way(size, chunk) for _ in range(repeat))


def add_cost(chunk: int = 1024 * 1024, repeat: int = 5) -> float:
    """Measure CPU seconds per GB of adding what has just arrived (in the caches) to what lies in memory."""
    own, out = np.ones(16_000_000, np.float32), np.zeros(16_000_000, np.float32)
    arrived, step = np.ones(chunk // 4, np.float32), chunk // 4
    found = []
    for _ in range(repeat):
        began = time.process_time()
        for start in range(0, len(own) - step, step):
            np.add(own[start : start + step], arrived, out=out[start : start + step])
        found.append((time.process_time() - began) / (own.nbytes / 1e9))
    return statistics.median(found)


def bound(ranks: int, size: float, wire: float, add: float) -> float:
    """Give the seconds that the machine's cores need for nothing but the bytes and the sums of an all-reduce."""
    cpu = size / 1e9 * (2 * (ranks - 1) * wire + (ranks - 1) * add)
    return cpu / min(ranks, len(os.sched_getaffinity(0)))


def _one_way(size: int, chunk: int) -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with contextlib.suppress(OSError):
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        context = multiprocessing.get_context("fork")
        spent = context.Queue()
        sender = context.Process(target=_send, args=(server.getsockname(), size, chunk, spent))
        sender.start()
        endpoint, _ = server.accept()
        place = memoryview(bytearray(100 * chunk))
        place[:] = bytes(len(place))  # touched before the clock runs
        began = time.process_time()
        for number in range(size // chunk):
            start = number % 100 * chunk
            endpoint.recv_into(place[start : start + chunk], 0, socket.MSG_WAITALL)
        received = time.process_time() - began
        endpoint.close()
        total = received + float(spent.get(timeout=60))
        sender.join()
    return total / (size // chunk * chunk / 1e9)


def _send(address: tuple[str, int], size: int, chunk: int, spent: Any) -> None:
    source = memoryview(os.urandom(chunk) * 100)
    endpoint = socket.socket()
    with contextlib.suppress(OSError):
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    endpoint.connect(address)
    began = time.process_time()
    for number in range(size // chunk):
        start = number % 100 * chunk
        endpoint.sendall(source[start : start + chunk])
    spent.put(time.process_time() - began)
    endpoint.close()
