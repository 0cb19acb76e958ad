"""What the ranks of a sharded model say to each other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.errors import LocalProtocolError, SiblingLost
from ictp2p.sync.cluster.siblings import Siblings, Standing, Step


class Scripted:
    """An exchange of which the other ranks' words are known."""

    def __init__(self, rank: int, others: list[bytes]) -> None:
        self.rank, self.size, self.others, self.said = rank, len(others) + 1, others, b""

    def all_gather(self, data: bytes) -> list[bytes]:
        self.said = data
        return [*self.others[: self.rank], data, *self.others[self.rank :]]


NAMES = ("due", "lands", "since", "leaves", "scheduled", "weight", "spent")
FIRST = dict(zip(NAMES, (False, False, 0, False, 0, 1.0, False), strict=True))


def said_before_a_step(**said: Any) -> bytes:
    exchange = Scripted(0, [])
    Siblings(exchange).step(**FIRST | said)
    return exchange.said


def said_at_a_boundary(standing: Standing, waited: float = 0.0) -> bytes:
    exchange = Scripted(0, [])
    Siblings(exchange).stand(standing, waited)
    return exchange.said


values = (
    st.booleans(),
    st.booleans(),
    st.integers(0, 9),
    st.booleans(),
    st.integers(0, 99),
    st.floats(0, 1e9),
    st.booleans(),
)
words = st.fixed_dictionaries(dict(zip(NAMES, values, strict=True)))


@given(st.lists(words, min_size=1, max_size=5))
def test_all_come_to_mean_the_same(said: list[dict[str, Any]]) -> None:
    spoken = [said_before_a_step(**each) for each in said]
    found: list[Step] = []
    for rank, each in enumerate(said):
        siblings = Siblings(Scripted(rank, [*spoken[:rank], *spoken[rank + 1 :]]))
        found.append(siblings.step(**each))
    assert len(set(found)) == 1
    last = min(range(len(said)), key=lambda rank: (said[rank]["since"], rank))
    assert found[0].due == said[last]["due"], "the word of whoever launched last counts"
    assert found[0].meets == (found[0].due or any(each["lands"] for each in said))
    assert found[0].leaves == any(each["leaves"] for each in said)
    assert found[0].scheduled == max(each["scheduled"] for each in said)
    counts = 0 if any(each["spent"] for each in said) else sum(each["weight"] for each in said)
    assert found[0].weight == counts, "FSDP's gradient is of the batches of all, or of no use to any"


def test_who_stops_is_named_to_all_others_and_not_to_itself() -> None:
    with pytest.raises(SiblingLost, match="rank 0 of this cluster"):
        Siblings(Scripted(1, [said_at_a_boundary(Standing.STOPS)])).stand(Standing.LANDED)
    with pytest.raises(SiblingLost, match="rank 0 of this cluster"):
        Siblings(Scripted(1, [said_at_a_boundary(Standing.STOPS)])).step(**FIRST)
    found = Siblings(Scripted(1, [said_at_a_boundary(Standing.LANDED)])).stand(Standing.STOPS)
    assert [standing for standing, _ in found] == [Standing.LANDED, Standing.STOPS]


def test_ranks_that_take_different_steps_are_told() -> None:
    steps = said_before_a_step(since=1)
    with pytest.raises(LocalProtocolError, match="0 takes another step, and another is at a round"):
        Siblings(Scripted(1, [steps])).stand(Standing.WAITS)


def test_all_hear_how_long_each_waited() -> None:
    found = Siblings(Scripted(1, [said_at_a_boundary(Standing.LANDED, 12.5)])).stand(Standing.LANDED, 0.25)
    assert found == [(Standing.LANDED, 12.5), (Standing.LANDED, 0.25)]


def test_shards_do_not_fit_each_other() -> None:
    assert Siblings(Scripted(1, [b""])).describe() == ("shard", "1 of 2")
