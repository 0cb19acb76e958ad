"""`python -m benchmarks.chaos`: campaigns; the exit status says whether anything was wrong."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import chaos
from benchmarks.arguments import count, output, positive, seconds, whole
from benchmarks.chaos.campaign import FOLLOWERS, Campaign, Event
from benchmarks.chaos.crowd import Crowd
from benchmarks.chaos.processes import Processes
from benchmarks.chaos.simulated import Simulated
from benchmarks.chaos.summary import show, summarize
from benchmarks.chaos.wide import WideArea
from benchmarks.emulator import require_root


def main() -> int:
    """Run campaigns, one for each seed, and print what came of them: the essence of a failure last."""
    options = _options()
    began, failed = time.monotonic(), 0
    for seed in range(options.seed, options.seed + options.seeds):
        failed += not _campaign(argparse.Namespace(**{**vars(options), "seed": seed}))
    if options.seeds > 1:
        print(f"{options.seeds} seeds, {failed} failed, {time.monotonic() - began:.0f} s")
    return int(failed > 0)


def _campaign(options: argparse.Namespace) -> bool:
    """One; whether all was well."""
    root = _folder(options.keep, options.seed) if options.keep else Path(tempfile.mkdtemp(prefix="ictp2p-chaos-"))
    root.mkdir(parents=True, exist_ok=True)

    def gather(options: argparse.Namespace, rng: random.Random, event: Event) -> Crowd:
        if options.virtual:
            return Simulated(options, rng, event)
        return (WideArea if options.wide else Processes)(options, rng, event, root)

    campaign = Campaign(options, gather)
    campaign.run()
    _report(options, campaign)
    found = summarize(campaign.crowd, campaign.longest)
    if options.rounds:
        show(found)
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, **found}, indent=1) + "\n")
    failed = bool(campaign.crowd.problems)
    if not options.keep and (options.virtual or not failed):
        shutil.rmtree(root, ignore_errors=True)
    return not failed


def _folder(keep: str, seed: int) -> Path:
    """Of each campaign its own: with the disks of another one workers would be members of a mesh that is gone."""
    return Path(keep) / f"seed{seed}"


def _report(options: argparse.Namespace, campaign: Campaign) -> None:
    crowd = campaign.crowd
    head = f"seed {options.seed}: {crowd.newest} versions, {len(crowd.workers)} workers, {len(crowd.ends)} typed ends"
    print(f"{head}, longest standstill {campaign.longest:.1f} s", flush=True)
    for text in sorted(set(crowd.ends)):
        print(f"  ended: {text}")
    if not crowd.problems:
        return
    print(f"  {dict(sorted(crowd.counts.items()))}")
    if not options.verbose:
        print("\n".join(crowd.story))
    print(campaign.inquest.told())
    print("\n".join(f"PROBLEM {text}" for text in crowd.problems), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos", description=(chaos.__doc__ or "").split("\n")[0]
    )

    def add(name: str, take: Callable[[str], Any], default: float, text: str) -> None:
        parser.add_argument(name, type=take, default=default, help=f"{text} ({default})")

    add("--seed", whole(0), 1, "of the first campaign")
    add("--seeds", count, 1, "campaigns, one after the other")
    add("--seconds", seconds, 30.0, "of harm")
    add("--rounds", whole(0), 0, "of harm, however long they take; 0: as the seconds say")
    add("--workers", whole(2, 1 + len(FOLLOWERS)), 6, "to begin with")
    add("--most", whole(2), 8, "workers at once")
    add("--lasting", whole(0), 0, "of the first workers that may be stopped, but are not killed nor told to leave")
    add("--rate", positive, 400_000.0, "bytes per second of tensor traffic per worker")
    add("--ballast", whole(0), 8_000, "further parameters")
    add("--pause", seconds, 0.04, "longest inner step, seconds")
    add("--patience", positive, 30.0, "seconds until a standstill is a problem")
    parser.add_argument("--virtual", action="store_true", help="in the simulator, on virtual time")
    parser.add_argument("--wide", action="store_true", help="clusters far apart, whose lines are cut, too; needs root")
    parser.add_argument("--stop-at-problem", action="store_true")
    parser.add_argument("--trace", action="store_true", help="keep all events")
    parser.add_argument("--keep", help="folder for logs, kept, with a new one in it for each campaign")
    parser.add_argument("--json", type=output, help="file to write a campaign's figures to, of several the last")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if options.most < options.workers:
        parser.error(f"argument --most: {options.most} is less than the {options.workers} workers to begin with")
    if options.keep:
        for seed in range(options.seed, options.seed + options.seeds):
            if (folder := _folder(options.keep, seed)).exists():
                parser.error(f"argument --keep: {folder} is there already")
    if options.wide and options.virtual:
        parser.error("argument --wide: simulated workers have no processes")
    if options.wide:
        require_root(parser)
    return options


if __name__ == "__main__":
    sys.exit(main())
