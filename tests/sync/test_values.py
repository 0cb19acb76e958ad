"""Which sets decide, and what values are on the wire."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest

from ictp2p.sync.validity import fault
from ictp2p.sync.values import (
    Value,
    genesis,
    quorum,
    upcoming,
)
from tests.sync.decided import ABORT, APART, COMMIT, LINEAGE, OPEN, VOTERS, A, B, C, peers


@pytest.mark.parametrize("size", range(1, 8))
def test_any_two_quorums_intersect(size: int) -> None:
    voters = peers(size)
    subsets = [frozenset(s) for n in range(size + 1) for s in combinations(voters, n)]
    quorums = [s for s in subsets if quorum(voters, s)]
    assert all(a & b for a in quorums for b in quorums)
    assert all(quorum(voters, s) for s in subsets if 2 * len(s) > size)


@pytest.mark.parametrize("size", [2, 4, 6])
def test_exactly_half_decides_with_the_first_voter_and_not_without(size: int) -> None:
    voters = peers(size)
    assert quorum(voters, voters[: size // 2])
    assert not quorum(voters, voters[size // 2 :])


def test_strangers_do_not_count_towards_a_quorum() -> None:
    assert not quorum((A,), (B, C))
    assert not quorum((), (A,))


@pytest.mark.parametrize("value", [VOTERS, OPEN, COMMIT, ABORT, APART, genesis(LINEAGE, A)])
def test_values_survive_the_wire_and_keep_their_kind(value: Value) -> None:
    assert fault(value) is None
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=Value) == value


def test_the_chain_counts_rounds_and_attempts() -> None:
    assert upcoming(genesis(LINEAGE, A)) == (1, 1)
    assert upcoming(OPEN) == (7, 2)
    assert upcoming(ABORT) == (7, 3)
    assert upcoming(COMMIT) == (8, 1)


@pytest.mark.parametrize("field", [b"\x93\x01\x02\x03", msgspec.msgpack.encode([9, LINEAGE]), b"\xc1", b""])
def test_garbage_does_not_decode(field: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.msgpack.decode(field, type=Value)
