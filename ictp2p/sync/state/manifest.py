"""What the global state consists of, in words and in digests, so that it can be compared, agreed and fetched.

A manifest lists the tensors (name, dtype, shape), the settings that every worker must share, a few counters, and the
SHA-256 digest of every chunk of the bytes. The digest of the manifest's own bytes is *the* digest of the state: a
two-level Merkle tree (Merkle, 1987), wide enough that a manifest stays at 32 bytes per mebibyte of state. Whoever
knows the 32 agreed bytes can check a manifest from anyone, then every chunk from anyone.

Because the words are inside, two workers that disagree can be told *what* differs, and not only that something does.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from typing import Annotated

import msgspec

from ictp2p.errors import ConfigError, StateError
from ictp2p.wire import MALFORMED

CHUNK = 1024 * 1024
"""Bytes per chunk: what is asked for, checked and asked for again as one."""
DIGEST = 32
"""Bytes per digest."""
ALIGN = 64
"""Every tensor starts at a multiple of this many bytes."""
ITEM_BYTES = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
"""Bytes per element of the dtypes that a state may hold."""

_NAME = 1024
"""Characters of a name, or of a setting, at most."""
_DIMENSIONS = 16
_WIDTH = 2**48
"""More than a dimension may be."""
_SHOWN = 60
"""Characters of a name that is too long, for people to know it by."""
_Dimension = Annotated[int, msgspec.Meta(ge=0, lt=_WIDTH)]
_Name = Annotated[str, msgspec.Meta(max_length=_NAME)]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One tensor of the state."""

    name: _Name
    dtype: _Name
    shape: Annotated[tuple[_Dimension, ...], msgspec.Meta(max_length=_DIMENSIONS)]

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """A state's table of contents."""

    entries: tuple[Entry, ...]
    settings: tuple[tuple[_Name, _Name], ...]
    """What must be equal on every worker: (name, value), in words."""
    counters: tuple[tuple[_Name, Annotated[int, msgspec.Meta(ge=0, lt=2**62)]], ...]
    """Numbers that are part of the state, such as the outer round."""
    chunks: bytes
    """The chunks' digests, one after the other."""

    def encode(self) -> bytes:
        """Its bytes: the same everywhere for the same content."""
        return msgspec.msgpack.encode(self)

    def chunk_digest(self, index: int) -> bytes:
        """The digest of one chunk."""
        return self.chunks[index * DIGEST : (index + 1) * DIGEST]

    @property
    def size(self) -> int:
        """Bytes of the state."""
        return extent(self.entries)

    @property
    def count(self) -> int:
        """Number of chunks."""
        return len(self.chunks) // DIGEST

    def chunk_range(self, index: int) -> tuple[int, int]:
        """First byte of a chunk, and the one behind its last."""
        return index * CHUNK, min((index + 1) * CHUNK, self.size)


def check(entries: Sequence[Entry], settings: Sequence[tuple[str, str]] = ()) -> None:
    """See that whoever is sent a manifest of these will read it: nobody could have a state that only we understand.

    Raises:
        ConfigError: it would be refused; what is to blame is named.
    """
    for words in itertools.chain((each.name for each in entries), *settings):
        _check_words(words)
    for each in entries:
        what = f"tensor {each.name!r} of the shared state"
        if each.dtype not in ITEM_BYTES:
            raise ConfigError(f"{what} has type {each.dtype}, which cannot be sent")
        if len(each.shape) > _DIMENSIONS:
            raise ConfigError(f"{what} has {len(each.shape)} dimensions, of which {_DIMENSIONS} can be shared")
        if max(each.shape, default=0) >= _WIDTH:
            raise ConfigError(f"{what} has a dimension of {max(each.shape)}, too large to be shared")


def _check_words(words: str) -> None:
    if len(words) > _NAME:
        start = f"{words[:_SHOWN]!r}..."
        raise ConfigError(
            f"a name or setting of the shared state has {len(words)} characters, more than {_NAME}: {start}"
        )
    try:
        words.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"the name or setting {words!r} of the shared state cannot be encoded in UTF-8") from None


def read(data: bytes) -> Manifest:
    """Read a manifest that has still to be checked against what was agreed.

    Raises:
        StateError: the bytes make no sense.
    """
    try:
        manifest = msgspec.msgpack.decode(data, type=Manifest)
    # Text that is no UTF-8 is not msgspec's own error.
    except MALFORMED as error:
        raise StateError(f"manifest does not decode: {error}") from error
    unknown = next((e for e in manifest.entries if e.dtype not in ITEM_BYTES), None)
    if unknown is not None:
        raise StateError(f"manifest names an unknown dtype {unknown.dtype!r} for {unknown.name!r}")
    if len(manifest.chunks) != DIGEST * math.ceil(manifest.size / CHUNK):
        raise StateError(f"manifest has {len(manifest.chunks)} bytes of digests for {manifest.size} bytes of state")
    return manifest


def by_content(manifest: Manifest) -> bytes:
    """Name a state of which everybody holds the same bytes."""
    return digest_of(manifest.encode())


def by_rounds(manifest: Manifest) -> bytes:
    """Name a state of which each cluster holds its own content, from the first round on (`own.OwnState`)."""
    begun = dict(manifest.counters).get("round", 0)
    return by_content(msgspec.structs.replace(manifest, chunks=b"") if begun else manifest)


def by_deeds(manifest: Manifest) -> bytes:
    """Name a state of which clusters hold other tensors as well (`own.PathState`)."""
    return by_content(msgspec.structs.replace(manifest, entries=(), chunks=b""))


def is_of_a_training(manifest: Manifest, digest: bytes) -> bool:
    """Whether some training, whichever it is, agrees on this as `digest`: what it says of itself may be believed."""
    return any(naming(manifest) == digest for naming in (by_content, by_rounds, by_deeds))


def digest_of(data: bytes | memoryview) -> bytes:
    """SHA-256: processors have instructions for it, and so it takes half of what BLAKE2b takes."""
    return hashlib.sha256(data).digest()


def offsets(entries: Sequence[Entry]) -> tuple[int, ...]:
    """First byte of each tensor."""
    ends = itertools.accumulate(entries, lambda end, entry: end + _aligned(entry.nbytes), initial=0)
    return tuple(ends)[:-1]


def extent(entries: Sequence[Entry]) -> int:
    """Bytes of all tensors together, padding included."""
    return sum(_aligned(entry.nbytes) for entry in entries)


def describe(entries: Sequence[Entry], settings: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Everything two workers must have in common, as (item, value) lines."""
    return (*settings, *((f"tensor {e.name}", str(e)) for e in entries))


def config_digest(items: Sequence[tuple[str, str]]) -> bytes:
    """One digest for all of `describe`, small enough to stand in every message."""
    return digest_of(msgspec.msgpack.encode(list(items)))


def difference(mine: Sequence[tuple[str, str]], theirs: Sequence[tuple[str, str]]) -> str | None:
    """Name the first item in which two descriptions differ, or None."""
    for ours, other in itertools.zip_longest(mine, theirs):
        if ours == other:
            continue
        if ours is None or (other is not None and ours[0] != other[0] and other[0] not in dict(mine)):
            return f"{other[0]}: {other[1]} there, none here"
        if other is None or other[0] != ours[0]:
            there = dict(theirs).get(ours[0])
            if there is None:
                return f"{ours[0]}: {ours[1]} here, none there"
            return f"{ours[0]}: stands elsewhere in the order there"
        return f"{ours[0]}: {ours[1]} here, {other[1]} there"
    return None


def _aligned(count: int) -> int:
    return -(-count // ALIGN) * ALIGN
