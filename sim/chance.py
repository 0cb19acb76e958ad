"""Chance that depends on what is drawn, not on what was drawn before.

Every sample is a hash of the seed, of the question (who, to whom, what) and of how often it was asked. Removing one
fault or one message therefore leaves all other draws as they were, which is what lets a failing run be shrunk
(counter-based generators: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import defaultdict


class Chance:
    """All randomness of one world.

    Args:
        seed: any integer; equal seeds give equal worlds.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._key = hashlib.blake2b(str(seed).encode(), digest_size=32, person=b"ictp2p chance").digest()
        self._asked: defaultdict[tuple[str, ...], int] = defaultdict(int)

    def uniform(self, *question: str) -> float:
        """A number in [0, 1)."""
        number = self._asked[question]
        self._asked[question] = number + 1
        text = "\0".join((*question, str(number))).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=self._key).digest(), "big") / 2**64

    def exponential(self, mean: float, *question: str) -> float:
        """A number from the exponential distribution."""
        return -mean * math.log(1.0 - self.uniform(*question)) if mean > 0 else 0.0

    def happens(self, probability: float, *question: str) -> bool:
        """Whether something of this probability happens; certainties draw nothing."""
        return probability > 0 and self.uniform(*question) < probability

    def generator(self, *name: str) -> random.Random:
        """A generator of its own for somebody, the same for the same name."""
        text = "\0".join(name).encode()
        return random.Random(hashlib.blake2b(text, digest_size=16, key=self._key).digest())
