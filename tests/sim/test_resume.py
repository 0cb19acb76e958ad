"""What survives when many die: the chain by its voters' disks, the state by whoever still holds a version of it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ictp2p.gossip.messages import Status
from sim import World
from sim.faults import Leave
from sim.supervisor import PORT

QUIET = 60.0


def events(world: World, kind: str) -> list[Any]:
    return list(world.trace.of(kind))


def trained(seed: int, **options: Any) -> World:
    world = World(seed)
    for name in ("a", "b", "c"):
        world.cluster(name, **options)
    world.run_until(lambda: world.version() >= 4 and world.settled(), within=60)
    return world


def lineages(world: World) -> set[bytes]:
    return {h.core.m.rounds.tip[1].lineage for h in world.running() if h.core and h.core.m.rounds.tip}


@pytest.mark.parametrize("seed", range(2))
def test_a_mesh_that_was_stopped_whole_resumes_its_chain(seed: int) -> None:
    with trained(seed) as world:
        before, (lineage,) = world.version(), lineages(world)
        for host in world.running():
            world.crash(host.name)
        world.run_for(1.0)
        for host in world.every_host():
            world.restart(host.name)
        world.run_until(lambda: world.version() >= before + 3 and world.settled(), within=QUIET)
        assert lineages(world) == {lineage}


def test_a_quorum_of_the_last_voters_is_enough_to_resume_and_less_is_not() -> None:
    with trained(1) as world:
        before = world.version()
        voters = world.running()[0].core.m.rounds.tip[1].voters  # type: ignore[union-attr,index]
        hosts = [world.host_of(voter) for voter in voters]
        names = [host.name for host in hosts if host is not None]
        assert len(names) == 6
        for name in names:
            world.crash(name)
        world.run_for(1.0)
        for name in names[3:]:
            world.restart(name)
        world.run_for(40.0)
        assert world.version() == before, "half of them, without the first, is no quorum"
        world.restart(names[2])
        world.run_until(lambda: world.version() >= before + 3, within=QUIET)


def test_islands_of_a_mesh_that_restarts_in_pieces_meet() -> None:
    with trained(2) as world:
        before = world.version()
        for host in world.running():
            world.crash(host.name)
        world.partition(["a", "b/0"])
        for host in world.every_host():
            world.restart(host.name)
        world.run_for(8.0)
        assert world.version() == before
        world.heal()
        world.run_until(lambda: world.version() >= before + 3 and world.settled(), within=QUIET)


def test_nothing_begins_anew_unless_a_worker_brings_a_state() -> None:
    with trained(3, resume=False) as world:
        before = world.version()
        for host in world.running():
            world.crash(host.name)
        for host in world.every_host():
            world.restart(host.name)
        world.run_for(30.0)
        assert world.version() == before
        assert {entry.fields["source"] for entry in events(world, "state_lost")} == {None}
        worker = world.hosts["b/0"].worker
        assert worker is not None
        worker.state.brought = 0
        world.run_until(lambda: world.version() >= before + 3 and world.settled(), within=QUIET)


def test_the_newest_version_that_somebody_holds_takes_the_place_of_one_that_died() -> None:
    with World(4) as world:
        world.cluster("a", workers=4)
        world.cluster("b", workers=1)
        world.cluster("c", workers=1)
        world.run_until(lambda: world.version() >= 3 and world.settled(), within=60)
        world.partition(["a"])
        held = world.version()
        world.run_until(lambda: world.version() >= held + 2, within=60)
        lost = world.version()
        for host in world.of("a"):
            world.crash(host.name)
        world.heal()
        for host in world.of("a"):
            world.restart(host.name)
        world.run_until(lambda: world.version() >= lost + 3 and world.settled(), within=QUIET)
        told = events(world, "state_restored")[0].fields
        assert held <= told["source"] < lost
        assert told["version"] == told["lost"] + 1 > lost
        alone = {unit.cluster for unit in world.ledger.lost}
        assert alone == {"a"}, "what the others had brought was still in their hands"


@pytest.mark.parametrize("seed", range(4))
def test_a_mesh_that_was_stopped_whole_goes_on_from_the_newest_checkpoint(seed: int) -> None:
    """Regression: from the one that most workers brought, so that whoever had a newer one had trained in vain."""
    chance = random.Random(seed)
    with World(seed) as world:
        for name, saves in {"a": 7, "b": 5, "c": 7}.items():
            world.cluster(name, chance.choice([1, 2]), saves=saves)
        world.run_until(lambda: world.version() >= 11, within=60)
        world.run_for(chance.random())  # at any moment of a round
        lost, (lineage,) = world.version(), lineages(world)
        for host in world.running():
            world.crash(host.name)
        assert {host.name[0]: host.checkpoint.version for host in world.every_host() if host.checkpoint} == {
            "a": 7,
            "b": 10,
            "c": 7,
        }
        for host in world.every_host():
            world.restart(host.name)
        world.run_until(lambda: world.version() >= lost + 3 and world.settled(), within=QUIET)
        assert lineages(world) == {lineage}
        told = events(world, "state_restored")[0].fields
        assert told["source"] == 10
        assert told["version"] == told["lost"] + 1 > 11
        kept = {unit for version in range(1, 11) for unit in world.ledger.versions[version].units}
        assert kept.isdisjoint(world.ledger.lost), "what the newest checkpoint holds is still in the state"


@pytest.mark.parametrize("seed", range(3))
def test_a_newer_checkpoint_is_gone_back_to_and_not_what_somebody_alive_holds(seed: int) -> None:
    """Wherever in a round that one was cut off, nothing of it is counted twice: see `sim.ledger`."""
    with World(seed) as world:
        for name, saves in {"a": 2, "b": 2, "c": 0}.items():
            world.cluster(name, workers=1, saves=saves)
        world.run_until(lambda: world.version() >= 4, within=60)
        world.run_for(random.Random(seed).random() * 1.5)
        world.partition(["a", "b"])
        held = world.versions()["c/0"]
        world.run_until(lambda: world.version() >= held + 3 and world.version() % 2 == 1, within=60)
        lost = world.version()
        for name in ("a/0", "b/0"):
            world.crash(name)
        world.heal()
        for name in ("a/0", "b/0"):
            world.restart(name)
        world.run_until(lambda: world.version() >= lost + 3 and world.settled(), within=QUIET)
        assert events(world, "state_restored")[0].fields["source"] == lost - 1 > held


def test_a_holder_that_was_only_cut_off_finds_its_version_superseded_and_goes_on() -> None:
    with World(5) as world:
        world.cluster("a", workers=1)
        world.cluster("b", workers=2, rounds=3)
        world.cluster("c", workers=2, train=False)
        world.run_until(lambda: world.version() >= 6, within=60)
        lost = world.version()
        world.partition(["a"])
        world.run_until(lambda: world.version() > lost, within=QUIET)
        assert events(world, "state_restored")[0].fields["source"] == 3
        world.heal()
        newest = world.version()
        world.run_until(lambda: world.version() >= newest + 2, within=QUIET)
        assert world.versions()["a/0"] > newest


def test_a_holder_that_is_back_in_time_loses_nothing() -> None:
    with World(6) as world:
        world.cluster("a", workers=1)
        world.cluster("b", workers=2, rounds=3)
        world.cluster("c", workers=2, train=False)
        world.run_until(lambda: world.version() >= 6, within=60)
        world.partition(["a"])
        world.run_for(12.0)
        world.heal()
        newest = world.version()
        world.run_until(lambda: world.version() >= newest + 3, within=QUIET)
        assert not events(world, "state_restored")
        assert not world.ledger.lost


@pytest.mark.parametrize("power", [False, True])
def test_clusters_that_cannot_be_dialed_find_the_heir_of_the_only_leader_that_they_knew(power: bool) -> None:
    with World(7) as world:
        world.cluster("public", workers=3)
        world.run_for(3.0)
        leader = world.leaders()["public"]
        door = f"{world.internet.addresses[leader]}:{PORT}"
        world.supervisor._seeds = lambda host: (door,)  # type: ignore[method-assign]
        for name in ("hidden", "veiled"):
            world.cluster(name, workers=1, nat=True)
        world.run_until(lambda: len(world.leaders()) == 3 and world.settled(), within=QUIET)
        world.crash(leader, power=power)
        before = world.version()
        world.run_until(lambda: world.version() > before and world.settled(), within=QUIET)


def test_a_hidden_cluster_that_has_the_quorum_finds_who_was_down_when_it_started() -> None:
    """Regression: it was in touch with all voters, its own workers, and nobody else could dial it."""
    with World(8) as world:
        world.cluster("public", workers=1)
        world.cluster("hidden", workers=3, nat=True)
        world.run_until(lambda: world.version() >= 2 and world.settled(), within=QUIET)
        world.crash("public/0")
        before = world.version()
        world.run_until(lambda: world.version() >= before + 2, within=QUIET)
        hidden = [f"hidden/{number}" for number in range(3)]
        for name in hidden:
            world.crash(name)
        for name in hidden:
            world.restart(name)
        world.run_until(lambda: world.version() >= before + 4, within=QUIET)
        world.restart("public/0")
        world.run_until(lambda: len(world.running()) == 4 and world.believes_all(), within=QUIET)


def test_who_was_away_while_others_moved_is_found_where_it_was() -> None:
    """Regression: all it knew was where they had been, and who had started anew since looked for nobody."""
    with World(1) as world:
        for name in ("p", "q"):
            world.cluster(name, workers=1)
        world.cluster("hidden", workers=3, nat=True)
        world.run_until(lambda: len(world.running()) == 5 and world.settled(), within=QUIET)
        away, *others = world.running()
        former = f"{world.internet.addresses['q/0']}:{PORT}"
        world.crash(away.name)
        before = world.version()
        world.run_until(lambda: world.version() >= before + 2, within=QUIET)
        for host in others:
            world.crash(host.name)
        world.internet.host("q/0", "q", "192.0.2.1")
        door = f"{world.internet.addresses['q/0']}:{PORT}"
        world.supervisor._seeds = lambda host: (former if host is away else door,)  # type: ignore[method-assign]
        for host in others:
            world.restart(host.name)
        world.run_until(lambda: world.version() >= before + 4, within=QUIET)
        world.restart(away.name)
        world.run_until(lambda: len(world.running()) == 5 and world.believes_all(), within=QUIET)


def test_a_founder_that_founds_again_on_another_disk_does_not_halt_the_mesh_that_it_meets() -> None:
    """Regression: each mesh took the other's peers for voters, and one that had too many of them decided no more."""
    with World(2, audit=False) as world:  # there are two histories by then
        for name in "abc":
            world.cluster(name, workers=1)
        world.run_until(lambda: world.version() >= 2 and world.settled(), within=QUIET)
        (lineage,) = lineages(world)
        world.crash("a/0", disk="lost")
        world.supervisor._seeds = lambda host: ()  # type: ignore[method-assign]
        world.restart("a/0")
        warned = {"a/0", "b/0", "c/0"}
        world.run_until(lambda: {entry.host for entry in events(world, "warning")} >= warned, within=QUIET)
        assert len(lineages(world)) == 2
        tips = {name: world.hosts[name].core.m.rounds.tip for name in warned}  # type: ignore[union-attr]
        world.run_for(20.0)
        for name, (_, before) in tips.items():  # type: ignore[misc]
            _, now = world.hosts[name].core.m.rounds.tip  # type: ignore[union-attr,misc]
            assert now.lineage == before.lineage
            assert now.state.version >= before.state.version + 5
            others = {world.host_of(voter).name for voter in now.voters}  # type: ignore[union-attr]
            assert others == ({"b/0", "c/0"} if now.lineage == lineage else {"a/0"})


def test_who_founds_apart_from_its_own_cluster_stops_and_says_so() -> None:
    """Regression: its mates followed it, stood still for want of its states, and were given to it as voters."""
    with World(4, audit=False) as world:  # there are two histories for a moment
        world.cluster("a", workers=2)
        for name in "bc":
            world.cluster(name, workers=1)
        world.run_until(lambda: world.version() >= 4 and world.settled(), within=QUIET)
        (lineage,) = lineages(world)
        world.crash("a/0", disk="lost")
        world.run_until(lambda: world.version() >= 6, within=QUIET)
        world.supervisor._seeds = lambda host: ()  # type: ignore[method-assign]
        world.restart("a/0")
        world.run_until(lambda: bool(events(world, "failed")), within=QUIET)
        (failed,) = events(world, "failed")
        assert failed.host == "a/0"
        assert "cluster a is in another mesh already, with" in failed.fields["text"]
        assert "start it again with join" in failed.fields["text"]
        before = world.version()
        world.run_until(lambda: world.version() >= before + 3, within=QUIET)
        assert lineages(world) == {lineage}
        (_, now) = world.hosts["a/1"].core.m.rounds.tip  # type: ignore[union-attr,misc]
        assert now.state.version >= before + 2, "its mate trains on"


def test_a_founder_whose_disk_is_lost_founds_no_other_mesh_where_nobody_can_be_dialed() -> None:
    """Regression: all others are behind a NAT, so it was started without seeds, as nobody would; and founded one."""
    with World(5) as world:
        world.cluster("a", workers=1)
        world.cluster("b", workers=3, nat=True)
        world.run_until(lambda: world.version() >= 4 and world.settled(), within=60)
        before, (lineage,) = world.version(), lineages(world)
        world.crash("a/0", disk="lost")
        world.run_for(1.0)
        world.restart("a/0")
        world.run_until(lambda: world.version() >= before + 3 and world.settled(), within=QUIET)
        assert lineages(world) == {lineage}


def test_who_lost_its_disk_founds_no_other_mesh_where_all_others_are_leaving() -> None:
    """Regression: hosts that are told to leave were named to nobody, so it was started without seeds."""
    with World(6) as world:
        world.cluster("a", workers=3)
        world.run_until(lambda: world.version() >= 4 and world.settled(), within=60)
        before, (lineage,) = world.version(), lineages(world)
        world.leave("a/0")
        world.leave("a/1")
        world.crash("a/2", disk="lost")
        world.restart("a/2")
        world.run_until(lambda: world.version() >= before + 3, within=QUIET)
        assert lineages(world) == {lineage}


def test_who_was_leaving_when_the_world_became_calm_is_started_again_if_the_mesh_needs_its_vote() -> None:
    """Regression: it went right after all others had been started, as it was told to be, and none was a quorum."""
    with World(77) as world:
        for name in ("a", "b"):
            world.cluster(name, workers=1)
        world.run_for(1.5)
        world.crash("b/0", power=True)
        world.run_for(1.0)
        world.leave("a/0")
        world.run_for(3.0)
        world.calm()
        world.run_until(lambda: len(world.running()) == 2 and world.settled(), within=QUIET)
        (first,) = {host.core.m.rounds.tip[1].voters[0] for host in world.running()}  # type: ignore[union-attr,index]
        assert world.host_of(first).name == "a/0"  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", [105, 106, 107])
def test_a_cluster_that_leaves_as_a_whole_says_so_also_by_who_leads_it_since_a_moment_ago(seed: int) -> None:
    """Regression: its heir had no connection to anybody else yet, left at once, and its cluster was taken for dead."""
    rng = random.Random(seed)
    with World(seed=seed) as world:
        for name in "abcd":
            world.cluster(name, workers=2, compute=2.0)
        world.run_until(lambda: world.version() >= 3, within=120)
        leader = world.leaders()["b"]
        (mate,) = {"b/0", "b/1"} - {leader}
        gap = rng.choice([-1, 1]) * rng.random() * 0.12
        world.after(max(0.0, -gap) + 0.01, Leave(mate))
        world.after(max(0.0, gap) + 0.01, Leave(leader))
        world.run_for(8.0)
        for host in ("a/0", "c/0", "d/0"):
            core = world.hosts[host].core
            assert core is not None
            assert core.m.mesh.members["b"].status is Status.LEFT
