"""The command line: `ictp2p demo | sim | status | token | config`, also as `python -m ictp2p`.

Each command imports what it needs when it runs: `status`, `token` and `config` answer without loading torch, which
costs over a second. What the user can mend, a bad value, an address where nobody listens, or a full disk, ends as one
line on standard error and exit status 2 or 1, never as a traceback. Who reads the output of a pipe may stop to: then
the command ends, without a word, with the status that the shell gives a program which that signal ended.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import importlib.util
import json
import os
import secrets
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeAlias, TypeVar

from ictp2p.errors import ConfigError, IctError

_N = TypeVar("_N", int, float)
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_DEFAULT = "(default: %(default)s)"

FAILED, MISUSED, INTERRUPTED, UNHEARD = 1, 2, 130, 141
"""Exit statuses: it did not work, it was asked wrongly (as argparse has it), Ctrl-C, nobody reads the output."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # `>&-`: the interpreter has nothing there
        return _fail(OSError(errno.EBADF, "standard output is closed"), FAILED)
    try:
        return _answer(arguments)
    except BrokenPipeError:
        _fall_silent()
        return UNHEARD
    except OSError as error:
        _fall_silent()
        return _fail(error, FAILED)
    except ConfigError as error:
        return _fail(error, MISUSED)
    except IctError as error:
        return _fail(error, FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _answer(arguments: list[str]) -> int:
    try:
        return _sim(arguments[1:]) if arguments[:1] == ["sim"] else _run(arguments)
    finally:
        sys.stdout.flush()  # here, where it can fail in words; help and usage, which argparse exits with, as well


def _run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    status: int = options.run(options)
    return status


def _sim(arguments: list[str]) -> int:
    """The simulator parses its own arguments: its scenarios load torch, which no other command should wait for.

    Raises:
        ConfigError: something else has its name, and is found first, as a file in the current folder is by `python -m`.
    """
    ours, found = Path(__file__).parents[1] / "sim" / "__init__.py", importlib.util.find_spec("sim")
    if found is not None and found.origin is not None and Path(found.origin).resolve() != ours.resolve():
        raise ConfigError(f"{found.origin} hides the simulator, which is called sim too: rename it, or go elsewhere")
    from sim.command import main as simulate

    return simulate(arguments)


def _fall_silent() -> None:
    """Have nothing written any more, not even by the interpreter when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: IctError | OSError, status: int) -> int:
    print(f"ictp2p: {type(error).__name__}: {error}", file=sys.stderr)
    return status


def _demo(options: argparse.Namespace) -> int:
    from ictp2p.demo import controller
    from ictp2p.demo.show import display

    chosen = controller.Options(
        seconds=options.seconds,
        rounds=options.rounds,
        sync_every=options.sync_every,
        seed=options.seed,
        port=options.port,
        workers=options.workers,
        bulk_rate=options.bulk_rate,
        fault=options.fault,
        plot=None if options.no_plot else options.plot,
        report=options.report,
        log=options.log,
    )
    return controller.run(chosen, display())


def _status(options: argparse.Namespace) -> int:
    from ictp2p.config.checks import dialed
    from ictp2p.status import fetch_status
    from ictp2p.tables import show, tables

    address = str(dialed(options.address))
    token = options.token or os.environ.get("ICTP2P_TOKEN")
    if not token:
        raise ConfigError("no join token: give the mesh's with --token, or in ICTP2P_TOKEN")
    status = asyncio.run(fetch_status(address, token, options.timeout))
    if options.json:
        print(json.dumps(status, indent=1, default=str))
    else:
        show(tables(status))
    return 0


def _token(options: argparse.Namespace) -> int:
    print(secrets.token_hex(16))
    return 0


def _config(options: argparse.Namespace) -> int:
    from ictp2p.config import HOW_TO_LOAD, page, parameters
    from ictp2p.tables import Table, show

    if options.markdown:
        print(page())
        return 0
    heads = ("name", "unit", "default", "meaning", "how to set")
    show([Table("", heads, tuple(map(tuple, parameters(options.preset))))])
    print(f"\n{HOW_TO_LOAD}", end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ictp2p", description="Clusters far apart train one model together, with nobody in the middle."
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(_command(commands, "demo", "train through a death, a join and a leave, on this machine"))
    _command(commands, "sim", "run simulated worlds through faults: list, run, replay")
    _add_status(_command(commands, "status", "show what a running peer sees"))
    token = _command(commands, "token", "print a fresh join token of 128 bits")
    token.set_defaults(run=_token)
    config = _command(commands, "config", "print every parameter: unit, default, meaning, how to set it")
    config.set_defaults(run=_config)
    shown = config.add_mutually_exclusive_group()
    shown.add_argument("--markdown", action="store_true", help="print the documentation page, all presets")
    shown.add_argument(
        "--preset", choices=("local", "lan", "wan"), default="lan", help=f"whose defaults to show {_DEFAULT}"
    )
    return parser


def _command(commands: Commands, name: str, purpose: str) -> argparse.ArgumentParser:
    """A command that says what it is for in the list of all and in its own help."""
    return commands.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")


def _add_status(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_status)
    parser.add_argument("address", help="host:port of any peer of the mesh")
    parser.add_argument("--token", help="the mesh's join token; better in ICTP2P_TOKEN, where ps does not show it")
    parser.add_argument("--timeout", type=_positive, default=10.0, help=f"seconds {_DEFAULT}")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_demo)
    add = parser.add_argument
    add("--seconds", type=_positive, default=230.0, help=f"deadline of the whole run {_DEFAULT}")
    add("--rounds", type=_count, default=3, help=f"committed rounds before, between and after the events {_DEFAULT}")
    add("--sync-every", type=_count, default=20, help=f"inner steps between two outer rounds {_DEFAULT}")
    add("--seed", type=_seed, default=0, help=f"of parameters and batches {_DEFAULT}")
    add("--port", type=_port, default=0, help=f"where the first worker listens; 0: the system chooses {_DEFAULT}")
    add("--workers", type=_several, default=2, help=f"per cluster; the leader's death needs a second one {_DEFAULT}")
    add("--bulk-rate", type=_megabytes, default=8.0, help=f"megabytes per second that a peer may send {_DEFAULT}")
    fault = f"SIGKILL the leader, or SIGSTOP it: it goes silent {_DEFAULT}"
    add("--fault", choices=("kill", "stop"), default="kill", help=fault)
    plot = f"PNG of the losses and events {_DEFAULT}"
    add("--plot", type=Path, default=Path("runs/demo.png"), metavar="FILE", help=plot)
    add("--no-plot", action="store_true", help="draw nothing")
    add("--report", type=Path, metavar="FILE", help="JSON report of rounds, events, digests and losses")
    add("--log", type=Path, metavar="FILE", help="every event of every worker, as JSON lines")


def _positive(text: str) -> float:
    value = _number(text, float)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and finite")
    return value


def _megabytes(text: str) -> float:
    value = _positive(text)
    if not 1e-6 <= value <= 1e9:  # what the configuration of each worker takes as bytes
        raise argparse.ArgumentTypeError(f"{text} is not from 1e-6 to 1e9")
    return value


def _count(text: str) -> int:
    value = _number(text, int)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _several(text: str) -> int:
    return _within(text, 2, 16)  # each is a process on this machine


def _seed(text: str) -> int:
    return _within(text, 0, 2**31 - 1)


def _within(text: str, least: int, most: int) -> int:
    value = _number(text, int)
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most}")
    return value


def _number(text: str, kind: type[_N]) -> _N:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _port(text: str) -> int:
    value = _number(text, int)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port from 0 to 65535")
    return value


def _version() -> str:
    try:
        return f"ictp2p {version('ictp2p')}"
    except PackageNotFoundError:
        return "ictp2p, not installed"
