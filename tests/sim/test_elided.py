"""What travels as a size only is what a real transfer would have been."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.errors import MeshMismatch, StateError
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import CHUNK, Entry
from sim import World
from sim.elided import KEPT, SizeOnly, is_empty
from sim.faults import KillLeader, Restart

DIGESTS = ("digest", "error", "text")


def course(*, elide: bool) -> tuple[list[tuple[Any, ...]], World]:
    """Three clusters train two megabytes, a fourth one joins, a leader dies in a round and comes back."""
    with World(3, profile="wan", elide=elide) as world:
        world.links(delay=0.03, bandwidth=2e6)
        for n, name in enumerate("abcd"):
            workers, at = (2, 0.0) if name != "d" else (1, 12.0)
            world.cluster(name, workers=workers, compute=3.0 + n, elements=500_000, up=2e6, down=2e6, at=at)
        world.run_for(24.0)
        began = len(world.trace.entries)
        world.run_until(lambda: any(e.kind == "round_opened" for e in world.trace.entries[began:]), 20.0)
        world.run_for(0.5)
        world.inject(KillLeader("b"))
        world.after(8.0, Restart("b/0"))
        world.run_to(55.0)
        told = [
            (entry.at, entry.host, entry.kind, {k: v for k, v in entry.fields.items() if k not in DIGESTS})
            for entry in world.trace.entries
        ]
    return told, world


def test_sizes_take_the_same_course_as_bytes() -> None:
    (real, checked), (sizes, elided) = course(elide=False), course(elide=True)
    assert real == sizes
    assert checked.trace.deliveries == elided.trace.deliveries
    assert checked.internet.bytes_sent == elided.internet.bytes_sent
    assert checked.version() == elided.version() >= 4
    kinds = {kind for _, _, kind, _ in real}
    assert {"state_fetched", "round_aborted", "round_committed", "crash"} <= kinds


@given(st.integers(0, 300_000), st.integers(0, 300_000), st.integers(1, 255))
def test_only_zeros_are_nothing(size: int, at: int, value: int) -> None:
    data = bytearray(size)
    assert is_empty(data)
    if at < size:
        data[at] = value
        assert is_empty(memoryview(data)) == (at < KEPT)


@pytest.mark.parametrize("elements", [1, 16, CHUNK // 4, CHUNK // 4 + 1, 5 * CHUNK // 8])
def test_it_serves_what_a_state_of_zeros_serves(elements: int) -> None:
    real, sizes = (
        GlobalState([Entry("weights", "float32", (elements,))], [("a", "b")]),
        SizeOnly(elements, [("a", "b")]),
    )
    for state in (real, sizes):
        state.begin()
        state.seal({"round": 4})
        state.commit(4)
    assert real.digest == sizes.digest
    assert real.manifest(real.digest) == sizes.manifest(sizes.digest)
    chunks = [real.chunk(real.digest, index) for index in range(sizes.chunks)]
    assert chunks == [sizes.chunk(sizes.digest, index) for index in range(sizes.chunks)]
    with pytest.raises(StateError, match="does not exist"):
        sizes.chunk(sizes.digest, sizes.chunks)
    with pytest.raises(StateError, match="is gone"):
        sizes.chunk(b"\0" * 32, 0)


def test_it_receives_all_of_a_state_and_no_other_one() -> None:
    source, target = SizeOnly(CHUNK), SizeOnly(CHUNK)
    source.seal({"round": 1})
    source.commit(1)
    assert target.expect(source.manifest(source.digest), source.digest) == list(range(4))
    assert {len(target.destination(index)) for index in range(4)} == {CHUNK}
    target.verified(1)
    assert (target.version, target.digest, target.counters) == (1, source.digest, {"round": 1})
    assert torch.equal(target.committed["weights"], torch.zeros(1))
    with pytest.raises(MeshMismatch, match="weights"):
        SizeOnly(CHUNK + 1).expect(source.manifest(source.digest), source.digest)
