"""A state of which each cluster has its own content, under one name."""

from __future__ import annotations

import itertools

import pytest
import torch

from ictp2p.errors import MeshMismatch, StateError
from ictp2p.sync.state.global_state import GlobalState, entry
from ictp2p.sync.state.own import Name, OwnState, PathState


class TestOwnState:
    def make(self, value: float) -> OwnState:
        state = OwnState([entry("w", torch.zeros(4))])
        state.begin()["w"].fill_(value)
        return state

    def test_the_name_covers_the_content_until_the_first_round_and_then_what_was_done(self) -> None:
        one, other = self.make(1.0), self.make(2.0)
        assert one.seal({"round": 0}) != other.seal({"round": 0})
        assert one.seal({"round": 1}) == other.seal({"round": 1})
        assert one.seal({"round": 2}) != other.seal({"round": 1})
        assert one.next_contents != other.next_contents

    def test_a_manifest_of_another_round_is_refused(self) -> None:
        one, other = self.make(1.0), self.make(2.0)
        one.seal({"round": 3})
        one.commit(4)
        with pytest.raises(StateError, match="agreed is"):
            other.expect(one.manifest(one.digest), b"?" * 32)

    def test_a_name_alone_leaves_the_content_as_it_is(self) -> None:
        one, other = self.make(1.0), self.make(2.0)
        for state, number in ((one, 3), (other, 2)):
            state.seal({"round": number})
            state.commit(number + 1)
        name = Name(other)
        assert name.expect(one.manifest(one.digest), one.digest) == []
        name.verified(one.version)
        assert (other.version, other.digest, other.counters) == (4, one.digest, {"round": 3})
        assert other.committed["w"].tolist() == [2.0] * 4
        with pytest.raises(StateError, match="not asked for"):
            name.take(0, memoryview(b""))


KINDS = (GlobalState, OwnState, PathState)


@pytest.mark.parametrize("round_", [0, 3])
@pytest.mark.parametrize(("ours", "theirs"), [*itertools.product(KINDS, KINDS)])
def test_who_trains_by_another_policy_is_told_whatever_its_states_are_named_by(
    ours: type[GlobalState], theirs: type[GlobalState], round_: int
) -> None:
    """Regression: whose states are named by another rule took the manifest for a forged one, and asked for ever."""
    trainings = (ours, "this"), (ours, "that"), (theirs, "that")
    here, same, there = (kind([entry("w", torch.zeros(4))], [("policy", word)]) for kind, word in trainings)
    there.seal({"round": round_})
    there.commit(round_ + 1)
    encoded = there.manifest(there.digest)
    with pytest.raises(MeshMismatch, match="policy: this here, that there"):
        here.expect(encoded, there.digest)
    for state in (here, same):
        with pytest.raises(StateError, match="agreed is"):
            state.expect(encoded, b"?" * 32)
    if same._name(there.incoming) == there.digest:
        assert same.same_training(encoded, there.digest) == there.incoming
    else:
        with pytest.raises(StateError, match="agreed is"):
            same.expect(encoded, there.digest)
