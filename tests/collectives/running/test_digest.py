"""The digest of a result: the same however it arrived, and of what is there now."""

from __future__ import annotations

import hashlib
import itertools
from unittest.mock import patch

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.collectives.running import digest
from ictp2p.collectives.running.digest import EMPTY, ResultDigest, result_digest

SMALL = 16
"""A block's bytes, in these tests."""


def defined(data: bytes) -> bytes:
    """The definition, written down once more."""
    mac = AESGCM(b"ictp2p: a result")
    leaves = [mac.encrypt(bytes(12), b"", data[at : at + SMALL]) for at in range(0, len(data), SMALL)]
    return hashlib.sha256(len(data).to_bytes(8, "big") + b"".join(leaves)).digest()


def cut(data: bytes, ends: list[int]) -> list[tuple[int, int]]:
    bounds = sorted({0, len(data), *(end % (len(data) + 1) for end in ends)})
    return list(itertools.pairwise(bounds))


@given(st.binary(max_size=100), st.lists(st.integers(0, 100)), st.lists(st.integers(0, 100)), st.randoms())
def test_neither_the_order_of_arrival_nor_the_cuts_matter(data: bytes, wire: list[int], memory: list[int], rng) -> None:
    with patch.object(digest, "BLOCK", SMALL):
        found = ResultDigest([memoryview(data)[a:b] for a, b in cut(data, memory)])
        arriving = cut(data, wire)
        rng.shuffle(arriving)
        for start, stop in arriving[: rng.randint(0, len(arriving))]:  # what is not told of was there all the time
            found.arrived(start, stop)
        assert found.digest() == defined(data)


@given(st.binary(min_size=1, max_size=50), st.data())
def test_a_bit_or_a_byte_more_is_another_digest(data: bytes, draw: st.DataObject) -> None:
    with patch.object(digest, "BLOCK", SMALL):
        at, bit = draw.draw(st.integers(0, len(data) - 1)), draw.draw(st.integers(0, 7))
        other = bytearray(data)
        other[at] ^= 1 << bit
        strange = [bytes(other), data + b"\0", data[:-1], b"\0" + data]
        assert result_digest(memoryview(data)) not in {result_digest(memoryview(each)) for each in strange}


def test_a_block_is_hashed_as_soon_as_it_is_whole_and_anew_in_the_next_attempt() -> None:
    with patch.object(digest, "BLOCK", SMALL):
        data = bytearray(3 * SMALL)
        found, before = ResultDigest([memoryview(data)]), bytes(data)
        found.arrived(0, SMALL)
        found.arrived(SMALL, SMALL + 1)
        data[0] = data[SMALL] = 1
        assert found.digest() == defined(before[:SMALL] + bytes(data)[SMALL:])
        found.restart()
        found.arrived(0, 3 * SMALL)
        assert found.digest() == defined(bytes(data))


def test_of_nothing_nothing_arrives() -> None:
    nothing = ResultDigest([])
    nothing.arrived(0, 100)
    assert nothing.digest() == EMPTY == result_digest(memoryview(b"")) != result_digest(memoryview(b"\0"))


def test_elements_of_any_type_are_bytes() -> None:
    words = memoryview(bytes(range(64))).cast("I")
    assert result_digest(words) == result_digest(memoryview(bytes(range(64))))
