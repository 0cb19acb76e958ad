"""Agreement and rounds under an adversary: safety always, progress once it stops.

When the network heals, everybody must take part in a committed round within bounded time.
"""

from __future__ import annotations

from hypothesis import given, settings

from tests.properties.adversary import Adversary
from tests.properties.voters import SEEDS


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
def test_rounds_are_safe_in_chaos_and_live_after_it(seed: int) -> None:
    world = Adversary(seed)
    world.chaos(600)
    world.heal()
    assert world.run(14.0, world.complete), world.explain()


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_one_seed_is_one_run(seed: int) -> None:
    runs = []
    for _ in range(2):
        world = Adversary(seed)
        world.chaos(150)
        runs.append((world.referee.decided, world.now, world.wire))
    assert runs[0] == runs[1]
