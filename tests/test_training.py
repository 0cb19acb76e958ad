"""The mesh as training threads have it, over real peers in a simulated world."""

from typing import Any

import torch

from ictp2p.threads import Threads
from ictp2p.training import TrainingMesh
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


class Listening:
    """A peer that notes what it is told."""

    threads = Threads()

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def subscribe(self, subscriber: object) -> None: ...

    def equip(self, device: object) -> None: ...

    def wants(self, ready: bool, device: object) -> None:
        self.told.append(("wants", ready))

    def set_training(self, training: bool, config: bytes | None = None) -> None:
        self.told.append(("training", training))


def test_the_peer_is_told_what_it_does_not_know_and_nothing_twice() -> None:
    """Each word to its thread is a way there and back, before each call."""
    peer: Any = Listening()
    life: Any = None
    mesh = TrainingMesh(peer, life)
    for _ in range(3):
        mesh.calls_ready(True)
        mesh.take_part()
    assert peer.told == [("wants", True), ("training", True)]
    mesh.calls_ready(False)
    assert peer.told[2:] == [("wants", False), ("training", False)]
    mesh.calls_ready(True)
    mesh.take_part()
    assert peer.told[4:] == [("wants", True), ("training", True)]
    mesh.roster_ready(True, torch.device("cuda"))
    assert peer.told[6:] == [("wants", True)]
