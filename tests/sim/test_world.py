"""Real peers in simulated worlds: they meet, train, lose their leaders, and recover."""

from __future__ import annotations

import gc
import itertools
import sys
import weakref

import pytest

from ictp2p.sync.agreement.acceptor import KEY, Acceptor
from ictp2p.sync.messages import Ballot
from ictp2p.sync.values import StateRef, Voters, upcoming
from sim import World
from sim.chance import Chance
from sim.faults import Cut, Heal, SlowNode
from sim.loop import SimLoop
from sim.world import SWEEP


@pytest.mark.parametrize("seed", range(3))
def test_clusters_meet_train_lose_a_leader_and_recover(seed: int) -> None:
    with World(seed) as world:
        for name in ("a", "b", "c"):
            world.cluster(name)
        world.run_until(world.settled, within=30)
        victim = world.leaders()["a"]
        world.crash(victim)
        world.run_until(lambda: world.leaders().get("a") not in (None, victim), within=5)
        before = world.version()
        world.run_until(lambda: world.version() > before and world.settled(), within=30)
        world.restart(victim)
        world.run_until(lambda: world.settled() and len(world.running()) == 6, within=30)


@pytest.mark.parametrize("seed", range(3))
def test_a_mesh_is_found_through_any_peer_also_a_follower(seed: int) -> None:
    """Regression: a follower did not pass on who leads its own cluster, so whom it let in never met that cluster."""
    with World(seed) as world:
        world.cluster("a")
        world.run_for(3)
        follower = next(host for host in world.of("a") if not host.leads)
        world.hosts = {follower.name: follower, **world.hosts}  # asked first by whoever joins
        world.cluster("b", workers=1)
        world.run_for(0.5)
        world.run_until(world.believes_all, within=5)


@pytest.mark.parametrize("seed", range(3))
def test_clusters_that_start_at_once_meet(seed: int) -> None:
    """Regression: the follower that lets others in may not know its own leader yet."""
    with World(seed) as world:
        for name in ("a", "b"):
            world.cluster(name)
        world.run_for(0.2)
        world.run_until(world.believes_all, within=5)


def test_a_cluster_s_terms_go_on_though_whoever_knew_the_last_one_is_dead() -> None:
    """Regression: the one that came back knew an older term, claimed one that was taken, and bound terms fell."""
    with World(1) as world:
        world.cluster("a")
        world.cluster("b", workers=1)
        world.run_until(world.settled, within=30)
        first = world.leaders()["a"]
        world.crash(first)
        world.run_until(lambda: world.leaders().get("a") not in (None, first) and world.settled(), within=30)
        world.crash(world.leaders()["a"])
        world.run_for(5)
        world.restart(first)
        world.run_until(lambda: world.leaders().get("a") == first, within=30)
        assert world.hosts[first].term == 3
        world.run_until(world.settled, within=60)


def test_who_is_there_already_is_not_started_again() -> None:
    """Regression: a host that a fault started before its time ran twice from then on."""
    with World(1) as world:
        world.cluster("a", workers=1)
        world.cluster("b", workers=1, at=3.0)
        world.run_for(1)
        world.restart("b/0")
        world.run_for(4)
        assert [entry.host for entry in world.trace.of("boot")] == ["a/0", "b/0"]
        world.run_until(world.settled, within=30)


def test_who_takes_longer_to_fetch_a_state_than_the_others_take_for_a_round_catches_up() -> None:
    """Regression: the state that it was fetching was gone each time, for the others went on without waiting for it."""
    with World(1) as world:
        world.cluster("a", workers=1, compute=0.3)
        world.cluster("b", workers=1, at=5.0)
        world.link("a", "b", delay=0.2)
        world.run_until(lambda: set(world.commits()[-1].participants) == {"a", "b"} if world.version() else False, 60)


def test_who_takes_longer_for_that_than_stragglers_are_waited_for_catches_up_too_and_is_waited_for_no_more() -> None:
    """Regression: rounds waited for it for five seconds, and a state took it fifteen, each time anew."""
    with World(1, profile="lan") as world:
        world.cluster("a", workers=1, compute=1.0, elements=400_000)
        world.cluster("b", workers=1, compute=1.0, elements=400_000, at=5.0)
        world.link("a", "b", bandwidth=1e5)
        world.run_until(lambda: set(world.commits()[-1].participants) == {"a", "b"} if world.version() else False, 120)
        world.inject(SlowNode("b/0", factor=60.0))
        world.run_for(40.0)
        version = world.version()
        world.run_for(40.0)
        assert world.version() > version + 3


def test_who_is_overtaken_again_and_again_is_waited_for_some_times_and_warns_then() -> None:
    with World(1) as world:
        world.cluster("a", workers=1)
        world.run_until(lambda: world.version() >= 2, 20)
        peer = world.hosts["a/0"].peer
        assert peer is not None
        said = [peer.control.overtaken(seconds) for seconds in (2.0, 4.0, *[1.0] * 20, *[8.0] * 8)]
        assert said == [3.0, 6.0, *[6.0] * 20, *[12.0] * 6, 0.0, 0.0]
        assert peer.core.publication.card().behind == 0.0
        peer._note_fetch(StateRef(1, b"an older one", ()), 8.0)
        assert "may never be as far as the others" in world.trace.entries[-1].fields["text"]
        peer.control.caught_up()
        assert peer.control.overtaken(2.0) == 3.0


@pytest.mark.parametrize("seed", [1, 3, 7])
def test_a_machine_that_reboots_is_met_as_one_that_knows_nothing(seed: int) -> None:
    """Regression: its id was the same, so routes through its former life stayed, and with the new ones went round."""
    chance = Chance(seed)
    with World(seed) as world:
        names = "abcde"
        for name in names:
            world.cluster(name, workers=1)
        for a, b in itertools.combinations(names, 2):
            world.link(a, b, delay=chance.uniform("delay") / 10)
        world.run_until(world.settled, within=60)
        for _ in range(4):
            world.restart(f"{names[int(chance.uniform('who') * 5)]}/0", power=True)
            world.run_for(1 + 5 * chance.uniform("pause"))


@pytest.mark.parametrize("step", [0.05, 0.3, 0.5, 2.0])
def test_what_no_notice_announces_is_looked_at_while_something_is_waited_for(step: float) -> None:
    """Regression: the time of the last look was set anew just before it was due, so there was none."""
    with World(seed=1) as world:
        world.cluster("a", workers=1)
        looks = list[float]()
        sweep = world.auditor.sweep
        world.auditor.sweep = lambda: (looks.append(world.now), sweep())[1]  # type: ignore[method-assign]
        world.run_until(lambda: world.now >= 10.0, within=20.0, step=step)
        gaps = [later - earlier for earlier, later in itertools.pairwise([0.0, *looks, world.now])]
    assert max(gaps) <= SWEEP + step


@pytest.mark.parametrize("seed", range(2))
def test_hidden_workers_of_one_cluster_find_each_other_and_find_each_other_again(seed: int) -> None:
    """They know of no seed but those outside, and nobody else can dial them."""
    with World(seed=seed) as world:
        world.cluster("a", workers=2)
        world.cluster("b", workers=3, nat=True)
        world.run_until(world.believes_all, within=20)
        lost = [f"b/{number}" for number in range(3)]
        for one, other in itertools.combinations(lost, 2):
            world.inject(Cut(one, other))
        world.run_for(20)
        assert not world.believes_all()
        terms = [world.hosts[name].term for name in lost]
        world.run_for(20)
        assert [world.hosts[name].term for name in lost] == terms, "each leads, and none outbids who cannot hear it"
        world.inject(Heal())
        world.run_until(world.believes_all, within=20)


def test_hidden_clusters_take_a_relay_at_once_and_nobody_is_warned() -> None:
    """Regression: each asked the other to dial it, which warned that it could not, and had a second for that."""
    with World(seed=9, profile="wan") as world:
        world.cluster("a", workers=1)
        for name in ("b", "c", "d"):
            world.cluster(name, workers=1, nat=True)
        world.run_until(lambda: world.version() >= 3 and world.settled(), within=60)
        assert not list(world.trace.of("warning"))
        assert max(entry.fields["seconds"] for entry in world.trace.of("round_committed")) < 1.0


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "in a callback of another loop"])
def test_a_world_that_is_dropped_unclosed_ends_without_a_word(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    """Regression: of each coroutine that awaits something on its way out Python said that it ignored its end."""
    said: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: said.append(repr(told.exc_value)))
    request.addfinalizer(gc.enable)
    gc.disable()  # else it may come to the coroutines before it comes to the world: younger objects are not the last
    world = World(1)
    for name in ("a", "b"):
        world.cluster(name)
    world.run_for(0.1)  # in the middle of a start
    dropped = weakref.ref(world)
    del world
    if beside:
        SimLoop().perform(gc.collect)
    else:
        gc.collect()
    assert dropped() is None
    assert said == []


def test_a_disk_is_spared_that_is_needed_by_what_somebody_has_accepted() -> None:
    """Regression: it may yet be decided, and then there was no quorum of those who vote by it."""
    with World(seed=1, spare_quorum=True) as world:
        for name in "abc":
            world.cluster(name, workers=1)
        world.run_until(lambda: world.version() >= 2 and world.settled(), 60.0)
        a, b, c = (world.hosts[f"{name}/0"] for name in "abc")
        assert a.peer is not None
        assert b.peer is not None
        assert c.peer is not None
        accepted = Acceptor(b.peer.id, b.disk.load(KEY))
        assert accepted.tip is not None
        assert len(accepted.tip.voters) == 3
        tip, heirs = accepted.tip, (a.peer.id, c.peer.id)
        accepted.accept(Ballot(9, b.peer.id), Voters(tip.lineage, heirs, tip.state, b.peer.id, *upcoming(tip)))
        b.disk.values[KEY] = accepted.persist().value
        world.crash("a/0", disk="lost")
        assert [entry.host for entry in world.trace.of("spared")] == ["a/0"]


def test_a_host_that_died_before_it_had_saved_who_it_is_has_one_identity() -> None:
    """Regression: the disk of the second was read as the first one's, when it was asked whether others need it."""
    with World(seed=1, spare_quorum=True) as world:
        for name in "abc":
            world.cluster(name, workers=1)
        world.run_until(lambda: world.version() >= 2 and world.settled(), 60.0)
        world.crash("c/0", disk="lost")
        world.crash_on_save("c/0")
        for _ in range(2):
            world.restart("c/0")
            world.run_for(5.0)
        world.crash("b/0", disk="lost")
        assert not world.hosts["b/0"].alive
