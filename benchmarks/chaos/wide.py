"""Workers that are processes in networks of their own, one for each cluster, joined by slow, long and lossy lines.

On loopback a dead peer's kernel resets its connections, and nothing else ever happens to a packet. Here clusters have
lines of 20 to 50 Mbit/s, 5 to 40 ms one way and one lost packet in a thousand, and lines are cut: then a kernel waits
and sends again ever more seldom, both ends are alive, and each hears of the other from third ones. Peers have what
`Config.wan` gives, as users have it.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.chaos.books import SLOTS
from benchmarks.chaos.crowd import Worker
from benchmarks.chaos.processes import Processes
from benchmarks.emulator import Emulator

_LOSS = 0.001


class WideArea(Processes):
    """A crowd of processes behind emulated lines; needs root. Arguments as `Processes`'."""

    long_lines = True

    def __init__(
        self,
        options: argparse.Namespace,
        rng: random.Random,
        event: Callable[[Worker, dict[str, Any]], None],
        root: Path,
    ) -> None:
        super().__init__(options, rng, event, root)
        places = [(rng.uniform(0, 30), rng.uniform(0, 20)) for _ in range(SLOTS)]
        delays = [[5.0 + abs(a - c) + abs(b - d) / 4 for c, d in places] for a, b in places]
        self._network = Emulator([rng.uniform(20, 50) for _ in places], delay=delays, loss=_LOSS, offload=False)
        self._network.__enter__()

    def end(self) -> None:
        """Kill whoever is left, and take the network down."""
        super().end()
        self._network.__exit__(None, None, None)

    def _where(self, cluster: str) -> dict[str, Any]:
        node = self.slots[cluster]
        return {
            "preset": "wan",
            "host": self._network.address(node),
            "network": self._network.paths()[node],
        }

    def _cut(self, one: str, other: str) -> None:
        self._network.tell(f"cut {self.slots[one]} {self.slots[other]}")

    def _heal(self, one: str, other: str) -> None:
        self._network.tell(f"heal {self.slots[one]} {self.slots[other]}")
