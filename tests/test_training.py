"""The mesh as training threads have it, over real peers in a simulated world."""

from ictp2p.types import PeerId
from sim.training import Training
from sim.world import World


def test_a_newcomer_that_comes_before_the_leader_has_looked_at_its_roster_is_let_in() -> None:
    """Several workers that start at once are the rule; the leader is told of each newcomer once."""

    def program(training: Training) -> set[PeerId]:
        training.roster_ready(True)
        if training.host.name == "a/0":
            training.compute(10.0)
        roster = training.wait_roster(None)
        if training.roster_moves(roster.generation):
            training.roster_boundary(0)
            roster = training.wait_roster(roster.generation)
        return set(roster.members)

    with World(seed=1) as world:
        world.cluster("a", workers=1, program=program)
        late = world.host("a", at=5.0)
        found = world.train(within=60.0)
        assert len(found["a/0"]) == 2
        assert found["a/0"] == found[late.name]
