"""Real text that every CPython installation already holds: nothing to download, nothing to license.

The documents are the help topics of `pydoc` and the modules at the top of the standard library, about five
megabytes of English and Python. They are dealt out in the order of their names' hashes, so that each shard gets
its mix of both kinds, and so that a shard is the same in every process of one Python version: the deal needs no
communication. One document in `HELD_OUT` goes to no shard at all; the validation loss is measured on these.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from pydoc_data.topics import topics

from ictp2p.errors import ConfigError

HELD_OUT = 16
"""One document in this many is kept for validation, in none of the shards."""

_SMALLEST = 64 * 1024
"""Bytes. A shard below this would be learned by heart within the demo; the installation must be a stripped one."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Disjoint pieces of the text."""

    shards: tuple[bytes, ...]
    """What each cluster trains on."""
    validation: bytes
    """What no cluster trains on."""


def load(shards: int) -> Corpus:
    """Deal the text to `shards` clusters.

    Raises:
        ConfigError: this Python has too little source text installed to deal out.
    """
    dealt: list[list[bytes]] = [[] for _ in range(shards)]
    validation: list[bytes] = []
    for index, text in enumerate(text for _, text in sorted(documents(), key=_shuffled)):
        group, place = divmod(index, HELD_OUT)
        if place == 0:
            validation.append(text)
        else:
            dealt[(group * (HELD_OUT - 1) + place - 1) % shards].append(text)
    corpus = Corpus(tuple(b"\n".join(shard) for shard in dealt), b"\n".join(validation))
    smallest = min(len(piece) for piece in (*corpus.shards, corpus.validation))
    if smallest < _SMALLEST:
        raise ConfigError(
            f"{shards} shards of this Python's own text leave only {smallest} bytes in one of them: at least "
            f"{_SMALLEST} are needed, and {_library()} holds no more source"
        )
    return corpus


def documents() -> Iterator[tuple[str, bytes]]:
    """Name and text of every document, in no particular order."""
    for name, text in topics.items():
        yield f"topic/{name}", text.encode()
    for path in _library().glob("*.py"):
        yield f"source/{path.name}", path.read_bytes()


def _shuffled(document: tuple[str, bytes]) -> tuple[bytes, str]:
    name = document[0]
    return blake2b(name.encode(), digest_size=8).digest(), name


def _library() -> Path:
    return Path(sysconfig.get_path("stdlib"))
