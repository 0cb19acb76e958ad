"""Runs the demo from its options to its exit status: workers, script, verdict, report, plot.

Whatever happens, a deadline, a failed worker, Ctrl-C, SIGTERM or a closed terminal, every worker process is
ended and reaped before anything else is written, and the report is written all the same, with the reasons.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ictp2p.demo import plot
from ictp2p.demo.report import cost
from ictp2p.demo.script import FOUNDERS, JOINER, Script
from ictp2p.demo.show import Display
from ictp2p.demo.stage import DemoFailed, Stage
from ictp2p.outputs import Output, make_room, written

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


@dataclass(frozen=True, slots=True)
class Options:
    """What one may change about a run."""

    seconds: float = 230.0
    """Deadline of the whole run."""
    rounds: int = 3
    """Committed rounds of all present clusters before, between and after the events."""
    sync_every: int = 20
    """Inner steps between two outer rounds."""
    seed: int = 0
    """Of parameters and batches."""
    port: int = 0
    """Where the first worker listens; 0 lets the system choose."""
    workers: int = 2
    """Per cluster."""
    bulk_rate: float = 8.0
    """Megabytes per second at which each peer may send tensors, as over a wide-area link."""
    fault: str = "kill"
    """`kill` (SIGKILL: its sockets are reset at once) or `stop` (SIGSTOP: it goes silent)."""
    plot: Path | None = None
    """PNG of the losses with the events marked; None draws none."""
    report: Path | None = None
    """JSON report; None writes none."""
    log: Path | None = None
    """Every event of every worker, as JSON lines; None keeps none."""


Command = Callable[[Options, str, int, Sequence[str], Path], Sequence[str]]
"""(options, cluster, number, addresses to join, its data folder) -> a worker's command line."""


def worker_command(options: Options, cluster: str, number: int, join: Sequence[str], folder: Path) -> list[str]:
    """The command line of a real worker."""
    clusters = (*FOUNDERS, JOINER)
    first = (cluster, number) == (FOUNDERS[0], 0)
    return [
        *(sys.executable, "-m", "ictp2p.demo.worker"),
        *("--cluster", cluster, "--worker", str(number), "--data-dir", str(folder)),
        *("--listen", f"127.0.0.1:{options.port if first else 0}"),
        *(argument for address in join for argument in ("--join", address)),
        *("--shards", str(len(clusters)), "--shard", str(clusters.index(cluster))),
        *("--sync-every", str(options.sync_every), "--seed", str(options.seed)),
        *("--bulk-rate", str(options.bulk_rate * 1e6)),
        *(("--validate",) if first else ()),
    ]


def run(options: Options, display: Display, command: Command = worker_command) -> int:
    """Play the demo; 0 if, and only if, everything came out right.

    Raises:
        ConfigError: a file that was asked for cannot be written.
    """
    for path in (options.report, options.plot, options.log):
        if path is not None:
            make_room(path)
    with display:
        report = _perform(options, display, command)
        if options.report is not None:
            with written(options.report):
                options.report.write_text(json.dumps(report, indent=1) + "\n")
            display.line(f"report: {options.report}")
        if options.plot is not None and report["rounds"]:
            _plot(options.plot, report, display)
        _conclude(report, display)
    return int(report["exit_status"])


def _perform(options: Options, display: Display, command: Command) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ictp2p-demo-")))
        log = None if options.log is None else stack.enter_context(contextlib.closing(Output(options.log)))
        environment = {"ICTP2P_TOKEN": secrets.token_hex(16), "OMP_NUM_THREADS": "1"}
        stage = Stage(options.seconds, display, environment, log)
        script = Script(
            stage,
            lambda cluster, number, join: command(options, cluster, number, join, folder / f"{cluster}-{number}"),
            workers=options.workers,
            rounds=options.rounds,
            fault=options.fault,
        )
        status, failures = 1, list[str]()
        stack.enter_context(_interrupted_by(signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        stack.callback(stage.reap)
        try:
            failures = stage.record.failures(script.play())
            status = int(bool(failures))
        except DemoFailed as failure:
            failures = [str(failure)]
        except KeyboardInterrupt:
            status, failures = INTERRUPTED, ["interrupted"]
    return {
        "ok": status == 0,
        "exit_status": status,
        "failures": failures,
        "seconds": time.time() - stage.record.started_at,
        "started_at": stage.record.started_at,
        **stage.record.as_json(),
        "false_suspicions": script.false_suspicions(),
        "options": {name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()},
    }


@contextlib.contextmanager
def _interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """Treat these signals like Ctrl-C, so that they too end the workers first.

    And Ctrl-C itself: whoever is started in the background of a script has its signal ignored.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _plot(path: Path, report: dict[str, Any], display: Display) -> None:
    try:
        with written(path):
            plot.draw(report, path)
    except ImportError as error:
        display.line(f"no plot: {error.name} is not installed; pip install 'ictp2p[demo]' brings it")
    else:
        display.line(f"plot: {path}")


def _conclude(report: dict[str, Any], display: Display) -> None:
    for failure in report["failures"]:
        display.headline(f"FAILED: {failure}")
    if not report["ok"]:
        return
    digest = next(iter(report["final_digests"].values()))
    costs = [f"{event['kind']} of {event['cluster']}: {cost(event, digits=2)}" for event in report["events"]]
    committed = sum(r["outcome"] == "committed" for r in report["rounds"])
    display.headline(f"PASSED in {report['seconds']:.0f} s")
    display.line(f"{len(report['final_digests'])} workers hold the same parameters, digest {digest[:16]}")
    display.line(
        f"validation loss {report['start_validation_loss']:.3f} -> {report['final_validation_loss']:.3f} nats per byte"
    )
    display.line(f"{committed} rounds committed")
    for each in costs:
        display.line(each)
    display.line(f"false suspicions: {len(report['false_suspicions'])}")
