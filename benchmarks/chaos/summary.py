"""What a campaign came to, in figures: harm done, rounds, what was wrong, and what the workers took meanwhile.

Workers die young here, so a leak that takes long shows in those alone that lived through much of the campaign: with
`--lasting` some live through all of it. Of descriptors and memory the figures are told for the lives that began in each
third of the campaign, as they were at their ends, and for the thirds of the longest life. Descriptors are those beside
the connections that the peer knows of: these follow the number of workers, and the audit has a bound for them.
"""

from __future__ import annotations

import re
from collections import Counter
from statistics import median
from typing import Any

from benchmarks.chaos.crowd import Crowd, Worker

_HARM = re.compile(r"(kill|stop|start|drain|interrupt) \S+")
_STANDSTILL = re.compile(r"no version after|has been silent|did not come|did not reach")
"""How a problem reads that is a hang; all others are about results or resources."""


def summarize(crowd: Crowd, longest: float) -> dict[str, Any]:
    """Give the figures of a campaign that has ended; `longest` is its longest standstill in seconds."""
    told = [line.split(None, 2)[2] for line in crowd.story]
    harm = Counter(found[1] for text in told if (found := _HARM.match(text)))
    hangs = [text for text in crowd.problems if _STANDSTILL.search(text)]
    eldest = max(crowd.workers, key=lambda worker: worker.age)
    return {
        "rounds": crowd.newest,
        "seconds": crowd.now,
        "workers": len(crowd.workers),
        "kills": harm["kill"],
        "stops": harm["stop"],
        "starts": harm["start"],
        "leavings": harm["drain"] + harm["interrupt"],
        "typed_ends": len(crowd.ends),
        "hangs": len(hangs),
        "other_problems": len(crowd.problems) - len(hangs),
        "longest_standstill": longest,
        "descriptors": thirds(crowd.workers, "descriptors"),
        "megabytes": [each / 1e6 for each in thirds(crowd.workers, "memory")],
        "eldest": {
            "seconds": eldest.age,
            "descriptors": across(eldest.descriptors),
            "megabytes": [each / 1e6 for each in across(eldest.memory)],
        },
    }


def show(found: dict[str, Any]) -> None:
    """Print them."""
    print(
        f"{found['rounds']} rounds in {found['seconds']:.0f} s: {found['kills']} kills, {found['stops']} stops, "
        f"{found['starts']} starts, {found['leavings']} told to leave; {found['hangs']} hangs, "
        f"{found['other_problems']} other problems, {found['typed_ends']} typed ends, "
        f"longest standstill {found['longest_standstill']:.1f} s"
    )
    eldest = found["eldest"]
    for whose, held in (
        ("lives of each third", found),
        (f"thirds of the longest life of {eldest['seconds']:.0f} s", eldest),
    ):
        beside, megabytes = rounded(held["descriptors"]), rounded(held["megabytes"])
        print(f"{whose}: descriptors beside connections {beside}, own MB {megabytes}", flush=True)


def thirds(workers: list[Worker], what: str) -> list[float]:
    """The median over the lives that began in each third of the campaign, of what they took in the end."""
    lives = [samples[-1] for worker in workers if (samples := getattr(worker, what))]
    size = max(1, -(-len(lives) // 3))
    return [float(median(lives[start : start + size])) for start in range(0, len(lives), size)]


def across(samples: list[int]) -> list[float]:
    """The medians of a life's first, middle and last third, its first twenty samples left out if it is long."""
    settled = samples[20:] if len(samples) > 60 else samples
    size = max(1, -(-len(settled) // 3))
    return [float(median(settled[start : start + size])) for start in range(0, len(settled), size)]


def rounded(values: list[float]) -> list[float]:
    """Fit to print."""
    return [round(value, 1) for value in values]
