"""What people are told of steps that no round carries: of a loop that ends between two, or a policy never entered."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from ictp2p.errors import PeerClosed
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.two_level.unfinished import Unentered

EVERY = 4


def trained(mesh: Any, steps: int, *, ends: type[BaseException] | None = None, weight: float = 1.0) -> None:
    model = torch.nn.Linear(4, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    with DiLoCo(mesh, model, inner, sync_every=EVERY) as policy:
        policy.weight = weight
        for _ in range(steps):
            model(torch.ones(2, 4)).sum().backward()
            inner.step()
        if ends is not None:
            raise ends


def told(world: Any) -> list[tuple[str, str]]:
    return [(name, str(fields["text"])) for name, kind, fields in world.events if kind == "warning"]


@pytest.mark.parametrize("steps", range(2 * EVERY + 2))
def test_a_loop_that_ends_between_two_rounds_says_what_is_in_none(make_world: Any, steps: int) -> None:
    """Regression: one that ended before its first round had trained for nothing, and nobody said so."""
    world = make_world(a=2)
    world.run(a_0=lambda mesh: trained(mesh, steps), a_1=lambda mesh: trained(mesh, steps))
    texts = told(world)
    assert len(texts) == bool(steps % EVERY)
    for name, text in texts:
        assert name == "a/0"
        assert f"ends with {steps % EVERY} inner steps" in text
        assert ("global_parameters() are what training began with" in text) == (steps < EVERY)


def test_who_was_asked_to_leave_or_broke_off_or_looks_on_has_nothing_to_say(make_world: Any) -> None:
    def asked(mesh: Any) -> None:
        mesh.leaves = True
        trained(mesh, 3)

    for body in (asked, lambda mesh: trained(mesh, 3, weight=0.0)):
        world = make_world(a=1)
        world.run(a_0=body)
        assert not told(world)
    world = make_world(a=1)
    with pytest.raises(KeyboardInterrupt):
        world.run(a_0=lambda mesh: trained(mesh, 3, ends=KeyboardInterrupt))
    assert not told(world)


class Policy:
    """Whose steps are counted."""


def stepped(inner: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        inner.step()


def test_a_policy_that_nobody_entered_is_told_of_once_and_only_while_there_is_one() -> None:
    inner, texts = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), list[str]()
    policy = Policy()
    Unentered(inner, policy, EVERY, texts.append)
    inner.register_step_post_hook(lambda *_: None)
    stepped(inner, EVERY - 1)
    assert not texts, "a model may be warmed up before"
    stepped(inner, 2 * EVERY)
    assert texts == ["Policy was made but not entered (`with policy:`): 4 inner steps were averaged with nobody"]
    Unentered(inner, policy, EVERY, texts.append).remove()
    Unentered(inner, policy, EVERY, texts.append)
    del policy
    gc.collect()
    stepped(inner, 2 * EVERY)
    assert len(texts) == 1

    def closed(text: str) -> None:
        raise PeerClosed(text)

    policy = Policy()
    Unentered(inner, policy, EVERY, closed)
    stepped(inner, 2 * EVERY)


def test_a_policy_that_is_entered_was_not_forgotten(make_world: Any) -> None:
    world = make_world(a=1)
    world.run(a_0=lambda mesh: trained(mesh, 2 * EVERY))
    assert not told(world)
