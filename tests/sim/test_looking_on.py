"""Meshes some of whose clusters look on: after each round everybody holds the same, whoever trains how fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ictp2p
from ictp2p.sync.two_level.policy import Policy
from sim import World
from sim.training import Training

PHASE = 4
KINDS: dict[str, tuple[Callable[..., Policy], dict[str, Any]]] = {
    "diloco": (ictp2p.DiLoCo, {"sync_every": PHASE}),
    "adaptive": (lambda *given: ictp2p.DiLoCo(*given, None, ictp2p.AdaptivePace(PHASE, least=2, most=8)), {}),
    "streaming": (
        ictp2p.StreamingDiLoCo,
        {"sync_every": PHASE, "fragments": [["weight"], ["bias"]], "overlap": 1, "mix": 0.5},
    ),
    "eager": (ictp2p.EagerDiLoCo, {"sync_every": PHASE}),
    "sparse": (ictp2p.SparseDiLoCo, {"sync_every": PHASE, "chunk": 64, "keep": 3, "codec": "none"}),
    "async": (ictp2p.AsyncDiLoCo, {"clusters": 2, "sync_every": PHASE}),
    "pairs": (ictp2p.NoLoCo, {"sync_every": PHASE}),
    "modules": (ictp2p.DiPaCo, {"sync_every": PHASE}),
}
clusters = st.lists(
    st.tuples(st.sampled_from([0.0, 0.0, 1.0, 7.0]), st.sampled_from([0.1, 0.5])), min_size=2, max_size=4
)


@pytest.mark.parametrize("kind", KINDS)
@given(drawn=clusters, workers=st.integers(1, 2), seed=st.integers(0, 2**16))
@settings(max_examples=6)
def test_all_hold_one_state_after_each_round(
    kind: str, drawn: list[tuple[float, float]], workers: int, seed: int
) -> None:
    policy, options = KINDS[kind]

    def program(training: Training) -> dict[int, str]:
        weight, seconds = drawn["abcd".index(training.host.cluster)]
        torch.manual_seed(7)
        model = torch.nn.Linear(8, 8)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        noise = torch.Generator().manual_seed(ord(training.host.cluster))
        held = {}
        with policy(training, model, inner, **options) as kept:
            kept.weight = weight
            training.meet()
            while kept.version < 5:
                model(torch.randn(4, 8, generator=noise)).square().mean().backward()
                training.compute(seconds)
                inner.step()
                inner.zero_grad()
                held[kept.version] = kept.digest()
        return held

    with World(seed=seed, profile="lan") as world:
        world.links(delay=0.01, bandwidth=1e8)
        for name, _ in zip("abcd", drawn, strict=False):
            world.cluster(name, workers=workers, program=program)
        results = world.train(within=600.0)
    digests: dict[int, set[str]] = {}
    for held in results.values():
        assert max(held) >= 5  # in asynchronous rounds two may be landed in one step
        for version, digest in held.items():
            digests.setdefault(version, set()).add(digest)
    assert {version: len(found) for version, found in digests.items()} == dict.fromkeys(digests, 1)


@pytest.mark.parametrize("late", ["keep", "drop"])
def test_who_looks_on_has_nobody_miss_more_than_the_first_round(late: str) -> None:
    """Regression: it made rounds of its own in each phase of the others, who dropped all that they trained."""

    def program(training: Training) -> None:
        torch.manual_seed(7)
        model = torch.nn.Linear(8, 8)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        with ictp2p.DiLoCo(training, model, inner, sync_every=PHASE, late=late) as kept:
            looks_on = training.host.cluster == "c"
            kept.weight = 0.0 if looks_on else 1.0
            while kept.version < 7:
                model(torch.randn(4, 8)).square().mean().backward()
                training.compute(0.1 if looks_on else 15.0)
                inner.step()
                inner.zero_grad()

    with World(seed=5, profile="wan") as world:
        for name in "abc":
            world.cluster(name, workers=1, program=program)
        world.train(within=900.0)
        rounds = [commit.participants for commit in world.commits() if commit.participants]
        assert rounds[0] == ("c",), "it may begin before it knows of the others"
        assert rounds[2:6] == [("a", "b", "c")] * 4
