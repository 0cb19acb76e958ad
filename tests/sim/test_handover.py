"""Who leaves, or dies, with a version that nobody else holds: others have it before, or soon go on without it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

import ictp2p
from ictp2p.sync.two_level.policy import Policy
from sim import World
from sim.host import Host
from sim.training import Program, Training

SIDE = 64
"""Of the matrix that is trained: a state of 33 kB."""
PACES = {"a": 0.1, "b": 0.3, "c": 0.33}
"""Seconds that a step takes: what `a` commits it commits alone, most of the time."""


def learner(policy: type[Policy], ended: Collection[str] = (), side: int = SIDE, **options: Any) -> Program:
    """Fits a matrix to noise until its cluster's training has ended."""

    def program(training: Training) -> None:
        torch.manual_seed(7)
        model = torch.nn.Linear(side, side)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        noise = torch.Generator().manual_seed(ord(training.host.cluster))
        with policy(training, model, inner, sync_every=40, **options):
            while training.host.cluster not in ended:
                model(torch.randn(4, side, generator=noise)).square().mean().backward()
                training.compute(PACES[training.host.cluster])
                inner.step()
                inner.zero_grad()

    return program


@contextmanager
def mesh(
    committers: str, ends: str = "", policy: type[Policy] = ictp2p.AsyncDiLoCo, side: int = SIDE, **options: Any
) -> Iterator[World]:
    """Three clusters, right after a round that some alone have committed, with which the training of some ended."""
    ended: set[str] = set()
    program = learner(policy, ended, side, **(options or {"clusters": 3, "proportional": False}))
    with World(seed=3, profile="lan") as world:
        world.links(delay=0.001, bandwidth=1e7)
        for name in PACES:
            world.cluster(name, workers=1, program=program)
        world.run_to(60.0)

        def alone() -> bool:
            return bool(world.commits()) and world.commits()[-1].participants == tuple(committers)

        world.run_until(lambda: not alone(), 100.0)
        world.run_until(alone, 100.0)
        ended.update(ends or committers)
        world.run_for(max(PACES.values()))
        yield world


def told(world: World, kind: str, host: str | None = None) -> list[Mapping[str, Any]]:
    return [entry.fields for entry in world.trace.of(kind, host=host)]


def went_on(world: World, left: int, within: float) -> None:
    """Whoever stays commits a round on top of the version that was left, soon, and nobody goes back."""
    world.run_until(lambda: world.commits()[-1].version > left, within)
    assert not told(world, "state_lost")
    assert not told(world, "state_restored")
    assert not [text for fields in told(world, "warning") if "only copy" in (text := fields["text"])]


def test_the_only_holder_of_a_version_leaves_once_another_cluster_holds_it() -> None:
    with mesh("a") as world:
        left = world.commits()[-1].version
        before = world.now
        world.leave("a")
        world.run_until(lambda: not world.hosts["a/0"].alive, 5.0)
        assert [fields["version"] for fields in told(world, "state_kept")] == [left]
        went_on(world, left, 40 * PACES["c"])
        fetched = [e.host for e in world.trace.of("state_fetched", since=before) if e.fields["version"] == left]
        (custodian,) = [entry.host for entry in world.trace.of("state_kept")]
        assert custodian not in fetched  # its worker found it there


def test_whoever_comes_for_it_later_has_it_of_the_custodian() -> None:
    with mesh("a") as world:
        left, before = world.commits()[-1].version, world.now
        world.leave("a")
        world.run_until(lambda: bool(told(world, "state_kept")), 5.0)
        (custodian,) = [entry.host for entry in world.trace.of("state_kept")]
        other = "c/0" if custodian == "b/0" else "b/0"
        went_on(world, left, 80 * PACES["c"])
        fetched = {e.host: e.fields["version"] for e in world.trace.of("state_fetched", since=before)}
        assert fetched.keys() == {other}
        assert fetched[other] >= left


def test_a_custodian_that_leaves_hands_over_what_its_own_worker_has_not_come_for() -> None:
    with mesh("a") as world:
        left = world.commits()[-1].version
        world.leave("a")
        world.run_until(lambda: bool(told(world, "state_kept")), 5.0)
        (custodian,) = [entry.host for entry in world.trace.of("state_kept")]
        world.leave(custodian.partition("/")[0])
        world.run_until(lambda: not world.hosts[custodian].alive, 5.0)
        assert len(told(world, "state_kept")) == 2
        went_on(world, left, 40 * PACES["c"])


def test_holders_that_leave_at_one_moment_do_not_rely_on_each_other() -> None:
    with mesh("ab") as world:
        left = world.commits()[-1].version
        world.leave("a")
        world.leave("b")
        world.run_until(lambda: not (world.hosts["a/0"].alive or world.hosts["b/0"].alive), 10.0)
        assert {entry.host for entry in world.trace.of("state_kept")} == {"c/0"}
        went_on(world, left, 80 * PACES["c"])


def test_of_a_version_that_others_hold_nothing_is_sent() -> None:
    with mesh("abc", "a", ictp2p.DiLoCo, quorum=1.0) as world:
        left = world.commits()[-1].version
        world.leave("a")
        world.run_until(lambda: not world.hosts["a/0"].alive, 0.1)
        assert not told(world, "state_kept")
        went_on(world, left, 80 * PACES["c"])


def test_nobody_is_warned_where_all_leave_at_once() -> None:
    with mesh("a") as world:
        for name in PACES:
            world.leave(name)
        world.run_until(lambda: not any(host.alive for host in world.every_host()), 60.0)
        assert not told(world, "state_kept")
        assert not [text for fields in told(world, "warning") if "only copy" in (text := fields["text"])]


def test_a_custodian_that_dies_meanwhile_is_replaced() -> None:
    with mesh("a") as world:
        left = world.commits()[-1].version
        for name in "bc":
            world.link("a", name, bandwidth=1e4)  # 3 s
        world.leave("a")
        world.run_for(1.0)
        (first,) = [host.name for host in world.running() if host.cluster != "a" and _takes(host)]
        world.crash(first)
        world.run_until(lambda: bool(told(world, "state_kept")), 60.0)
        assert {entry.host for entry in world.trace.of("state_kept")}.isdisjoint({"a/0", first})
        world.restart(first)
        went_on(world, left, 120.0)


def test_the_only_holder_that_is_killed_and_comes_back_halts_nobody_for_long() -> None:
    """Regression: all waited for two minutes for a version that nobody could bring any more."""
    with mesh("a", "nobody") as world:
        lost = world.commits()[-1].version
        world.crash("a/0")
        world.run_for(0.5)
        world.restart("a/0")
        world.run_until(lambda: world.commits()[-1].version > lost + 1, 60.0)
        assert {(f["lost"], f["source"]) for f in told(world, "state_restored")} == {(lost, lost - 1)}


def test_the_only_holder_that_does_not_come_back_is_waited_for() -> None:
    with mesh("a", "nobody") as world:
        lost = world.commits()[-1].version
        world.crash("a/0")
        world.run_for(110.0)
        assert world.commits()[-1].version == lost
        world.run_until(lambda: world.commits()[-1].version > lost + 1, 60.0)


def _takes(host: Host) -> bool:
    """Whether it answers somebody who leaves, which it does once it has the state."""
    assert host.peer is not None
    return any(desk._serving for desk in host.peer.bulk._desks.values())


def test_who_leaves_waits_no_longer_than_the_others_would_for_what_is_lost() -> None:
    with mesh("a", side=512) as world:
        began = world.now
        for name in "bc":
            world.link("a", name, bandwidth=1.2e4)  # 175 s
        world.leave("a")
        world.run_until(lambda: not world.hosts["a/0"].alive, 200.0)
        assert 120.0 <= world.now - began < 130.0
        (warning,) = [text for fields in told(world, "warning", "a/0") if "only copy" in (text := fields["text"])]
        assert "nobody had taken it in 120 s" in warning


def test_what_each_cluster_holds_a_content_of_its_own_of_is_handed_to_nobody() -> None:
    with World(seed=3, profile="lan") as world:
        for name in PACES:
            world.cluster(name, workers=1, program=learner(ictp2p.NoLoCo))
        world.run_to(60.0)
        world.leave("a")
        world.run_until(lambda: not world.hosts["a/0"].alive, 10.0)
        assert not told(world, "state_kept")
