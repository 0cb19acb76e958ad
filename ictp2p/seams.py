"""Where one peer touches the outside: what it asks for time and chance, dials and listens with, and writes to.

Whoever replaces these, as the simulator does, runs everything above them as it is. How connections are secured comes in
beside them, for it rests on the identity that the disk keeps.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from ictp2p.disk import Disk
from ictp2p.edge.network import Network


@dataclass(frozen=True, slots=True)
class Seams:
    """One peer's; the meaning of each is that of `AsyncPeer`'s argument."""

    network: Network
    clock: Callable[[], float]
    rng: random.Random
    random_bytes: Callable[[int], bytes]
    disk: Disk
