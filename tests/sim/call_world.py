"""Two clusters that make the same calls again and again, in a simulated world.

The values are powers of two, so a sum names its parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import ictp2p
from ictp2p.errors import IctError
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


def told(
    seed: int, harm: Callable[[Story], object], after: float = 0.0, kind: type[Story] = Story, **options: Any
) -> Story:
    story = kind(seed, **options)
    with story.world:
        harm(story.begin(after))
        story.end()
    return story
