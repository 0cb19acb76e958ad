"""Without a quorum: who does not want to wait is told, and who is told learns of its return."""

from __future__ import annotations

import asyncio
import dataclasses
import functools

import pytest

from ictp2p.errors import NoQuorum
from ictp2p.runtime.reduction import Outcome, Reduction
from ictp2p.sync.values import Spec
from sim import World

BARRIER = Reduction(Spec("barrier", "there", "", 0, "sum", "none"), (), (), patient=False)


@pytest.mark.parametrize("late", [False, True])
def test_a_reduction_that_is_not_patient_ends_where_nothing_can_be_decided(late: bool) -> None:
    with World(1) as world:
        for name in ("a", "b", "c"):
            world.cluster(name, workers=1, train=False)
        host = world.hosts["a/0"]

        def voters() -> int:
            tip = host.core.m.rounds.tip if host.core else None
            return len(tip[1].voters) if tip else 0

        world.run_until(lambda: world.believes_all() and voters() == 3, within=30)
        world.partition(["a"])
        if late:
            world.run_until(lambda: list(world.trace.of("quorum_lost", host="a/0")), within=60)

        async def barrier() -> Outcome:
            assert host.peer is not None
            return await host.peer.reduce(BARRIER)

        task = world.loop.create_task(barrier(), context=host.context())
        world.run_until(task.done, within=60)
        assert isinstance(task.exception(), NoQuorum)
        world.heal()
        world.run_until(lambda: list(world.trace.of("quorum_regained", host="a/0")), within=60)
        again = world.loop.create_task(barrier(), context=host.context())
        world.run_until(again.done, within=60)
        assert again.result().participants


def test_who_gave_up_does_not_stand_in_the_way_of_the_others() -> None:
    """Regression: its READY stood on, so after the partition every attempt bound it, and all aborted without end."""
    with World(1) as world:
        for name in ("a", "b", "c"):
            world.cluster(name, workers=1, train=False)
        hosts = {name: world.hosts[f"{name}/0"] for name in "abc"}

        def voters() -> int:
            core = hosts["a"].core
            tip = core.m.rounds.tip if core else None
            return len(tip[1].voters) if tip else 0

        def reduction(name: str, work: Reduction) -> asyncio.Task[Outcome]:
            async def reduce() -> Outcome:
                peer = hosts[name].peer
                assert peer is not None
                return await peer.reduce(work)

            return world.loop.create_task(reduce(), context=hosts[name].context())

        world.run_until(lambda: world.believes_all() and voters() == 3, within=30)
        world.partition(["c"])
        given_up = reduction("c", BARRIER)
        world.run_until(given_up.done, within=60)
        assert isinstance(given_up.exception(), NoQuorum)
        world.heal()
        world.run_until(world.believes_all, within=60)
        for name in "ab":
            world.loop.perform(functools.partial(hosts[name].peer.set_training, True))
        world.run_for(10.0)
        patient = dataclasses.replace(BARRIER, patient=True)
        others = [reduction(name, patient) for name in "ab"]
        world.run_until(lambda: all(task.done() for task in others), within=30)
        assert [task.result().participants for task in others] == [("a", "b")] * 2
        assert not list(world.trace.of("round_aborted"))
