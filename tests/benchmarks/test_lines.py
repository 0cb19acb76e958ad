"""Which clusters reach each other while lines are cut, against a model: the closure of the relation."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chaos.lines import Lines

CLUSTERS = "abcdef"
PAIRS = list(itertools.combinations(CLUSTERS, 2))


def reached(whole: set[tuple[str, str]], start: str) -> set[str]:
    found = {start}
    for _ in CLUSTERS:
        found |= {far for pair in whole for near, far in (pair, pair[::-1]) if near in found}
    return found


@given(st.lists(st.sampled_from(PAIRS)), st.data())
def test_a_part_holds_whoever_is_reached_directly_or_over_others(
    cuts: list[tuple[str, str]], data: st.DataObject
) -> None:
    lines, standing = Lines(), dict.fromkeys(PAIRS, 0)
    for one, other in cuts:
        assert lines.cut(*data.draw(st.permutations((one, other)))) == (not standing[one, other])
        standing[one, other] += 1
    for one, other in data.draw(st.permutations(cuts))[: len(cuts) // 2]:
        standing[one, other] -= 1
        assert lines.heal(one, other) == (not standing[one, other])
    whole = {pair for pair in PAIRS if not standing[pair]}
    parts = lines.parts(CLUSTERS)
    assert sorted(name for part in parts for name in part) == list(CLUSTERS)
    assert all(reached(whole, name) == part for part in parts for name in part)
