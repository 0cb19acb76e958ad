"""Collective calls while workers die, stop and come back: every call ends, in time, and all who got a sum got the same.

The values are powers of two, so a sum names its parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.calls.rounds import RoundCall
from ictp2p.collectives.running.digest import ResultDigest
from ictp2p.errors import IctError, RoundMissed, RoundTimeout
from ictp2p.telemetry import Event
from sim import World
from sim.training import Program, Training
from tests.sim.calls import Caller

VALUES = {"a/0": 1.0, "a/1": 2.0, "a/2": 4.0, "b/0": 8.0, "b/1": 16.0}
WHOLE = sum(VALUES.values())
ROUNDS = 4
ELEMENTS = 20_000
STEP = 0.1
BOUND = 30.0
"""Virtual seconds within which all calls must have ended after the last harm; each has 60."""


def call(value: float, number: int) -> torch.Tensor:
    """What a worker brings to a call; no two calls come to the same bytes."""
    tensor = torch.full((ELEMENTS,), value)
    tensor[0] = number
    return tensor


def alike(tensor: torch.Tensor) -> float:
    """The value of all of its elements."""
    assert bool((tensor == tensor[0]).all())
    return tensor[0].item()


class Story:
    """A world whose workers all-reduce again and again, and what each got."""

    def __init__(self, seed: int, *, clusters: str = "ab", rounds: int = ROUNDS, at_once: bool = False) -> None:
        self.clusters, self.rounds, self.at_once = clusters, rounds, at_once
        self.values = {name: value for name, value in VALUES.items() if name[0] in clusters}
        self.met: set[str] = set()
        self.done: set[str] = set()
        self.sums: dict[str, dict[int, float]] = {name: {} for name in self.values}
        """By worker, by round."""
        self.errors: list[tuple[str, IctError]] = []
        self.dead: set[str] = set()
        self.world = World(seed=seed, profile="local")
        self.world.links(delay=0.001, bandwidth=1e8)
        for cluster in clusters:
            workers = sum(name[0] == cluster for name in VALUES)
            self.world.cluster(cluster, workers=workers, program=self.program(), up=0.5e6, down=0.5e6)

    def program(self) -> Program:
        def run(training: Training) -> None:
            name, caller = training.host.name, Caller(training)
            caller.gather(len(self.clusters), 60.0)
            while not self.together(caller, VALUES[name]):
                pass
            self.met.add(name)
            calls = [call(VALUES[name], number) for number in range(self.rounds)]
            for tensors in [calls] if self.at_once else [[tensor] for tensor in calls]:
                works = [self.ask(caller, tensor) for tensor in tensors]
                missed = [not self.answered(name, *call) for call in zip(tensors, works, strict=True)]
                if any(missed):
                    break
                training.compute(STEP)
            caller.leave()
            self.done.add(name)
            training.compute(1e6)

        return run

    def together(self, caller: Caller, value: float) -> bool:
        tensor = torch.tensor([value])
        caller.all_reduce(tensor, op="sum")
        return tensor.item() == sum(self.values.values())

    def answered(self, name: str, tensor: torch.Tensor, work: ictp2p.Work[Any]) -> bool:
        """Whether a call succeeded; what it came to is noted."""
        try:
            done = work.wait()
        except IctError as error:
            assert bool((tensor[1:] == VALUES[name]).all()), "a call that failed has touched nothing"
            self.errors.append((name, error))
            return False
        self.sums[name][done.round] = self.came_to(done, tensor)
        return True

    def ask(self, caller: Caller, tensor: torch.Tensor) -> ictp2p.Work[Any]:
        return caller.all_reduce(tensor, op="sum", async_op=True)

    def came_to(self, done: Any, tensor: torch.Tensor) -> float:
        """The sum that a call gave."""
        return alike(tensor[1:])

    def begin(self, after: float = 0.0) -> Story:
        self.world.run_until(lambda: len(self.met) == len(self.values), within=120.0, what="all have met")
        self.world.run_for(after)
        return self

    def leader(self, cluster: str) -> str:
        return self.world.leaders()[cluster]

    def follower(self, cluster: str) -> str:
        return next(name for name in self.values if name[0] == cluster and name != self.leader(cluster))

    def crash(self, name: str) -> None:
        self.dead.add(name)
        self.world.crash(name)

    def crash_when(self, name: str, kind: str, nth: int, later: float, whom: str = "") -> None:
        """Kill a worker so many seconds after it, or another, told of something for the n-th time from now."""
        left = nth

        def told(event: Event) -> None:
            nonlocal left
            left -= event.kind == kind
            if left == 0:
                self.world.at(later, lambda: self.crash(whom or name))

        peer = self.world.hosts[name].peer
        assert peer is not None
        peer.telemetry.subscribe(told)

    def pause(self, name: str, seconds: float) -> None:
        self.world.pause(name)
        self.world.run_for(seconds)
        self.world.resume(name)

    def end(self) -> list[tuple[str, str]]:
        """Wait for everybody who lives; who got which error."""
        self.world.run_until(
            lambda: self.done | self.dead == set(self.values), within=BOUND, what="every call of who lives has ended"
        )
        living = [sums for name, sums in self.sums.items() if name not in self.dead]
        for number in {number for sums in living for number in sums}:
            assert len({sums[number] for sums in living if number in sums}) == 1, f"one sum in round {number}"
        return [(name, type(error).__name__) for name, error in self.errors]

    def alike(self) -> set[tuple[float, ...]]:
        """The sequences of sums of those who live."""
        return {tuple(sums.values()) for name, sums in self.sums.items() if name not in self.dead}


class Scattering(Story):
    """Each cluster gets its part of the sum."""

    def ask(self, caller: Caller, tensor: torch.Tensor) -> ictp2p.Work[Any]:
        return caller.reduce_scatter(tensor, op="sum", async_op=True)

    def came_to(self, done: Any, tensor: torch.Tensor) -> float:
        assert done.stop - done.start == len(done.part) == ELEMENTS // len(done.clusters)
        return alike(done.part[1:])


class Gathering(Story):
    """Everybody gets what each cluster's leader brings."""

    def ask(self, caller: Caller, tensor: torch.Tensor) -> ictp2p.Work[Any]:
        return caller.all_gather(tensor, async_op=True)

    def came_to(self, done: Any, tensor: torch.Tensor) -> float:
        brought = {cluster: alike(group[0][1:]) for cluster, group in done.tensors.items()}
        assert all(value in {v for n, v in self.values.items() if n[0] == name} for name, value in brought.items())
        return sum(brought.values())


def told(
    seed: int, harm: Callable[[Story], object], after: float = 0.0, kind: type[Story] = Story, **options: Any
) -> Story:
    story = kind(seed, **options)
    with story.world:
        harm(story.begin(after))
        story.end()
    return story


MOMENTS = [0.0, 0.15, 0.3, 0.45, 0.6, 0.75]


@pytest.mark.parametrize("after", MOMENTS)
def test_whenever_a_leader_dies_nobody_sees_an_error(after: float) -> None:
    story = told(1, lambda story: story.crash(story.leader("a")), after)
    assert story.errors == []
    (sums,) = story.alike()
    assert set(sums) <= {WHOLE, WHOLE - VALUES[next(iter(story.dead))]}


@pytest.mark.parametrize("later", [0.0, 0.001])
def test_what_was_committed_as_a_leader_died_is_not_lost_on_its_followers(later: float) -> None:
    story = told(2, lambda story: story.crash_when(story.leader("a"), "round_committed", 2, later))
    assert story.errors == []
    (sums,) = story.alike()
    assert sums == (WHOLE, WHOLE, *[WHOLE - VALUES[next(iter(story.dead))]] * (ROUNDS - 2))


def test_a_result_that_no_other_cluster_has_is_had_from_who_followed() -> None:
    story = told(4, lambda story: story.crash_when(story.leader("a"), "round_committed", 2, 0.003), clusters="a")
    assert story.errors == []
    (sums,) = story.alike()
    assert sums == (7.0, 7.0, 7.0, 7.0 - VALUES[next(iter(story.dead))])


def test_a_result_that_no_mate_has_is_had_from_another_cluster() -> None:
    """Of three workers one dies in the round, so that nothing is streamed any more, and the leader as it commits."""

    def harm(story: Story) -> None:
        leader = story.leader("a")
        story.crash_when(leader, "round_opened", 1, 0.01, whom=story.follower("a"))
        story.crash_when(leader, "round_committed", 2, 0.0)

    story = told(3, harm)
    assert story.errors == []
    (sums,) = story.alike()
    left = WHOLE - sum(VALUES[name] for name in story.dead)
    assert sums == (WHOLE, WHOLE, *[left] * (ROUNDS - 2))


def test_the_leaders_of_both_clusters_die_one_after_the_other() -> None:
    """The second at the moment at which the first one's cluster is between two leaders."""

    def harm(story: Story) -> None:
        first, second = story.leader("a"), story.leader("b")
        peer = story.world.hosts[second].peer
        assert peer is not None
        peer.telemetry.subscribe(lambda event: dead(event) and story.world.at(0.05, lambda: story.crash(second)))
        story.crash(first)

    def dead(event: Event) -> bool:
        return event.kind == "member" and event.fields["scope"] == "mesh" and event.fields["status"] == "dead"

    story = told(5, harm, 0.25)
    assert len(story.dead) == 2
    assert story.errors == []
    assert len(story.alike()) == 1


@pytest.mark.parametrize("seconds", [1.5, 4.0])
def test_a_leader_that_stops_and_returns_is_told_what_it_missed(seconds: float) -> None:
    story = told(6, lambda story: story.pause(story.leader("a"), seconds), 0.2, rounds=16)
    assert {type(error) for _, error in story.errors} <= {RoundMissed}


class Repeating(Story):
    """Cluster a waits for each call less long than b takes to vote on the first, and repeats what failed."""

    PATIENCE, VOTE = 1.5, 3.0

    def __init__(self, seed: int, *, pause: float, new: bool) -> None:
        self.pause, self.new = pause, new
        self.summed: dict[str, list[float]] = {name: [] for name in VALUES}
        """By worker, the sums of the calls' numbers."""
        super().__init__(seed)

    def program(self) -> Program:
        def run(training: Training) -> None:
            name, caller = training.host.name, Caller(training)
            caller.gather(len(self.clusters), 60.0)
            while not (self.new or self.together(caller, VALUES[name])):
                pass
            self.met.add(name)
            for number in range(1, self.rounds + 1):
                caller._engine.patience = self.PATIENCE if (name[0], number) == ("a", 1) else 60.0
                while not self.answered(name, tensor := call(VALUES[name], number), self.ask(caller, tensor)):
                    training.compute(self.pause)
                self.summed[name].append(tensor[0].item())
                training.compute(STEP)
            caller.leave()
            self.done.add(name)
            training.compute(1e6)

        return run


class SlowDigest(ResultDigest):
    """A worker that computes for long before it votes."""

    compute: Callable[[float], None]

    def digest(self) -> bytes:
        self.compute(Repeating.VOTE)
        return super().digest()


@pytest.mark.parametrize("pause", [0.0, Repeating.VOTE], ids=["decided meanwhile", "decided before"])
@pytest.mark.parametrize("new", [False, True], ids=["not its first", "its first"])
def test_a_call_that_is_repeated_after_its_leader_voted_is_not_the_next_one(
    new: bool, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the round was committed without anybody at a, whose repetition got garbage, or others' next call."""
    left, usual = ["first"], RoundCall._digest

    def digest(self: RoundCall, result: torch.Tensor) -> ResultDigest:
        if self._spec.elements != ELEMENTS or self._mesh.host.cluster != "b" or not left:  # type: ignore[attr-defined]
            return usual(self, result)
        left.clear()
        slow = SlowDigest([result.numpy().data])
        slow.compute = self._mesh.compute  # type: ignore[attr-defined]
        return slow

    monkeypatch.setattr(RoundCall, "_digest", digest)
    story = Repeating(3, pause=pause, new=new)
    with story.world:
        story.begin()
        errors = story.end()
    assert {(name[0], error) for name, error in errors} == {("a", "RoundTimeout")}
    assert list(story.summed.values()) == [[number * len(VALUES) for number in range(1, ROUNDS + 1)]] * len(VALUES)


@pytest.mark.parametrize("harm", ["leader", "follower", "leaders", "cluster"])
def test_calls_that_are_in_flight_at_once_all_end(harm: str) -> None:
    victims = {
        "leader": lambda story: [story.leader("a")],
        "follower": lambda story: [story.follower("b")],
        "leaders": lambda story: [story.leader("a"), story.leader("b")],
        "cluster": lambda story: ["b/0", "b/1"],
    }[harm]
    story = told(7, lambda story: [story.crash(name) for name in victims(story)], 0.2, at_once=True)
    assert story.errors == []
    (sums,) = story.alike()
    assert len(sums) == ROUNDS


@pytest.mark.parametrize("kind", [Scattering, Gathering])
@pytest.mark.parametrize("who", ["cluster", "leader"])
@pytest.mark.parametrize("after", MOMENTS)
def test_whenever_a_cluster_dies_the_others_get_their_parts_of_what_is_left(
    after: float, who: str, kind: type[Story]
) -> None:
    """Regression: its death in the second round of such a call was an error about elements, for all who were left."""
    victims = {"cluster": lambda story: ["b/0", "b/1"], "leader": lambda story: [story.leader("b")]}[who]
    story = told(8, lambda story: [story.crash(name) for name in victims(story)], after, kind)
    assert story.errors == []
    assert all(len(sums) == ROUNDS for sums in story.alike())


@pytest.mark.parametrize("how", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("at", [1.0, 1.05, 1.1, 1.15, 1.2])
def test_who_comes_between_the_two_rounds_of_a_call_waits_for_its_end(at: float, how: str) -> None:
    """Regression: it was refused, for others were at `all_gather` and it at the first round of it; they were warned."""
    taken: dict[str, list[tuple[str, ...]]] = {cluster: [] for cluster in "abc"}
    warnings: list[str] = []

    def run(training: Training) -> None:
        cluster, caller = training.host.cluster, Caller(training)
        caller.gather(2, 60.0)
        for _ in range(6 if cluster == "c" else 16):
            done: Any = getattr(caller, how)(torch.full((ELEMENTS,), 1.0))
            taken[cluster].append(tuple(done.tensors) if how == "all_gather" else done.clusters)
            training.compute(STEP / 2)
        caller.leave()
        training.compute(1e6)

    with World(seed=3, profile="local") as world:
        world.links(delay=0.01, bandwidth=1e8)
        world.trace.subscribers.append(lambda e: warnings.append(e.fields["text"]) if e.kind == "warning" else None)
        for cluster in "abc":
            world.cluster(cluster, workers=1, program=run, up=1e6, down=1e6, at=at if cluster == "c" else 0.0)
        world.run_for(25.0)
    assert warnings == []
    alone, all_three = ("a", "b"), ("a", "b", "c")
    before = taken["a"].index(all_three)
    assert taken["c"] == [all_three] * 6
    assert taken["a"] == taken["b"] == [alone] * before + [all_three] * 6 + [alone] * (10 - before)


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
