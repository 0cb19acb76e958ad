"""Disks that take their time: their peers are slow by what they have to write, and by nothing else."""

from __future__ import annotations

from ictp2p.sync.profile import RoundProfile
from sim import World


def test_a_peer_whose_disk_takes_long_knows_it() -> None:
    with World(1) as world:
        for name in "ab":
            world.cluster(name, workers=1)
        world.run_for(10.0)
        world.hosts["b/0"].disk.seconds = 1.5
        world.run_for(20.0)
        told = [str(entry) for entry in world.trace.of("warning", host="b/0")]
        assert any("the disk took 1.5 s" in each for each in told)


def test_a_mesh_goes_on_though_most_disks_take_longer_than_the_pause_between_repetitions() -> None:
    """Regression: each repetition was written again, so more of them came than were answered: nothing was decided."""
    with World(1, profile="lan") as world:
        world.links(delay=0.002, bandwidth=12.5e6)
        for name in "abcde":
            world.cluster(name, workers=1, compute=10.0)
        world.run_for(60.0)
        before = world.version()
        for name in "bcde":
            world.hosts[f"{name}/0"].disk.seconds = 2.0
        world.run_for(120.0)
        assert world.version() >= before + 6


def test_a_coordinator_whose_disk_took_long_does_not_say_that_the_quorum_is_lost() -> None:
    """Regression: it did as soon as it woke, before anybody could answer; a policy may end a training for that."""
    with World(1, profile="local") as world:
        for name in "abc":
            world.cluster(name, workers=1)
        world.run_until(lambda: world.version() >= 3, within=120)
        host = world.hosts["a/0"]
        assert host.core is not None
        agreement = host.core.m.rounds.agreement
        assert agreement.is_coordinator

        def take_long() -> None:
            host.disk.seconds = 2 * RoundProfile.local().quorum_deadline if agreement.busy else 0.0

        host.disk.before = take_long
        world.run_for(60.0)
        assert list(world.trace.of("warning", host="a/0"))
        assert not list(world.trace.of("quorum_lost"))
