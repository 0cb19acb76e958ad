"""Bytes of any length reach every worker of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ictp2p.sync.cluster.broadcasts import broadcast_bytes, stream
from tests.sync.cluster.healing import grouped


@pytest.mark.parametrize("sizes", [[0], [1], [0, 3, 0], [4 << 20], [(4 << 20) - 1, 2], [5, (9 << 20) + 1, 0, 7]])
def test_memory_streams_whole_whatever_its_pieces(make_world: Any, sizes: list[int]) -> None:
    def body(rank: int) -> Callable[[Any], list[bytes]]:
        def run(group: Any) -> list[bytes]:
            held = [bytearray((i * 7 + 1,) if rank else (0,)) * n for i, n in enumerate(sizes)]
            stream(group, [memoryview(h) for h in held], 1)
            return [bytes(h) for h in held]

        return run

    one, other = grouped(make_world, body(0), body(1))
    assert one == other


@pytest.mark.parametrize("data", [b"", b"x", b"y" * 100_000])
def test_bytes_of_any_length_reach_all(make_world: Any, data: bytes) -> None:
    found = grouped(make_world, lambda g: broadcast_bytes(g, b"other", 1), lambda g: broadcast_bytes(g, data, 1))
    assert found == [data, data]
