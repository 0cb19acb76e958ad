"""Of a state that was received, what of it another worker of the cluster has brought: that is not brought again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ictp2p.sync.cluster.progress import Progress
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.policies.eager import EagerWeights
from ictp2p.sync.two_level.landing import Landing
from ictp2p.sync.two_level.stream import Kind, Verdict
from ictp2p.sync.values import REMEMBERED
from ictp2p.types import ClusterId


def trained(base: int, version: int, make: Any = Weights, counted: int | None = None, **given: Any) -> tuple[Any, Any]:
    """Weights of three fragments that were one further from version `base`, and have received a later one.

    In it all have gone back by ten, and there are as many rounds as versions since the first, if nothing else is said.
    """
    model = torch.nn.Sequential(*(torch.nn.Linear(1, 1, bias=False) for _ in range(3)))
    for part in model.parameters():
        torch.nn.init.zeros_(part)
    weights = make(model, None, [], given.pop("divided", 3), **given)
    weights.state.counters["round"] = base - 1
    for part in model.parameters():
        part.data += 1.0
    weights.capture(1.0)
    with torch.no_grad():
        for tensor in weights.state.tentative.values():
            tensor.fill_(-10.0)
    weights.state.seal({"round": version - 1 if counted is None else counted})
    weights.state.commit(version)
    return weights, model


def landed(weights: Any, base: int, version: int, mine: int, parts: int = 3) -> Progress:
    progress = Progress(base, aloft=1, brought=4.0, weights=[5.0] * parts, behind=[1] * parts)
    peer: Any = SimpleNamespace(event=lambda *_, **__: None)
    Landing(peer, weights, progress, "keep", None).act(Verdict(Kind.ADOPT, version, b"received", mine))
    return progress


@pytest.mark.parametrize(
    ("mine", "kept"),
    [
        (0b000, [True, True, True]),
        (0b100, [False, True, True]),  # the one that was captured here
        (0b010, [True, False, True]),  # an heir's, which had missed that one
        (0b101, [False, True, False]),
        (0b111, [False, False, False]),
    ],
)
def test_only_the_fragments_that_the_cluster_s_rounds_were_about_are_in_a_state(mine: int, kept: list[bool]) -> None:
    """Regression: it was the one that was captured here, whichever an heir had brought: that was counted twice."""
    weights, model = trained(4, 7)
    progress = landed(weights, 4, 7, mine)
    assert [part.item() for part in model.parameters()] == [-9.0 if keep else -10.0 for keep in kept]
    assert [weight == 5.0 for weight in progress.weights] == kept
    assert progress.due == kept[0]
    assert progress.weights[0] in (1.0, 5.0), "what was trained since the capture is still to be brought"


def test_where_versions_and_rounds_differ_whatever_may_be_in_a_state_is_taken_for_being() -> None:
    """Since the mesh went back to version 4 as version 6, the contribution to version 7 is of the first fragment."""
    weights, model = trained(4, 7, counted=4)
    landed(weights, 4, 7, 0b001)
    assert [part.item() for part in model.parameters()] == [-10.0, -9.0, -10.0]


def test_of_who_was_away_for_longer_than_is_remembered_all_is_taken_for_being_in_it() -> None:
    weights, model = trained(4, 5 + REMEMBERED)
    landed(weights, 4, 5 + REMEMBERED, (1 << REMEMBERED) - 1)
    assert [part.item() for part in model.parameters()] == [-10.0] * 3


@pytest.mark.parametrize(("mine", "kept"), [(0b10, True), (0b01, False), (0b11, False)])
def test_what_was_trained_under_a_round_is_in_what_another_worker_brought_later(mine: int, kept: bool) -> None:
    """Regression: a leader that landed, launched and left had brought what its mates had trained under their round."""
    weights, model = trained(4, 6, EagerWeights, divided=1, cluster=ClusterId("a"))
    for part in model.parameters():
        part.data -= 3.0
    progress = landed(weights, 4, 6, mine, parts=1)
    assert (model[0].weight.item() != -10.0) == kept
    assert progress.weights == [1.0 if kept else 0.0]
