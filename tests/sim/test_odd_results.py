"""Training programs of which one computes other results, or is late under a schedule: no step lasts for ever."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.errors import MeshMismatch
from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.two_level.policy import Policy
from sim import World
from sim.training import Program, Training

STEP = 0.1
LONG = 40.0
"""Seconds: beyond every straggler timeout here."""


class Odd(Nesterov):
    """Says of itself what all others do, and computes something else, as another version of torch might."""

    odd = False

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step()
        if self.odd:
            for param in self.param_groups[0]["params"]:
                param.data.mul_(1.0001)


def fitting(policy: type[Policy], odd: str = "", late: str = "", **options: Any) -> Program:
    """Clusters in `odd` compute other results from version 3 on; those in `late` are, once, by then."""

    def program(training: Training) -> Any:
        torch.manual_seed(7)
        model = torch.nn.Linear(8, 8)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        outer = Odd(model.parameters())
        noise = torch.Generator().manual_seed(ord(training.host.cluster))
        waits, longest = training.host.cluster in late, 0.0
        with policy(training, model, inner, outer, **options) as kept:
            while kept.progress.step < 60:
                outer.odd = training.host.cluster in odd and kept.version >= 3
                model(torch.randn(4, 8, generator=noise)).square().mean().backward()
                training.compute(LONG if waits and kept.version == 3 else STEP)
                waits = waits and kept.version < 3
                began = training.clock()
                try:
                    inner.step()
                except MeshMismatch as error:
                    return str(error)
                longest = max(longest, training.clock() - began)
                inner.zero_grad()
            return kept.digest(), kept.version, kept.rounds, longest

    return program


def played(program: Program, clusters: str, workers: int = 1) -> dict[str, Any]:
    with World(seed=3, profile="lan") as world:
        world.links(delay=0.001, bandwidth=1e8)
        for name in clusters:
            world.cluster(name, workers=workers, program=program)
        return dict(world.train(within=600.0))


@pytest.mark.parametrize("odd", ["a", "b"])
@pytest.mark.parametrize(
    ("policy", "options"),
    [(ictp2p.DiLoCo, {"sync_every": 5}), (ictp2p.StreamingDiLoCo, {"sync_every": 5, "fragments": 1, "overlap": 2})],
)
def test_all_workers_of_an_odd_cluster_are_told_and_the_others_go_on_together(
    policy: type[Policy], options: dict[str, Any], odd: str
) -> None:
    """Regression: where it was the coordinator's, it went on alone, and those that agreed with each other hung."""
    results = played(fitting(policy, odd=odd, **options), "abc", workers=2)
    told = {name: result for name, result in results.items() if isinstance(result, str)}
    assert set(told) == {f"{odd}/0", f"{odd}/1"}
    assert all("3 rounds in a row were decided without cluster" in text for text in told.values())
    rest = [result for name, result in results.items() if name not in told]
    assert len({digest for digest, *_ in rest}) == 1
    assert min(version for _, version, *_ in rest) >= 8
    assert max(longest for *_, longest in rest) < LONG


@pytest.mark.parametrize("late", ["a", "b"])
def test_a_cluster_that_was_late_under_a_schedule_is_in_the_next_round(late: str) -> None:
    """Regression: it set the rate of a round by a version that its loop had not seen, and fell behind for good."""
    schedule = lambda rounds: 0.9**rounds  # noqa: E731
    results = played(fitting(ictp2p.DiLoCo, late=late, sync_every=5, outer_schedule=schedule), "abc")
    assert max(longest for *_, longest in results.values()) < LONG
    others = [result for name, result in results.items() if name[0] != late]
    assert len({digest for digest, *_ in others}) == 1
    assert min(rounds for *_, rounds, _ in results.values()) >= 11
