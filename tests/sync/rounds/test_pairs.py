from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.rounds.pairs import pairs
from ictp2p.types import ClusterId

NAMES = st.lists(st.text("abcdef-", min_size=1, max_size=8).map(ClusterId), unique=True, min_size=1, max_size=40)


@given(st.binary(max_size=64), NAMES)
def test_everybody_is_in_one_pair_and_at_most_one_is_alone(seed: bytes, names: list[ClusterId]) -> None:
    drawn = pairs(seed, names)
    assert sorted(itertools.chain(*drawn)) == sorted(names)
    assert [len(pair) for pair in drawn] == [2] * (len(names) // 2) + [1] * (len(names) % 2)
    for pair in drawn:
        assert [names.index(name) for name in pair] == sorted(names.index(name) for name in pair)


@given(st.binary(max_size=64), NAMES, st.randoms())
def test_everybody_draws_the_same_whatever_the_order(seed: bytes, names: list[ClusterId], rng: object) -> None:
    mixed = list(names)
    rng.shuffle(mixed)  # type: ignore[attr-defined]
    assert [set(pair) for pair in pairs(seed, mixed)] == [set(pair) for pair in pairs(seed, names)]


def test_every_pair_comes_about_equally_often() -> None:
    names = [ClusterId(name) for name in "abcd"]
    met = Counter(pair for seed in range(3000) for pair in pairs(seed.to_bytes(32, "little"), names))
    assert set(met) == set(itertools.combinations(names, 2))
    assert all(abs(count - 1000) < 150 for count in met.values())  # six deviations


def test_the_digest_of_the_state_decides() -> None:
    names = [ClusterId(f"cluster {n}") for n in range(10)]
    assert pairs(b"one", names) != pairs(b"another", names)
    assert pairs(b"one", names) == pairs(b"one", names)
