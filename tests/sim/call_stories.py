"""Clusters whose workers make one call after the other while things happen to them, and what is true of the results."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ictp2p.errors import (
    IctError,
    LocalGroupError,
    MeshMismatch,
    NoQuorum,
    PeerClosed,
    RoundAborted,
    RoundMissed,
    RoundTimeout,
    StateError,
)
from ictp2p.types import PeerId
from sim import World
from sim.training import Training
from tests.sim.call_harms import Harm, Harmed, Life
from tests.sim.call_kinds import KINDS, Call, Got, marks
from tests.sim.call_marks import CALLS, Mark
from tests.sim.call_verdicts import Done, Results, Steps, judge
from tests.sim.calls import Caller

TRIES = CALLS + 4
"""Attempts after which a worker makes no more."""
MEETING = 30.0
"""Virtual seconds in which all have met."""
NEWS = 2.0
"""Virtual seconds in which all hear of all."""
MATES = 60.0
"""Seconds that a call may take beyond its patience, where it waits for workers of its own cluster."""
SLACK = 2.0
LATE = "z"
"""The cluster that comes later."""
DOCUMENTED = (RoundMissed, RoundTimeout, NoQuorum, MeshMismatch, LocalGroupError, StateError)
AGAIN = (RoundTimeout, NoQuorum)
"""What who makes its call again gets the answer after, in step with the others."""


@dataclass(frozen=True)
class Plan:
    """What is tried."""

    layout: tuple[int, ...]
    loop: tuple[str, ...]
    harms: tuple[Harm, ...] = ()
    step: float = 0.0
    flight: int = 1
    """Calls that are asked for at once."""
    again: bool = False
    """Whether calls that failed are made again."""
    patience: float = 25.0
    slow: bool = False
    """Whether the lines are, so that rounds take long."""
    late: float | None = None
    """When one more cluster comes."""
    seed: int = 7


class Failure(NamedTuple):
    """A call that failed."""

    when: float
    life: Life
    attempt: int
    kind: str
    error: IctError


class Story(Harmed):
    """A plan under way, and what each call came to."""

    def __init__(self, plan: Plan) -> None:
        layout = dict(zip("abc", plan.layout, strict=False))
        self.plan = plan
        self.first = [f"{cluster}/{number}" for cluster, workers in layout.items() for number in range(workers)]
        names = [*self.first, *([f"{LATE}/0", f"{LATE}/1"] if plan.late is not None else [])]
        super().__init__(World(seed=plan.seed, profile="local", spare_state=False, spare_quorum=True), names)
        self.results: Results = defaultdict(dict)
        """By round, or version, and worker."""
        self.errors: list[Failure] = []
        self.lost: defaultdict[Life, list[int]] = defaultdict(list)
        """The attempts after which a worker need not be where the others are: it was told, or given their state."""
        self.told: set[Mark] = set()
        """Calls that somebody was told to be behind with, and may have made again all the same."""
        self.synced: set[Life] = set()
        """Who has the state by now: a newcomer has it from others, wherever they are."""
        self.peers: dict[PeerId, str] = {}
        self.came: set[str] = set()
        self.met: set[str] = set()
        self.world.links(delay=0.005, bandwidth=1e8)
        rate = {"up": 2.5e5, "down": 2.5e5} if plan.slow else {}
        for cluster, workers in layout.items():
            self.world.cluster(cluster, workers=workers, program=self.program, **rate)
        if plan.late is not None:
            self.world.cluster(LATE, workers=2, program=self.program, at=4.0 + plan.late, **rate)

    # ------------------------------------------------------------ a worker's program

    def program(self, training: Training) -> None:
        host, caller = training.host, Caller(training)
        assert host.peer is not None
        self.peers[host.peer.id] = host.name
        if host.lives == 1 and host.name in self.first:
            self.meet(training, caller)
        caller._engine.patience = self.plan.patience
        self.calls(training, caller, (host.name, host.lives))
        self.done.add(host.name)
        caller.leave()
        if host.name in self.leaving:
            self.world.at(0.0, lambda: self.world.supervisor.leave(host))
        training.compute(1e7)

    def meet(self, training: Training, caller: Caller) -> None:
        self.came.add(training.host.name)
        while not self.came >= set(self.first):
            training.compute(0.01)
        training.compute(NEWS)
        caller.gather(len(self.plan.layout), 60.0)
        together = torch.zeros(1)
        while together.item() < len(self.first):
            together.fill_(1.0)
            caller.all_reduce(together, op="sum")
        self.met.add(training.host.name)

    def calls(self, training: Training, caller: Caller, life: Life) -> None:
        number, attempt = 0, 0
        zero = marks(Mark(0, 0, 0), len(self.names)).zero_()
        state = {"sum": zero, "round": zero[0].clone()}
        while number < CALLS and life[0] not in self.leaving and attempt < TRIES:
            ahead = self.ahead(number)
            works = [self.ask(caller, life, n, attempt + i, state) for i, n in enumerate(ahead)]
            began, well = training._peer.clock(), []
            for call in works:
                well.append(self.end_of(call, life, began, previous=well))
                began = training._peer.clock()
            for call in itertools.compress(works, well):
                if call.kind is KINDS["sum"]:
                    state["sum"] += call.tensors[0]
                state["round"] += call.round
            attempt += len(works)
            number += len(works) if all(well) else well.index(False) + self.skips(life)
            training.compute(self.plan.step)

    def skips(self, life: Life) -> bool:
        """Whether a worker goes on behind its call that failed: not where the answer is still to be had."""
        errors = [f.error for f in self.errors if f.life == life and not isinstance(f.error, RoundAborted)]
        return not (self.plan.again or isinstance(errors[-1], AGAIN))

    def ahead(self, number: int) -> range:
        """The calls that are asked for at once: none behind one that may change what they bring."""
        last = min(number + self.plan.flight, CALLS)
        return range(number, next((n + 1 for n in range(number, last) if self.name(n) == "sync"), last))

    def name(self, number: int) -> str:
        return self.plan.loop[number % len(self.plan.loop)]

    def ask(self, caller: Caller, life: Life, number: int, attempt: int, state: dict) -> Call:
        clusters = sorted({name[0] for name in self.first})
        kind, root = KINDS[self.name(number)], clusters[(number % len(self.plan.loop) + self.plan.seed) % len(clusters)]
        mark = Mark(self.names.index(life[0]), life[1], number)
        return Call(kind, caller, mark, len(self.names), life[0][0], root, state, attempt)

    def end_of(self, call: Call, life: Life, began: float, previous: list[bool]) -> bool:
        """Whether a call succeeded, once it has ended."""
        clock = call.caller._engine.peer.clock
        slept = self.slept[life[0]]
        try:
            done = call.work.wait()
        except PeerClosed:
            raise
        except IctError as error:
            self.failed(call, life, error, queued=False in previous)
            return False
        finally:
            took = clock() - began - (self.slept[life[0]] - slept)
            alone = not any(name[0] == life[0][0] and name != life[0] for name in self.names)
            assert took <= self.plan.patience + SLACK + (0.0 if alone else MATES), f"{life} at {call.mark} took {took}"
        assert False not in previous, "after one that failed none is begun"
        got = call.kind.got(call, done)
        self.check(call, life, got)
        if call.kind is KINDS["sync"] and (got.received or life not in self.synced):
            self.lost[life].append(call.attempt)
            self.synced.add(life)
        assert life not in self.results[got.key], "one answer of a round"
        call.round = got.key[1]
        self.results[got.key][life] = Done(call.attempt, call.mark.number, got)
        return True

    def failed(self, call: Call, life: Life, error: IctError, *, queued: bool) -> None:
        """Note what a call came to, which may have stood behind one that failed."""
        assert isinstance(error, RoundAborted) if queued else isinstance(error, DOCUMENTED), repr(error)
        assert call.untouched, "a call that fails changes nothing"
        self.errors.append(Failure(self.world.now, life, call.attempt, self.name(call.mark.number), error))
        if not (queued or isinstance(error, AGAIN)):
            self.lost[life].append(call.attempt)
            self.told.add(call.mark)

    def steps(self) -> Steps:
        return Steps({(name, 1) for name in self.first}, self.lost, self.names)

    def check(self, call: Call, life: Life, got: Got) -> None:
        """What one worker can see of its own result."""
        if got.clusters is None:
            return
        assert call.cluster in got.clusters
        inside = {self.names[mark.place] for mark in got.inside}
        if inside and call.kind.adds_up:
            assert call.mark._replace(life=life[1] % 8) in got.inside, "its own tensors, of this very call"
            assert {name[0] for name in inside} == set(got.clusters)
        if inside and self.name(call.mark.number) == "gather":
            assert [self.names[m.place][0] for m in got.listed] == list(got.clusters)
        if self.name(call.mark.number) == "broadcast":
            assert {name[0] for name in inside} == {call.root}
            assert len(inside) == 1
        if inside and got.workers is not None and call.kind.adds_up:
            assert {self.peers[peer] for peer in got.workers} == {name for name in inside if name[0] == call.cluster}


def told(plan: Plan) -> Story:
    """Try it."""
    story = Story(plan)
    with story.world as world:
        world.run_until(lambda: story.met >= set(story.first), MEETING, what="all have met")
        for harm in plan.harms:
            story.harm(harm)
        story.end((plan.patience + MATES) * TRIES)
    judge(story.results, story.told, story.steps())
    if not plan.harms and plan.late is None:
        assert not story.errors, "where nothing happens nothing fails"
    return story
