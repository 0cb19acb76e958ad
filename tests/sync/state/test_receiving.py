"""What of a state is here already, and what has to be fetched."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ictp2p.errors import StateError
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import CHUNK, Entry
from tests.sync.state.resident import resident
from tests.sync.state.states import HUGE, NAMES, WIDE, filled, receive, whole


def test_another_peer_rebuilds_it_chunk_by_chunk_and_resumes() -> None:
    source, joiner = filled(1), filled(2)
    manifest = source.manifest(source.digest)
    missing = joiner.expect(manifest, source.digest)
    assert missing == [0, 1]
    joiner.take(0, memoryview(source.chunk(source.digest, 0)))
    assert joiner.expect(manifest, source.digest) == [1], "what has arrived is not asked for again"
    with pytest.raises(StateError, match="chunk 1 of state version 9"):
        joiner.verified(9)
    assert joiner.version == 1
    joiner.take(1, memoryview(source.chunk(source.digest, 1)))
    joiner.verified(9)
    assert (joiner.version, joiner.digest, joiner.counters) == (9, source.digest, {"round": 0})
    assert torch.equal(joiner.committed["w"], source.committed["w"])
    assert joiner.manifest(source.digest) == manifest, "and it provides it in turn"


def test_the_state_before_a_received_one_is_given_back() -> None:
    layers = [Entry(name, "float32", (CHUNK,)) for name in "abcdefgh"]
    states = [GlobalState(layers) for _ in range(2)]
    for number, state in enumerate(states):
        for tensor in state.begin().values():
            tensor.fill_(number)
        state.seal({})
        state.commit(1)
    source, newcomer = states
    for index in newcomer.expect(source.manifest(source.digest), source.digest):
        newcomer.take(index, memoryview(source.chunk(source.digest, index)))
    newcomer.verified(2)
    assert newcomer.former["a"][0].item() == 1
    assert resident(newcomer.memory(committed=False)) >= 8 * 4 * CHUNK
    newcomer.release()
    assert resident(newcomer.memory(committed=False)) <= HUGE
    newcomer.begin({"c"})["c"].fill_(7)
    newcomer.seal({})
    newcomer.commit(3)
    assert [newcomer.committed[name][0].item() for name in "abcdefgh"] == [0, 0, 7, 0, 0, 0, 0, 0]


def test_what_is_here_already_is_not_asked_for() -> None:
    state = whole({e.name: torch.ones(e.shape) for e in WIDE})
    for number, name in enumerate("ab", 2):  # the memory of the first fragment is given back
        state.begin({name})[name].fill_(number)
        state.seal({})
        state.commit(number)
    ahead = {**{name: tensor.clone() for name, tensor in state.committed.items()}, "d": torch.zeros(WIDE[3].shape)}
    source = whole(ahead)
    missing = state.expect(source.manifest(source.digest), source.digest)
    assert missing == [3, 4]
    for index in missing:
        state.take(index, memoryview(source.chunk(source.digest, index)))
    state.verified(9)
    assert all(torch.equal(state.committed[name], tensor) for name, tensor in ahead.items())


STEPS = st.sampled_from(["begin", "seal", "commit", "rollback", "release", "broken off", "received", "overwritten"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(STEPS, NAMES, st.integers(0, 3)), max_size=12), NAMES, st.integers(0, 5))
@example([("begin", {"a"}, 2), ("seal", {"a"}, 0), ("commit", {"a"}, 0), ("begin", {"a"}, 3)], {"d"}, 0)
@example([("begin", {"a"}, 2), ("seal", {"a"}, 0), ("commit", {"a"}, 0), ("overwritten", {"a"}, 3)], {"d"}, 0)
def test_whatever_came_before_only_what_is_here_is_taken_for_it(
    steps: list[tuple[str, set[str], int]], differing: set[str], broken: int
) -> None:
    """Nothing is hashed to say what need not be fetched; it is enough to fetch the rest, though."""
    state = whole({e.name: torch.ones(e.shape) for e in WIDE})
    for number, (step, names, value) in enumerate(steps, 2):
        match step:
            case "begin":
                written = state.begin(names)
                for name in names:
                    written[name].fill_(value)
            case "seal":
                state.seal({"round": value})
            case "commit" if state.sealed:
                state.commit(number)
            case "rollback":
                state.rollback()
            case "release":
                state.release()
            case "overwritten":
                for tensor in state.tentative.values():
                    tensor.fill_(value)
            case "broken off" | "received":
                tensors = {name: tensor.clone() for name, tensor in state.committed.items()}
                receive(state, tensors | {n: torch.full_like(tensors[n], value) for n in names}, None, broken)
                if step == "received" and broken == 5:  # as many as there are
                    state.verified(number)
    receive(state, {e.name: torch.full(e.shape, 2.0 if e.name in differing else 1.0) for e in WIDE}, 99)
    assert [state.committed[e.name][0].item() for e in WIDE] == [2.0 if e.name in differing else 1.0 for e in WIDE]


def test_what_is_here_already_is_known_without_hashing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    state = whole({e.name: torch.ones(e.shape) for e in WIDE})
    source = whole({e.name: torch.full(e.shape, 2.0 if e.name == "d" else 1.0) for e in WIDE})
    manifest = source.manifest(source.digest)
    monkeypatch.setattr("ictp2p.sync.state.halves.digest_of", lambda _: pytest.fail("a chunk was hashed"))
    assert state.expect(manifest, source.digest) == [3, 4]
    state.take(3, memoryview(source.chunk(source.digest, 3)))
    assert state.expect(manifest, source.digest) == [4]


def test_what_was_written_over_behind_our_back_is_fetched_again() -> None:
    state, ahead = (whole({e.name: torch.ones(e.shape) for e in WIDE}) for _ in range(2))
    state.begin()["a"].fill_(2.0)
    ahead.begin()["a"].fill_(2.0)
    ahead.seal({})
    ahead.commit(2)
    state.seal({})
    state.memory(committed=False)[7] ^= 1
    manifest = ahead.manifest(ahead.digest)
    assert state.expect(manifest, ahead.digest) == []
    with pytest.raises(StateError, match="chunk 0 of state version 2"):
        state.verified(2)
    assert state.expect(manifest, ahead.digest) == [0]
    state.take(0, memoryview(ahead.chunk(ahead.digest, 0)))
    state.verified(2)
