"""Lines between clusters that are cut under collective calls: who did nothing wrong sees no error."""

from __future__ import annotations

import random

import pytest
import torch

from ictp2p.bulk.pacing import Watch
from ictp2p.config import Config
from ictp2p.errors import IctError
from ictp2p.gossip.link_profile import LinkProfile
from sim import World
from sim.training import Program, Training
from tests.sim.calls import Caller

CLUSTERS = "abcd"
ELEMENTS = 500_000
PAUSE = 3.0
"""Virtual seconds between two calls."""
LONGEST = 24.0
"""Virtual seconds that a call may take: what a stall or the way around a cut takes, but not both, and a retry."""


class Story:
    """A world whose clusters all-reduce again and again while lines are cut."""

    def __init__(self, world: World, hidden: str = "", elements: int = ELEMENTS) -> None:
        self.world = world
        self.elements = elements
        self.met: set[str] = set()
        self.errors: list[tuple[str, float, IctError]] = []
        self.took: list[float] = []
        self.over = False
        world.links(delay=0.02, bandwidth=1e9)
        for cluster in CLUSTERS:
            nat = cluster in hidden
            world.cluster(cluster, workers=1, program=self.program(), up=5e6, down=5e6, nat=nat)
        world.run_until(lambda: len(self.met) == len(CLUSTERS), within=200.0, what="all have met")

    def program(self) -> Program:
        def run(training: Training) -> None:
            caller = Caller(training)
            caller.gather(len(CLUSTERS), 60.0)
            while self.summed(caller, 1) != len(CLUSTERS):
                pass
            self.met.add(training.host.name)
            while not self.over:
                began = self.world.now
                try:
                    assert self.summed(caller, self.elements) == len(CLUSTERS)
                except IctError as error:
                    self.errors.append((training.host.name, self.world.now, error))
                self.took.append(self.world.now - began)
                training.compute(PAUSE)
            training.compute(1e6)

        return run

    def summed(self, caller: Caller, elements: int) -> float:
        tensor = torch.ones(elements)
        caller.all_reduce(tensor, op="sum")
        assert bool((tensor == tensor[0]).all())
        return tensor[0].item()


@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5, 6])  # in 3 the plan does without the line that is cut
def test_a_pair_that_cannot_hear_each_other_any_more_misses_no_call(seed: int) -> None:
    """Regression: of ten such cuts, both ways, five cost a cluster a call."""
    rng = random.Random(seed)
    with World(seed=seed, profile="wan") as world:
        story = Story(world)
        world.run_for(rng.uniform(5.0, 20.0))
        world.cut(*rng.sample(CLUSTERS, 2), one_way=rng.random() < 0.5)
        world.run_for(90.0)
        story.over = True
        assert not story.errors
        assert LONGEST / 3 < max(story.took) < LONGEST


@pytest.mark.parametrize("one_way", [False, True])
@pytest.mark.parametrize("profile", ["lan", "local"])
def test_an_attempt_over_a_line_that_is_cut_ends_once_the_link_counts_as_lost(profile: str, one_way: bool) -> None:
    """Regression: it ended with the stall deadline, seven seconds later in a data centre."""
    with World(seed=1, profile=profile) as world:
        story = Story(world, elements=5_000_000)
        world.run_until(lambda: len(story.took) == 2 * len(CLUSTERS), within=60.0, what="two large calls")
        world.run_for(PAUSE + 1.0)
        cut = world.now
        world.cut("a", "b", one_way=one_way)
        world.run_for(3 * LONGEST)
        story.over = True
        ends = [entry for entry in world.trace.entries if entry.kind == "round_aborted" and entry.at > cut]
        links, bulk = getattr(LinkProfile, profile)(), getattr(Config, profile)(cluster="a", token="t" * 32)
        latest = (links.hold + 1) * links.hello_interval + bulk.global_timeouts.stall / Watch.CHECKS
        assert cut < ends[0].at < cut + latest + 0.1 < cut + bulk.global_timeouts.stall
        assert len(ends) == len(CLUSTERS), "one attempt in vain"
        assert not story.errors


@pytest.mark.parametrize("seed", range(3))
def test_lines_that_are_cut_and_healed_one_after_the_other_cost_nobody_a_call(seed: int) -> None:
    rng = random.Random(seed)
    with World(seed=seed, profile="wan") as world:
        story = Story(world)
        for _ in range(4):
            a, b = rng.sample(CLUSTERS, 2)
            world.cut(a, b, one_way=rng.random() < 0.4)
            world.run_for(rng.uniform(0.5, 40.0))
            world.heal(a, b)
            world.run_for(rng.uniform(0.0, 15.0))
        world.run_for(30.0)
        story.over = True
        assert not story.errors


def test_a_pair_whose_line_was_cut_leaves_the_relay_once_it_is_there_again() -> None:
    """Regression: it sent over the relay ever after."""
    with World(seed=1, profile="wan") as world:
        story = Story(world, elements=2_000_000)
        hosts = {host.name: host.peer for host in world.hosts.values()}
        a, b = hosts["a/0"], hosts["b/0"]

        def relayed() -> list[bool]:
            ways = [one.bulk._pool.warm(other.id) for one, other in ((a, b), (b, a))]
            return [way.relayed for way in ways if way is not None]

        world.run_for(20.0)  # plans know the lines then, and use this one
        world.cut("a", "b")
        world.run_until(lambda: relayed() == [True, True], within=90.0, what="a way around the cut")
        world.heal("a", "b")
        world.run_until(lambda: relayed() == [False, False], within=90.0, what="a direct connection")
        world.run_for(60.0)
        story.over = True
        assert not story.errors
        assert relayed() == [False, False]
