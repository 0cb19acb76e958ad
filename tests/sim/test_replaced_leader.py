"""A leader that another replaces while it is in a round: what the others do, if it died, and if it lives."""

from __future__ import annotations

import itertools

import pytest

from ictp2p.sync.profile import RoundProfile
from sim import World
from sim.faults import Cut, KillLeader
from sim.trace import Entry

PHASE = 3.0
"""Virtual seconds."""


def world_of(seed: int, names: str, heirs: str) -> World:
    """Clusters far apart, those of `heirs` with two workers, all training, and settled."""
    world = World(seed, profile="wan")
    for name in names:
        world.cluster(name, workers=2 if name in heirs else 1, compute=PHASE)
    for a, b in itertools.combinations(names, 2):
        world.link(a, b, delay=0.01 + 0.07 * world.chance.uniform("delay", a, b))
    world.run_until(lambda: world.settled() and world.version() >= 3, within=200.0)
    return world


def aborted(world: World, since: float) -> list[Entry]:
    return [entry for entry in world.trace.of("round_aborted") if entry.at > since]


@pytest.mark.parametrize(("names", "seed"), [("ab", 1), ("ab", 2), ("abcd", 1), ("abcd", 2), ("abcd", 3)])
def test_a_round_whose_participant_died_is_repeated_with_its_heir_as_soon_as_that_is_known(
    names: str, seed: int
) -> None:
    """Regression: the attempt was kept until ten seconds after the suspicion, and the next commit took 13 to 16."""
    with world_of(seed, names, heirs="b") as world:
        before = len(list(world.trace.of("round_opened")))
        world.run_until(lambda: len(list(world.trace.of("round_opened"))) > before, within=60.0, step=0.01)
        died, version = world.now, world.version()
        world.inject(KillLeader("b", power=True))
        world.run_until(lambda: world.version() > version, within=60.0)
        commit = world.commits()[-1]
        assert len(commit.participants) == len(names), "by its heir, or by what it had sent"
        assert commit.at - died < RoundProfile.wan().suspect_grace
        assert len({(entry.fields["round"], entry.fields["attempt"]) for entry in aborted(world, died)}) <= 1


def test_a_leader_that_lives_and_was_replaced_finishes_what_it_is_in() -> None:
    """Two lead side by side, and no attempt of either fails for it."""
    with world_of(0, "abpc", heirs="abpc") as world:
        cut, version = world.now, world.version()
        world.inject(Cut("p/0", "p/1"))
        world.run_until(lambda: all(host.leads for host in world.of("p")), within=60.0, what="both lead")
        world.run_for(40.0)
        assert not aborted(world, cut)
        assert world.version() > version + 5
