"""`python -m benchmarks.chaos`: one campaign; the exit status says whether anything was wrong."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks import chaos
from benchmarks.chaos.campaign import Campaign


def main() -> int:
    """Run a campaign, and print what came of it: the essence of a failure last."""
    options = _options()
    root = Path(options.keep or tempfile.mkdtemp(prefix="ictp2p-chaos-"))
    root.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(options, root)
    campaign.run()
    _report(options, campaign)
    failed = bool(campaign.crowd.problems)
    if not options.keep and not failed:
        shutil.rmtree(root, ignore_errors=True)
    return int(failed)


def _report(options: argparse.Namespace, campaign: Campaign) -> None:
    crowd = campaign.crowd
    head = f"seed {options.seed}: {crowd.newest} versions, {len(crowd.workers)} workers, {len(crowd.ends)} typed ends"
    print(head)
    for text in sorted(set(crowd.ends)):
        print(f"  ended: {text}")
    print(f"  {dict(sorted(crowd.counts.items()))}")
    if not crowd.problems:
        return
    if not options.verbose:
        print("\n".join(crowd.story))
    print(campaign.inquest.told())
    print("\n".join(f"PROBLEM {text}" for text in crowd.problems))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(chaos.__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="of harm")
    parser.add_argument("--workers", type=int, default=6, help="to begin with")
    parser.add_argument("--most", type=int, default=8, help="workers at once")
    parser.add_argument("--rate", type=float, default=400_000.0, help="bytes per second of tensor traffic per worker")
    parser.add_argument("--ballast", type=int, default=8_000, help="further parameters")
    parser.add_argument("--pause", type=float, default=0.04, help="longest inner step, seconds")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds until a standstill is a problem")
    parser.add_argument("--stop-at-problem", action="store_true")
    parser.add_argument("--trace", action="store_true", help="keep all events")
    parser.add_argument("--keep", help="folder for logs, kept")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
