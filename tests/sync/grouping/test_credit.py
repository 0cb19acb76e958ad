from __future__ import annotations

from typing import Literal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.grouping.credit import credited
from ictp2p.sync.grouping.modules import NAME, Card, Held
from ictp2p.sync.grouping.pairs import pairs
from ictp2p.sync.values import Open, Participant, Spec, StateRef, advanced
from ictp2p.types import ClusterId, PeerId

NAMES = [ClusterId(name) for name in "abcdef"]
MODULES = b"XYZ"
HELD = st.lists(st.sets(st.sampled_from(MODULES)), min_size=1, max_size=len(NAMES))
"""Of each cluster, the modules that it trains."""


def leader(cluster: str) -> PeerId:
    return PeerId(cluster.encode().hex() * 16)


def opened(grouping: Literal["all", "pairs", "modules"], held: list[set[int]]) -> Open:
    cards = [Card(False, tuple(Held(bytes([m]) * 8, 5, 9) for m in sorted(modules))) for modules in held]
    notes = [msgspec.msgpack.encode({NAME: card.encode()}) for card in cards]
    parts = tuple(Participant(name, leader(name), 1, 1.0, note) for name, note in zip(NAMES, notes, strict=False))
    spec = Spec("sync", "it", "float32", 5, "avg", "none", b"", 1.0, 3.0, grouping)
    state = StateRef(4, b"agreed", (leader("a"),), tuple((name, 2) for name in NAMES))
    return Open(b"lineage.", (leader("a"),), state, leader("a"), 5, 1, spec, parts, b"", "", 1.0)


@given(HELD, st.sets(st.sampled_from(NAMES)))
def test_who_averages_with_all_is_credited_whoever_holds_the_result(held: list[set[int]], voted: set[str]) -> None:
    assert credited(opened("all", held), {leader(name) for name in voted}) == NAMES[: len(held)]


@given(HELD, st.sets(st.sampled_from(NAMES)))
def test_of_a_pair_one_has_to_hold_the_result(held: list[set[int]], voted: set[str]) -> None:
    names, begun = NAMES[: len(held)], opened("pairs", held)
    found = credited(begun, {leader(name) for name in voted})
    met = [pair for pair in pairs(begun.state.digest, names) if voted & set(pair)]
    assert sorted(found) == sorted(name for pair in met for name in pair)


@given(HELD, st.sets(st.sampled_from(NAMES)))
def test_each_module_that_one_trains_has_to_be_at_somebody_who_holds_the_result(
    held: list[set[int]], voted: set[str]
) -> None:
    """Regression: two whose exchange had failed were credited for a round of others, and dropped what they trained."""
    safe = {m for name, modules in zip(NAMES, held, strict=False) for m in modules if name in voted}
    found = credited(opened("modules", held), {leader(name) for name in voted})
    assert found == [name for name, modules in zip(NAMES, held, strict=False) if modules <= safe]


def test_who_is_not_credited_keeps_the_credit_that_it_had() -> None:
    state = advanced(opened("modules", [{1}, {1}, {2}]), b"next", (leader("c"),))
    assert state.credits[:3] == (("a", 2), ("b", 2), ("c", 5))
