"""A state of which each cluster has its own content, under one name."""

from __future__ import annotations

import pytest
import torch

from ictp2p.errors import StateError
from ictp2p.sync.state.global_state import entry
from ictp2p.sync.state.own import Name, OwnState


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
        with pytest.raises(StateError, match="named"):
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
