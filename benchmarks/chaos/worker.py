"""One worker: a process that trains, says what happens on a pipe, and testifies when it is asked."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import ictp2p
from benchmarks.chaos import testimony
from benchmarks.chaos.books import Books, Count, Ledger, Recorder
from benchmarks.emulator import enter
from ictp2p.demo.lines import encode
from ictp2p.errors import IctError

DRAIN, TESTIFY, STACKS = signal.SIGUSR2, signal.SIGWINCH, signal.SIGUSR1
"""What a worker is told by signals: to leave, to say how it is, to write its threads' stacks to its log."""
_PRESETS = {"local": ictp2p.Config.local, "wan": ictp2p.Config.wan}
_RESTORE_AFTER = 20.0
"""Seconds: a campaign does not wait as long as a mesh across the world does."""
HEARD = (
    *("round_opened", "reduce_progress", "round_committed", "round_aborted", "leader", "member", "roster"),
    *("state_fetched", "state_restored", "state_missing", "group", "group_failed", "outer", "warning"),
)
"""The peer's own events that are passed on, beside the worker's."""

Say = Callable[..., None]


def fork(options: dict[str, Any], errors: Path) -> tuple[int, int]:
    """Start a worker; its process and where it is heard."""
    ears, mouth = os.pipe()
    parent = os.getpid()
    process = os.fork()
    if process:
        os.close(mouth)
        os.set_blocking(ears, False)
        return process, ears
    code = 2
    try:
        os.setsid()
        os.close(ears)
        _log_to(errors)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Blocked in every thread to come: the one that waits for it gets it, whatever the others are stuck in.
        signal.pthread_sigmask(signal.SIG_BLOCK, {TESTIFY})
        threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
        code = work(options, mouth)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def work(options: dict[str, Any], out: int) -> int:
    """Be one worker; the exit status."""
    say = _speaker(out)
    if options["network"] is not None:
        enter(options["network"])
    config = _PRESETS[options["preset"]](
        cluster=options["cluster"],
        token=options["token"],
        listen=options["listen"],
        join=tuple(options["join"]),
        data_dir=options["data"],
        bulk_rate=options["rate"],
        restore_after=_RESTORE_AFTER,
    )
    peer = ictp2p.Peer(config)
    peer.on_event(lambda event: say(**event) if event["kind"] in HEARD else None)
    threading.Thread(target=_testify, args=(peer, say), daemon=True).start()
    signal.signal(DRAIN, lambda *_: peer.drain())
    torch.set_num_threads(1)
    try:
        with peer:
            say("ready", peer=peer.id, address=str(peer.address))
            _train(options, peer, say)
    except KeyboardInterrupt:
        say("interrupted")
    except IctError as error:
        say("failed", error=type(error).__name__, text=str(error))
        return 1
    return 0


def _train(options: dict[str, Any], peer: ictp2p.Peer, say: Say) -> None:
    model, count = Books(options["slot"], options["ballast"]), Count()
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    pause = random.Random(options["seed"])
    with Ledger(Recorder(peer, options["slot"], say), model, inner, count) as policy:
        policy.report()
        said = 0.0
        for _ in peer.steps(iter(int, 1)):
            policy.check()
            time.sleep(pause.uniform(0.0, options["pause"]))
            model().backward()
            inner.step()
            inner.zero_grad()
            policy.report()
            policy.check()
            if time.monotonic() - said > 0.5:
                said = time.monotonic()
                say("alive", version=policy.version, **_appetite(peer))
        say("drained", version=policy.version)


def _appetite(peer: ictp2p.Peer) -> dict[str, int]:
    """What the process takes: descriptors, connections that the peer knows of, threads, bytes that are its own."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    figures = peer.stats()
    return {
        "descriptors": sum(1 for _ in Path("/dev/fd").iterdir()),
        "connections": figures["control_connections"] + figures["data_connections"],
        "threads": threading.active_count(),
        "memory": (resident - shared) * os.sysconf("SC_PAGE_SIZE"),
    }


def _speaker(out: int) -> Say:
    lock = threading.Lock()

    def say(kind: str, **fields: Any) -> None:
        with lock:
            os.write(out, (encode({"kind": kind, "time": time.time(), **fields}) + "\n").encode())

    return say


def _testify(peer: ictp2p.Peer, say: Say) -> None:
    while True:
        signal.sigwait({TESTIFY})
        say("testimony", **testimony.of(peer))


def _log_to(errors: Path) -> None:
    log = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.register(STACKS, file=2, all_threads=True)


def _die_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(3)
