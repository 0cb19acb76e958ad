"""`ictp2p sim list | run | replay`: the simulator for people who write no Python.

`run` plays a scenario, shipped or from a file, shows virtual time while it goes on, and tables when it is over. It
exits with 0 only if everything was seen that had to be. A run that fails leaves its report in a file, and says with
which seed and faults it failed and how to see it again: `replay` plays a report once more, and says whether the world
took the same course to the last byte.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from ictp2p.errors import ConfigError
from ictp2p.outputs import make_room, written
from ictp2p.tables import Table, show
from sim import report
from sim.progress import Progress
from sim.scenario import Scenario, found, play, shipped
from sim.scenarios import SCENARIOS
from sim.settings import rows
from sim.stage import Stage

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

FAILED = 1
"""Exit status of a run in which something was not seen, or took another course than the one that it replays."""
LEFT = Path("runs")
"""Where the report of a failed run is left, if no file is named for it."""


def main(argv: Sequence[str] | None = None, stream: TextIO | None = None) -> int:
    """Run one command; its exit status.

    Raises:
        ConfigError: what was asked for cannot be.
        OSError: a file that was asked for could not be written; the message names it.
    """
    options = _parser().parse_args(argv)
    status: int = options.run(options, sys.stdout if stream is None else stream)
    return status


# ---------------------------------------------------------------- list


def _list(options: argparse.Namespace, stream: TextIO) -> int:
    if options.name is not None:
        _explain(found(options.name), stream)
    else:
        show([Table("", ("scenario", "what happens"), tuple((name, shipped(name).line) for name in SCENARIOS))], stream)
        stream.write("\nictp2p sim list NAME explains one; ictp2p sim run NAME runs it.\n")
    return 0


def _explain(scenario: Scenario, stream: TextIO) -> None:
    stream.write(f"{scenario.name}\n\n{scenario.help.strip()}\n\n")
    show([Table("settings (--set NAME=VALUE)", ("name", "default", "meaning"), tuple(rows(scenario.settings)))], stream)


# ---------------------------------------------------------------- run and replay


def _run(options: argparse.Namespace, stream: TextIO) -> int:
    scenario = found(options.scenario)
    given = _given(options)
    _prepare(options)
    told = _played(scenario, options.seed, given, options, stream)
    return 0 if told["ok"] else FAILED


def _replay(options: argparse.Namespace, stream: TextIO) -> int:
    before = report.load(options.file)
    scenario = _recorded(before)
    _prepare(options)
    told = _played(scenario, before["seed"], before["settings"], options, stream)
    same = told.get("trace") == before.get("trace")
    stream.write(f"\n{'The same course' if same else 'ANOTHER course'} as in {options.file}: trace {told.get('trace')}")
    stream.write("\n" if same else f", recorded was {before.get('trace')}; the code has changed since.\n")
    return 0 if told["ok"] and (same or not options.exact) else FAILED


def _recorded(before: Mapping[str, Any]) -> Scenario:
    """The scenario of a report; a user's file is in the report itself."""
    if before.get("document") is not None:
        from sim import scenario_file

        return scenario_file.read(before["document"], before["scenario"])
    return shipped(before["scenario"])


def _played(
    scenario: Scenario, seed: int, given: Mapping[str, object], options: argparse.Namespace, stream: TextIO
) -> dict[str, Any]:
    """Play, show, and write down."""
    progress = None if options.quiet else Progress(stream)
    with play(scenario, seed, given, told=progress) as stage:
        if progress is not None:
            progress.end()
        told = report.document(scenario, stage, given)
        _write_trace(stage, options.trace)
    if not options.quiet:
        stream.write("\n")
        show(report.summary(told), stream)
    _write(told, options.report, options.plot)
    if not told["ok"]:
        _blame(told, options.report or _leave(told), stream)
    return told


def _given(options: argparse.Namespace) -> dict[str, object]:
    """What was set on the command line."""
    given: dict[str, object] = {}
    for item in options.set:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {item}: give it as NAME=VALUE")
        given[key] = value
    if options.clusters is not None:
        given["clusters"] = options.clusters
    return given


def _prepare(options: argparse.Namespace) -> None:
    """Find out before the run what would be in the way after it."""
    if options.plot is not None:
        from sim import pictures

        pictures.require(options.plot)
    for path in (options.report, options.trace, options.plot):
        if path is not None:
            make_room(path)


def _write_trace(stage: Stage, path: Path | None) -> None:
    if path is not None and stage.opened:
        with written(path):
            path.write_text(f"{stage.world.trace}\ntrace {stage.world.trace.digest()}\n")


def _write(told: Mapping[str, Any], document: Path | None, picture: Path | None) -> None:
    if document is not None:
        report.save(told, document)
    if picture is not None:
        from sim import pictures

        with written(picture):
            pictures.draw(told, picture)


def _leave(told: Mapping[str, Any]) -> Path:
    """Write a failed run's report where it will be found."""
    path = LEFT / f"sim-{told['scenario']}-{told['seed']}.json"
    make_room(path)
    report.save(told, path)
    return path


def _blame(told: Mapping[str, Any], path: Path, stream: TextIO) -> None:
    stream.write(f"\nFAILED with seed {told['seed']}\n")
    if told["breach"]:
        stream.write(f"{told['breach']}\n")
    for check in told["checks"]:
        if not check["ok"]:
            stream.write(f"not seen: {check['what']} (seen {check['seen']}, wanted {check['wanted']})\n")
    faults = [f"{row['at']:.3f} {row['what']}" for row in told.get("faults", [])]
    stream.write(f"faults: {' | '.join(faults) or 'none'}\n")
    stream.write(f"again:  ictp2p sim replay {shlex.quote(str(path))}\n")


# ---------------------------------------------------------------- the command line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ictp2p sim", description="Run real peers on a virtual clock and an in-memory network, through faults."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = _command(commands, "list", "show the scenarios, or explain one and its settings")
    listing.set_defaults(run=_list)
    listing.add_argument("name", nargs="?", metavar="NAME", help="a scenario, or a scenario file")
    running = _command(commands, "run", "run a scenario; exit status 0 if all was seen that had to be")
    running.set_defaults(run=_run)
    add = running.add_argument
    add("scenario", metavar="NAME|FILE.toml", help="a scenario of `ictp2p sim list`, or a scenario file")
    add("--seed", type=_seed, default=0, metavar="N", help="of everything; one seed, one course (default: 0)")
    add("--clusters", type=int, metavar="N", help="how many clusters; the same as --set clusters=N")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting; may be repeated")
    _add_outputs(running)
    again = _command(commands, "replay", "run again what a report tells, and compare the courses")
    again.set_defaults(run=_replay)
    again.add_argument("file", type=Path, metavar="FILE", help="written by `run --report`, or left by a failed run")
    again.add_argument("--exact", action="store_true", help="fail if the world takes another course than recorded")
    _add_outputs(again)
    return parser


def _command(commands: Commands, name: str, purpose: str) -> argparse.ArgumentParser:
    """A command that says what it is for in the list of all and in its own help."""
    return commands.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0 on")
    return int(text)


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--report", type=Path, metavar="FILE", help="write everything as JSON, for programs and for `replay`")
    add("--trace", type=Path, metavar="FILE", help="write every event, as text")
    add("--plot", type=Path, metavar="FILE", help="draw routes before and after, and a timeline (PNG, SVG or PDF)")
    add("--quiet", action="store_true", help="show nothing but what went wrong")
