"""What a codec costs and saves, for choosing one: bytes on the wire against seconds of a core.

The speeds are constants: half of what `benchmarks/codecs.py` measured on one core of a server of 2024, chunks of a
mebibyte, memory cold. They are neither measured at start nor gossiped, because the choice hardly depends on them: a
codec pays below tens of Gbit/s, links between clusters have 0.01 to 10, and near the crossing, where a wrong figure
could mislead, both choices take equally long by definition. Halving errs towards float32, which rounds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ictp2p.errors import ConfigError, shown

ADD = 12e9
"""Float32 bytes per second that a core adds to others."""
CALL = 50e-6
"""Seconds of a core that encoding and decoding one chunk costs, however short."""
AUTO = "auto"
"""What to ask for to have the planner choose among `CHOICES`."""
CHOICES: Final = ("none", "bfloat16", "int8")
"""What the planner may choose by itself: what training at scale was shown not to notice. The others must be asked for:
they change the optimization (E3M0, top-k), or the range (float16)."""


@dataclass(frozen=True, slots=True)
class Price:
    """One scheme: bytes on the wire per float32 byte of each kind of chunk, and float32 bytes per second and core."""

    contribution: float = 1.0
    partial: float = 1.0
    result: float = 1.0
    encode: float = float("inf")
    decode: float = float("inf")
    add: float = ADD
    block: int = 1
    """Elements at whose multiples shares and chunks must begin."""
    sparse: bool = False
    """Partials and results grow with the number of participants, up to all elements."""

    @property
    def least(self) -> float:
        """The fewest bytes that any kind of chunk takes per float32 byte."""
        return min(self.contribution, self.partial, self.result)

    def among(self, participants: int) -> Price:
        """Give the price for so many participants."""
        if not self.sparse:
            return self
        summed = min(1.0, self.result * participants)
        return Price(self.contribution, summed, summed, self.encode, self.decode, self.add, self.block)

    def seconds(self, size: float, participants: int) -> float:
        """Give the seconds of a core that a participant needs for `size` float32 bytes, when each is a root of as much.

        It encodes its contributions to the others, adds theirs, encodes its result, and decodes all results.
        """
        others = (participants - 1) / participants
        return size * (others * (1 / self.encode + 1 / self.add) + 1 / participants / self.encode + 1 / self.decode)


PRICES: Final[Mapping[str, Price]] = {
    "none": Price(),
    "bfloat16": Price(0.5, 0.5, 0.5, encode=12e9, decode=12e9, add=8e9),
    "float16": Price(0.5, 0.5, 0.5, encode=12e9, decode=12e9, add=8e9),
    "int8": Price(258 / 1024, 0.5, 258 / 1024, encode=3.5e9, decode=8e9, add=7e9, block=256),
    "e3m0": Price(130 / 1024, 0.5, 130 / 1024, encode=2.4e9, decode=3.5e9, add=3.4e9, block=256),
    "topk": Price(1 / 64, 0.0, 6 / 256, encode=1.1e9, decode=5e9, add=4.5e9, block=4096, sparse=True),
    "topk2bit": Price(116 / 16384, 0.0, 6 / 256, encode=0.9e9, decode=4.2e9, add=3.4e9, block=4096, sparse=True),
}


def leaves_out(name: str) -> bool:
    """Whether most elements do not travel at all by `name`: without error feedback they are lost."""
    return name in PRICES and PRICES[name].sparse


def check_name(name: str) -> None:
    """Refuse what is no codec, nor `AUTO`.

    Raises:
        ConfigError: there is no such codec. Those that leave elements out are not named: few take them, and say so.
    """
    if not isinstance(name, str):
        raise ConfigError(f"codec {shown(name)} is not a name: use one such as 'none' or 'int8'")
    if name not in PRICES and name != AUTO:
        whole = (each for each in PRICES if not leaves_out(each))
        raise ConfigError(f"codec {shown(name)} is not known: use {', '.join(whole)} or {AUTO}")


def price(name: str, participants: int) -> Price:
    """Look up the price of the scheme `name`.

    Raises:
        ConfigError: there is no such codec.
    """
    if name not in PRICES:
        raise ConfigError(f"codec {shown(name)} is not known: use {', '.join(PRICES)}, {AUTO}")
    return PRICES[name].among(participants)
