from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.probe import Relays, Rota


@given(st.integers(1, 20), st.integers(0, 2**32))
def test_everybody_comes_up_once_per_round(size: int, seed: int) -> None:
    rota = Rota(random.Random(seed))
    names = [f"m{i}" for i in range(size)]
    for _ in range(3):
        assert sorted(rota.next(lambda: list(names), lambda _n: True) for _ in names) == sorted(names)  # type: ignore[type-var]


def test_whoever_is_gone_is_skipped_and_nobody_is_none() -> None:
    rota = Rota(random.Random(0))
    for name in "abc":
        rota.insert(name)
    rota.insert("a")
    assert {rota.next(list, lambda n: n != "b") for _ in range(2)} == {"a", "c"}
    assert rota.next(list, lambda _n: True) is None or rota.next(list, lambda _n: True) is None


def test_a_newcomer_is_probed_in_the_current_round() -> None:
    for seed in range(20):
        rota = Rota(random.Random(seed))
        old = ["a", "b", "c"]
        rota.next(old.copy, lambda _n: True)
        rota.insert("new")
        assert "new" in {rota.next(old.copy, lambda _n: True) for _ in range(3)}


def test_relays_tell_of_silence_once_and_end() -> None:
    relays = Relays()
    assert relays.open(1, "a", 9, 1.0, now=0.0)
    assert relays.silent(0.5) == []
    assert [r.number for r in relays.silent(0.8)] == [9]
    assert relays.due() == 1.8
    assert relays.silent(1.8) == []
    assert len(relays) == 0
    assert relays.answered(1) is None
