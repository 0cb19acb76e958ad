"""The last voters leave politely while a newcomer is let in: it finds no mesh in which nothing can be decided."""

from __future__ import annotations

import pytest

from sim import World

CONNECT = {"local": 2.0, "lan": 3.0, "wan": 5.0}


@pytest.mark.parametrize("profile", sorted(CONNECT))
@pytest.mark.parametrize("after", [0.005, 0.1, 0.4, 1.0, 2.0, 2.9])
@pytest.mark.parametrize("leave", ["a", "ab"])
def test_who_comes_in_as_the_last_voter_leaves_has_its_vote(profile: str, after: float, leave: str) -> None:
    """Regression: nobody counted on who had no leader yet. Its start succeeded, and then it waited without end."""
    with World(seed=1, profile=profile) as world:
        world.links(delay=0.0005, bandwidth=1e8)
        for name in leave:
            world.cluster(name, workers=1)
        world.cluster("c", workers=1, at=None)
        world.run_to(20.0)
        world.join("c")
        world.run_for(after)
        for name in leave:
            world.leave(name)
        world.run_until(lambda: not any(world.hosts[f"{name}/0"].alive for name in leave), 60.0)
        world.run_for(10.0)
        warnings = [entry.fields["text"] for entry in world.trace.of("warning") if entry.host != "c/0"]
        peer = world.hosts["c/0"].peer
        assert peer is not None
        tip = peer.core.m.rounds.tip
        assert not [text for text in warnings if "released" in text]
        assert tip is None or tip[1].voters == (peer.id,)


@pytest.mark.parametrize("after", [0.1, 0.4, 0.7])
def test_who_leaves_after_deaths_that_nobody_has_noticed_can_come_back(after: float) -> None:
    """Regression: the dead, whose disks were lost, were most of those who voted on; nothing was decided any more."""
    with World(seed=2) as world:
        for name in "abcd":
            world.cluster(name, workers=1)
        world.run_until(lambda: world.version() >= 3 and world.settled(), 60.0)
        for name in "bc":
            world.crash(f"{name}/0", disk="lost", power=True)
        world.run_for(after)
        world.leave("d/0")
        world.run_until(lambda: not world.hosts["d/0"].alive, 60.0)
        before = world.version()
        world.run_for(10.0)
        world.restart("d/0")  # as it was told to do if the others report that they have no quorum
        world.run_until(lambda: world.version() >= before + 3, 60.0)


@pytest.mark.parametrize("profile", sorted(CONNECT))
@pytest.mark.parametrize("after", [0.2, 1.0])
def test_who_leaves_when_the_coordinator_has_just_died_unnoticed_is_released(profile: str, after: float) -> None:
    """Regression: it went before that was noticed, told to keep its folder, though those who stayed went on."""
    with World(seed=1, profile=profile) as world:
        world.links(delay=0.02, bandwidth=1e9)
        for name in "abc":
            world.cluster(name, workers=1)
        world.run_until(lambda: world.version() >= 3 and world.settled(), 60.0)
        tips = [host.peer.core.m.rounds.tip for host in world.hosts.values() if host.peer is not None]
        dead, leaver, stays = (world.supervisor.owner(voter) for voter in tips[0][1].voters)  # type: ignore[index]
        assert dead is not None
        assert leaver is not None
        assert stays is not None
        world.crash(dead.name, power=True)
        world.run_for(after)
        world.leave(leaver.name)
        world.run_until(lambda: not leaver.alive, 30.0)
        before = world.version()
        assert not [entry for entry in world.trace.of("warning") if "released" in entry.fields["text"]]
        world.run_until(lambda: world.version() >= before + 3, 60.0)
        assert stays.alive


@pytest.mark.parametrize("profile", sorted(CONNECT))
def test_who_leaves_without_anybody_who_could_release_it_does_not_wait_for_a_death_to_be_noticed(profile: str) -> None:
    with World(seed=1, profile=profile) as world:
        for name in "ab":
            world.cluster(name, workers=1)
        world.run_until(lambda: world.version() >= 3 and world.settled(), 60.0)
        world.crash("a/0", disk="lost", power=True)
        world.run_for(40.0)
        began = world.now
        world.leave("b/0")
        world.run_until(lambda: not world.hosts["b/0"].alive, 30.0)
        assert world.now < began + CONNECT[profile] + 1.0


def test_who_was_away_does_not_come_back_to_be_replaced_by_the_dead() -> None:
    """Regression: it voted for its own removal, in favour of one who had died unnoticed and whose disk was lost."""
    with World(seed=3) as world:
        for name in "abc":
            world.cluster(name, workers=1)
        world.run_until(lambda: world.version() >= 3 and world.settled(), 60.0)
        world.crash("a/0", disk="lost", power=True)
        world.restart("c/0")
        world.run_for(0.6)
        world.pause("b/0")
        world.run_for(9.6)
        world.resume("b/0")
        before = world.version()
        world.run_until(lambda: world.version() >= before + 3, 60.0)


def test_who_begins_to_leave_in_a_calm_world_and_is_not_released_is_started_again() -> None:
    """Regression: its supervisor took it at its word, though it was told to come back, and nothing was decided."""
    with World(seed=4) as world:
        for name in "ab":
            world.cluster(name, workers=1)
        world.run_until(lambda: world.version() >= 3 and world.settled(), 60.0)
        world.pause("a/0")
        world.leave("a/0")  # it begins to when it is woken
        world.calm()
        world.crash("b/0")
        world.run_until(lambda: any("released" in note.fields["text"] for note in world.trace.of("warning")), 60.0)
        before = world.version()
        world.restart("b/0")
        world.run_until(lambda: world.version() >= before + 3, 60.0)
