"""Policies over models that are sizes only: they take as long as the sizes that they stand for."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import ictp2p
from sim import World
from sim.elided_model import SizeOnlyWeights
from sim.training import Training

SIZE = 500_000
STEP = 0.1


def seconds_per_round(rate: float, between: int, **options: Any) -> float:
    """Virtual seconds from round to round at `rate` bytes per second, with two fragments of `SIZE` elements."""
    versions = []

    def program(training: Training) -> float:
        model = torch.nn.ModuleList(torch.nn.Linear(1, 1, bias=False) for _ in range(2))
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        arithmetic = functools.partial(SizeOnlyWeights, training.host.world, SIZE)
        fragments = [["0"], ["1"]]
        with ictp2p.StreamingDiLoCo(
            training, model, inner, sync_every=2 * between, fragments=fragments, arithmetic=arithmetic, **options
        ) as policy:
            training.meet()
            began = 0.0
            for step in range(4 * between):
                if step == 2 * between:
                    began = training.clock()
                training.compute(STEP)
                inner.step()
            versions.append(policy.version)
            return (training.clock() - began) / 2

    with World(seed=1, profile="lan") as world:
        world.links(delay=1e-5, bandwidth=rate)
        for name in "ab":
            world.cluster(name, workers=1, program=program)
        found = world.train(within=600.0)
    assert min(versions) >= 4
    return max(found.values())


@pytest.mark.parametrize(("codec", "width"), [("bfloat16", 2.0), ("e3m0", 0.508)])
def test_a_round_takes_as_long_as_its_bytes_whatever_they_would_have_held(codec: str, width: float) -> None:
    rate = SIZE * width / 0.5  # half a second each way, both at once
    assert seconds_per_round(rate, 5, overlap=0, codec=codec) == pytest.approx(5 * STEP + 0.5, rel=0.1)


def test_what_is_under_cover_of_training_takes_nothing() -> None:
    rate = SIZE * 2.0 / 0.25
    assert seconds_per_round(rate, 5, overlap=4, codec="bfloat16") == pytest.approx(5 * STEP, rel=0.02)
    assert seconds_per_round(rate / 4, 5, overlap=4, codec="bfloat16") == pytest.approx(STEP + 1.0, rel=0.1)
