"""Who starts again, or was away, and comes to the calls of the others: in between them, or to the next one."""

from __future__ import annotations

import pytest
import torch

import ictp2p
from ictp2p.errors import IctError, RoundMissed, RoundTimeout
from sim import World
from sim.training import Training
from tests.sim.call_world import ELEMENTS, STEP
from tests.sim.calls import Caller


@pytest.mark.parametrize("how", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("at", [6.07, 6.14])
def test_a_worker_that_starts_again_is_let_in_between_two_calls_of_its_mates(how: str, at: float) -> None:
    """Regression: it was between the two rounds of one call, which came to `MeshMismatch` for all of them."""
    errors: list[tuple[str, str]] = []

    def run(training: Training) -> None:
        name, caller = training.host.name, Caller(training)
        caller.gather(2, 60.0)
        for _ in range(60):
            try:
                getattr(caller, how)(torch.full((ELEMENTS,), 1.0))
            except IctError as error:
                errors.append((name, str(error)))
            training.compute(STEP / 2)
        caller.leave()
        training.compute(1e6)

    with World(seed=1, profile="local") as world:
        world.links(delay=0.01, bandwidth=1e8)
        world.cluster("a", workers=3, program=run, up=1e6, down=1e6)
        world.cluster("b", workers=2, program=run, up=1e6, down=1e6)
        world.run_for(at)
        victim = next(host.name for host in world.of("a") if host.name != world.leaders()["a"])
        world.crash(victim)
        world.run_for(1.0)
        world.restart(victim)
        world.run_for(12.0)
    assert errors == []


def test_who_begins_with_a_call_that_its_mates_make_no_more_leaves_them_to_theirs() -> None:
    """Regression: it came again at once, into each of their groups, and they came to no call any more."""
    calls: dict[str, int] = {}

    def run(training: Training) -> None:
        name, caller = training.host.name, Caller(training)
        caller.gather(2, 60.0)
        caller.barrier()
        while True:
            caller.all_reduce(torch.ones(ELEMENTS))
            calls[name] = calls.get(name, 0) + 1
            training.compute(0.1)

    with World(seed=0, profile="local") as world:
        world.links(delay=0.01, bandwidth=1e8)
        world.cluster("a", workers=3, program=run)
        world.cluster("b", workers=2, program=run)
        world.run_for(5.0)
        leader = world.leaders()["a"]
        victim = next(host.name for host in world.of("a") if host.name != leader)
        world.crash(victim)
        world.run_for(1.0)
        alone, before = calls[victim], calls[leader]
        world.run_for(10.0)
        usual = calls[leader] - before
        world.restart(victim)
        world.run_for(10.0)
        assert calls[leader] - before - usual > 0.6 * usual
    assert calls[victim] == alone, "none of its mates calls the barrier"


def test_all_workers_of_a_cluster_are_told_of_a_round_that_it_missed() -> None:
    """Regression: if the group broke in the call, its leader alone was, and was a call ahead of its mates for good."""
    values = {"a/0": 1.0, "a/1": 2.0, "a/2": 4.0, "b/0": 8.0, "b/1": 16.0, "c/0": 32.0, "c/1": 64.0}
    at: dict[int, dict[str, int]] = {}
    missed: set[str] = set()

    def run(training: Training) -> None:
        name, caller = training.host.name, Caller(training)
        caller.gather(3, 60.0)
        met = torch.zeros(1)
        while met.item() != sum(values.values()):
            met.fill_(values[name])
            caller.all_reduce(met, op="sum")
        for number in range(14):
            try:
                done = caller.all_reduce(torch.full((ELEMENTS,), values[name]), op="sum")
                at.setdefault(done.round, {})[name] = number
            except RoundMissed:
                missed.add(name)
            training.compute(23.0 if name[0] != "a" and number == 3 else 2.0)
        training.compute(1e6)

    with World(seed=1, profile="local") as world:
        world.links(delay=0.01, bandwidth=1e8)
        for cluster, workers in (("a", 3), ("b", 2), ("c", 2)):
            world.cluster(cluster, workers=workers, program=run, up=0.5e6, down=0.5e6)
        world.run_for(4.0)
        leader = world.leaders()["a"]
        victim, mate = (host.name for host in world.of("a") if host.name != leader)
        opened: list[float] = []
        peer = world.hosts[leader].peer
        assert peer is not None
        peer.telemetry.subscribe(lambda event: opened.append(world.now) if event.kind == "round_opened" else None)
        world.run_until(lambda: len(opened) == 3, within=60.0, what="the third round")
        world.partition(["a"])
        world.run_for(0.02)
        world.crash(victim)
        world.run_for(14.0)
        world.heal()
        world.run_for(40.0)
    assert missed == {leader, mate}
    assert all(len({n for name, n in calls.items() if name[0] == "a"}) <= 1 for calls in at.values())


def test_who_was_away_from_a_training_for_many_rounds_has_missed_no_call_after_it() -> None:
    """Regression: the rounds whose decisions it had not seen counted as calls, and its next one was refused."""
    sums: dict[str, list[float]] = {"a/0": [], "b/0": [], "c/0": []}

    def program(training: Training) -> None:
        caller = Caller(training)
        training.meet()
        caller.gather(3, 60.0)
        caller.barrier()
        model = torch.nn.Linear(1, 1)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        with ictp2p.DiLoCo(training, model, inner, sync_every=1) as policy:
            while policy.rounds < 50:
                training.compute(0.2)
                inner.step()
        for number in range(2):
            tensor = torch.tensor(float(number))
            caller.all_reduce(tensor, op="sum")
            sums[training.host.name].append(tensor.item())
        training.compute(1e6)

    with World(seed=3, profile="local") as world:
        world.links(delay=0.002, bandwidth=1e8)
        for cluster in "abc":
            world.cluster(cluster, workers=1, program=program)
        world.run_for(4.0)
        world.pause("c/0")
        world.run_for(7.0)
        world.resume("c/0")
        world.run_until(lambda: all(len(found) == 2 for found in sums.values()), 60.0)
    assert set(map(tuple, sums.values())) == {(0.0, 3.0)}


@pytest.mark.parametrize("odd", ["barrier", "shape", "state"])
def test_a_call_that_is_refused_is_one_error_and_the_next_one_is_the_others_next(odd: str) -> None:
    """Regression: the others' round ended after the refusal, counted as one more, and calls were one apart for good."""
    sums: dict[str, list[tuple[int, float]]] = {}
    errors: list[tuple[str, int]] = []

    def program(training: Training) -> None:
        name, caller = training.host.name, Caller(training)
        training.meet()
        caller.gather(3, 60.0)
        shared = {"w": torch.ones(2)}
        if odd == "state":
            caller.sync_state(shared)
        for number in range(4):
            wrong = name == "a/0" and number == 1
            tensor = torch.full((20_001 if wrong and odd == "shape" else 20_000,), float(number))
            try:
                if wrong and odd != "shape":
                    caller.barrier() if odd == "barrier" else caller.sync_state(shared)
                else:
                    caller.all_reduce(tensor, op="sum")
                    sums.setdefault(name, []).append((number, tensor[0].item()))
            except IctError:
                errors.append((name, number))
            training.compute(0.5 if name == "a/0" or number else 1.5)  # who is refused is there before the others
        training.compute(1e6)

    with World(seed=1, profile="local") as world:
        for cluster in "abc":
            world.cluster(cluster, workers=1, program=program, up=0.5e6, down=0.5e6)
        world.run_until(lambda: sum(map(len, sums.values())) + len(errors) == 12, 90.0)
    assert errors == [("a/0", 1)]
    assert sums == {
        "a/0": [(0, 0.0), (2, 6.0), (3, 9.0)],
        **{name: [(0, 0.0), (1, 2.0), (2, 6.0), (3, 9.0)] for name in ("b/0", "c/0")},
    }


def test_a_cluster_that_starts_again_in_a_loop_of_two_calls_finds_the_others_at_its_own() -> None:
    """Regression: each call of it was refused while the others were at the other one, and so on for good."""
    outcomes: dict[str, list[int]] = {"a/0": [], "b/0": []}
    """How many clusters were in each call of the loop, 0 for an error; of the newest lives."""

    def program(training: Training) -> None:
        caller, found = Caller(training), outcomes[training.host.name]
        found.clear()
        caller.gather(2, 60.0)
        while True:
            for call in (lambda: caller.all_reduce(torch.ones(4), op="sum"), caller.barrier):
                try:
                    found.append(len(call().clusters))
                except IctError:
                    found.append(0)
                training.compute(1.0)

    with World(seed=1, profile="local", spare_quorum=True) as world:
        world.links(delay=0.005, bandwidth=1e8)
        for cluster in "ab":
            world.cluster(cluster, workers=1, program=program, up=1e6, down=1e6)
        world.run_for(6.0)
        world.crash("b/0")
        world.run_for(1.0)
        world.restart("b/0")
        world.run_for(30.0)
    assert len(outcomes["b/0"]) > 20
    assert set(outcomes["b/0"]) == {2}
    assert set(outcomes["a/0"][-20:]) == {2}


@pytest.mark.parametrize("how", ["all_gather", "reduce_scatter"])
def test_both_rounds_of_a_call_have_one_deadline(how: str) -> None:
    """Regression: each had its own, so that a call took up to twice as long as one may."""
    took: list[float] = []

    def run(training: Training) -> None:
        host, caller = training.host, Caller(training)
        training.meet()
        caller.gather(3, 60.0)
        caller.barrier()
        caller._engine.patience = 5.0
        if host.cluster == "b":  # it comes late, and brings nothing to the second round
            training.compute(4.0)
            host.world.at(0.03, lambda: host.world.pause(host.name))
        began = training._peer.clock()
        with pytest.raises(RoundTimeout):
            getattr(caller, how)(torch.ones(ELEMENTS))
        took.append(round(training._peer.clock() - began, 1))
        training.compute(1e6)

    with World(seed=1, profile="local", spare_quorum=True) as world:
        world.links(delay=0.01, bandwidth=1e8)
        for name in "abc":
            world.cluster(name, workers=1, program=run, up=1e5, down=1e5)
        world.run_for(15.0)
    assert took == [5.0, 5.0]
