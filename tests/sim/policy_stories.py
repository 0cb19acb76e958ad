"""Clusters that train with a policy while workers die, sleep, leave and come, and what becomes of each gradient.

Whoever holds a version of the state shows it here, and so does each worker its model after each step. What one of them
cannot see is judged in the end, from all versions and from what was decided.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ictp2p.sync.two_level.policy import Policy
from ictp2p.sync.values import LOOKS_ON, REMEMBERED, Close, Open, Restore
from sim import World
from sim.host import Host
from sim.training import Training
from tests.sim.calls import UnevenGroup
from tests.sim.marks import KINDS, STEPS, Count, Kind, Marks, bits, places
from tests.tally import Count as Tallied
from tests.tally import Summing, Tally, Watched

LAYOUTS = ((2, 2), (3, 1), (1, 1, 1), (2, 1, 1), (3, 2), (3,), (2, 2, 2))
HARMS = ("crash", "restart", "restart", "sleep", "sleep", "leader sleeps", "leader dies", "cut", "worker cut", "slow")
ARRIVALS = ("leave", "all leave", "join")
NEWCOMER = "n"
MEETING = 3.0
"""Virtual seconds until all have met and train."""
MORE = 6
"""Versions that are agreed on after the last harm has ended."""
BOUND = 300.0
"""Virtual seconds in which they are, by all."""
Life = tuple[str, int]
"""A worker's name, and which of its lives."""
Content = tuple[Life, Tensor]
"""What was held, and by whom first."""
ERROR = 1e-4
"""By how much a mean that is worked out here may differ from one that was agreed on."""


@dataclass(frozen=True)
class Harm:
    """Something happens to a worker, by number, to the leader of its cluster or to all of that."""

    after: float
    kind: str
    whom: int = 0
    seconds: float = 0.0


@dataclass
class Story:
    """A world, what is done to it, and what was seen in it."""

    layout: tuple[int, ...]
    kind: str
    step: float
    harms: tuple[Harm, ...]
    held: dict[int, tuple[Life, bytes, Mapping[str, Tensor]]] = field(default_factory=dict, repr=False)
    """By version, who held it first, and what it was."""
    models: dict[Any, tuple[Life, bytes]] = field(default_factory=dict, repr=False)
    """By group and step, who took it first, and what its model was then."""
    having: dict[Life, tuple[int, set[tuple[str, int]]]] = field(default_factory=dict, repr=False)
    """Version of each worker, and what was in its model or in that."""
    trained: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int), repr=False)
    done: set[str] = field(default_factory=set, repr=False)
    leaving: set[str] = field(default_factory=set, repr=False)
    slept: set[str] = field(default_factory=set, repr=False)
    """Clusters of which a worker has."""
    goal = float("inf")
    awake = 0.0
    kinds: ClassVar[Mapping[str, Kind]] = KINDS

    @classmethod
    def drawn(cls, seed: int) -> Self:
        """One of very many."""
        chance = random.Random(seed)

        def harm() -> Harm:
            kind, whom = chance.choice((*HARMS, *ARRIVALS)), chance.randrange(6)
            return Harm(round(chance.uniform(0.01, 3.0), 4), kind, whom, chance.choice((0.3, 1.5, 5.0, 12.0)))

        layout, kind, step = chance.choice(LAYOUTS), chance.choice(list(cls.kinds)), chance.choice((0.2, 0.4, 0.8))
        return cls(layout, kind, step, tuple(harm() for _ in range(chance.randrange(6))))

    def __post_init__(self) -> None:
        clusters = {**dict(zip("abc", self.layout, strict=False)), NEWCOMER: 1}
        self.names = [f"{cluster}/{number}" for cluster, workers in clusters.items() for number in range(workers)]
        self.policy = self.kinds[self.kind]
        self.world = World(seed=7, profile="local", spare_quorum=True)
        self.world.links(delay=0.005, bandwidth=1e8)
        for cluster, workers in clusters.items():
            at = None if cluster == NEWCOMER else 0.0
            self.world.cluster(cluster, workers=workers, program=self.program, at=at)

    def play(self) -> None:
        """All of it."""
        with self.world as world:
            world.run_for(MEETING)
            for harm in self.harms:
                world.run_for(harm.after)
                self.harm(harm, world.hosts[self.names[harm.whom % (len(self.names) - 1)]])
            self.end()
        self.verdict()

    # ------------------------------------------------------------ who trains

    def program(self, training: Training) -> None:
        host = training.host
        _as_gloo(training)
        life, number = (host.name, host.lives), self.names.index(host.name)
        model = self.model(host.cluster)
        inner = Count(model)
        with self.policy.make(training, model, inner) as policy:
            policy.weight = _weight(number)
            self.watch(policy, life)
            while policy.version < self.goal and host.name not in self.leaving:
                model.trained(number * STEPS + self.trained[host.name])
                self.trained[host.name] += 1
                training.compute(self.step)
                inner.step()
                self.look(policy, model, life)
        self.over(training)

    def model(self, cluster: str) -> Marks:
        """What a cluster trains."""
        return Marks(len(self.names), self.policy.parts)

    def over(self, training: Training) -> None:
        """A program has ended. Its peer goes on, for others may want the state of it, unless it was to leave."""
        host = training.host
        self.done.add(host.name)
        if host.name in self.leaving:
            self.world.at(0.0, lambda: self.world.supervisor.leave(host))
        training.compute(1e7)

    def watch(self, policy: Policy, life: Life) -> None:
        """Look at each version that it comes to, also at those between two steps."""
        landing = policy._outer_round._landing
        act = landing.act

        def acted(verdict: Any) -> None:
            act(verdict)
            self.holds(policy, life)

        landing.act = acted  # type: ignore[method-assign]
        self.holds(policy, life)

    def holds(self, policy: Policy, life: Life) -> None:
        version, tensors = policy.version, policy.state.committed
        found = bits(tensors) + repr(sorted(policy.state.counters.items())).encode()
        if version not in self.held:
            self.held[version] = life, found, {name: tensor.clone() for name, tensor in tensors.items()}
        first, known, _ = self.held[version]
        assert found == known, f"{life} and {first} hold different states as version {version}"
        assert policy.state.digest == self.world.ledger.versions[version].digest, "it is what was agreed on"

    def look(self, policy: Policy, model: Marks, life: Life) -> None:
        """What one worker can see of its own model after a step, and what its mates have to see as well."""
        self.holds(policy, life)
        here = {name: part.detach() for name, part in model.named_parameters()}
        group = policy._loop._groups._present
        if group is not None:
            step = (life[0][0], group.generation, group.members, policy.progress.step)
            first, known = self.models.setdefault(step, (life, bits(here)))
            assert bits(here) == known, f"{life} and {first} hold different models after step {step}"
        agreed = policy.state.committed
        having = {(name, place) for name, part in here.items() for place in places(part) | places(agreed[name])}
        before, had = self.having.get(life, (policy.version, set()))
        remembered = policy.version - before <= REMEMBERED and life[0][0] not in self.slept
        assert had <= having or not (self.policy.keeps and remembered), f"{life} has lost {had - having}"
        self.having[life] = policy.version, having

    # ------------------------------------------------------------ what happens

    def harm(self, harm: Harm, host: Host) -> None:
        world, mates = self.world, {each.name for each in self.world.of(host.cluster)}
        leader = world.hosts[world.leaders().get(host.cluster, host.name)]
        match harm.kind:
            case "crash":
                self.crash(host)
            case "restart" if self.crash(host):
                world.run_for(harm.seconds / 10)
                world.restart(host.name)
            case "leader dies":
                self.crash(leader)
            case "sleep" | "leader sleeps":
                self.sleep(host if harm.kind == "sleep" else leader, harm.seconds)
            case "cut" | "worker cut" if len(self.names) > 2:
                self.apart(host.cluster if harm.kind == "cut" else host.name, harm.seconds)
            case "slow":
                world.slow(host.name, factor=10.0)
                world.at(harm.seconds, lambda: world.slow(host.name))
            case "leave" if self.holders() - {host.name}:
                self.leaving.add(host.name)
            case "all leave" if self.holders() - mates:
                self.leaving |= mates
            case "join" if not world.hosts[self.names[-1]].lives:
                world.join(NEWCOMER)

    def sleep(self, host: Host, seconds: float) -> None:
        self.slept.add(host.cluster)
        self.world.pause(host.name)
        self.world.at(seconds, lambda: self.world.resume(host.name))
        self.awake = max(self.awake, self.world.now + seconds)

    def apart(self, side: str, seconds: float) -> None:
        """Cut off a cluster, or a worker, whose mates then go on without it as if it slept."""
        if "/" in side:
            self.slept.add(side[0])
        self.world.partition([side])
        self.world.run_for(seconds)
        self.world.heal()

    def crash(self, host: Host) -> bool:
        """Kill a worker, unless the newest state would die with it; whether it was."""
        newest = self.world.ledger.versions.get(self.world.version())
        if not host.alive or not self.holders(None if newest is None else newest.digest) - {host.name}:
            return False
        self.world.crash(host.name)
        return True

    def holders(self, digest: bytes | None = None) -> set[str]:
        """Who stays and holds a state, that one if it is given."""
        states = {
            host.name: host.training.global_state
            for host in self.world.every_host()
            if host.alive and host.training is not None and host.name not in self.leaving
            if host.training.life == host.lives
        }
        held = {name: state for name, state in states.items() if state is not None and state.version}
        return {name for name, state in held.items() if digest in (None, state.digest, state.sealed)}

    def end(self) -> None:
        """All harms end, and all go on from there together."""
        world = self.world
        world.run_to(max(world.now, self.awake))
        for host in world.every_host():
            if host.lives and not host.alive and not host.gone:
                self.done.discard(host.name)
                self.leaving.discard(host.name)
                world.restart(host.name)
        self.goal = world.version() + MORE
        staying = {host.name for host in world.every_host() if host.lives} - self.leaving
        world.run_until(lambda: staying - self.leaving <= self.done, BOUND, step=1.0, what="the end of training")

    # ------------------------------------------------------------ what it was

    def verdict(self) -> None:
        """Each gradient is in the state once at most, and all that a decision names are in it at its weights."""
        gone = {version for back in self.restored() for version in _undone(back)}
        inside: dict[tuple[int, int], int] = {}
        for opened, version in self.committed():
            brought = self.brought(opened, version)
            for place in brought if version not in gone else ():
                assert place not in inside, f"{place} is in {version} and in {inside[place]}"
                inside[place] = version

    def restored(self) -> list[Restore]:
        """Where the mesh went back to."""
        return [value for value in self.world.auditor.agreement.values.values() if isinstance(value, Restore)]

    def committed(self) -> Iterator[tuple[Open, int]]:
        """The rounds that were, and the version that each has made."""
        values = self.world.auditor.agreement.values
        for (lineage, slot), value in sorted(values.items()):
            opened = values.get((lineage, slot - 1))
            if isinstance(value, Close) and value.committed and isinstance(opened, Open):
                yield opened, value.state.version

    def brought(self, opened: Open, version: int) -> set[tuple[int, int]]:
        """What came in with a version, by part of the model and place."""
        found: set[tuple[int, int]] = set()
        if not self.held.keys() >= {version - 1, version}:
            return found
        before, after = self.held[version - 1][2], self.held[version][2]
        weights = {part.cluster: part.weight for part in opened.participants}
        clusters = sum(weight > LOOKS_ON for weight in weights.values())
        for part in range(self.policy.parts):
            average = self.policy.average(before, after, f"parts.{part}", clusters)
            theirs: defaultdict[str, list[int]] = defaultdict(list)
            for place in places(average):
                theirs[self.names[place // STEPS][0]].append(place)
                found.add((part, place))
            assert theirs.keys() <= weights.keys(), f"version {version} holds {theirs} of whom had no part in it"
            for cluster, weight in weights.items() if theirs else ():
                self.weighed(average[theirs[cluster]], theirs[cluster], weight, sum(weights.values()))
        return found

    def weighed(self, average: Tensor, marks: list[int], weight: float, total: float) -> None:
        """A cluster's part in an average is each of its gradients, once, at the weight of all of them."""
        counted = sum(_weight(place // STEPS) for place in marks)
        assert not self.policy.exact or abs(weight - counted) < 1e-6, f"{counted} for {marks} count {weight}"
        assert torch.allclose(average, torch.tensor(weight / total), rtol=self.policy.error), f"{marks}: {average}"


class Sampled(Story):
    """The same with a sampler: the state says how often each sample is in it, and the leases which should be."""

    size, epochs = 100, 2

    def program(self, training: Training) -> None:
        _as_gloo(training)
        sampler, model = Watched(self.size, 2, seed=3, epochs=self.epochs, keep=3), Tally(self.size)
        inner = Tallied(model, sampler)
        with Summing(training, model, inner, 3, sampler=sampler) as policy:
            while not sampler.finished and training.host.name not in self.leaving:
                for indices in sampler:
                    inner.zero_grad()
                    model(torch.tensor(indices)).backward()
                    training.compute(self.step)
                    inner.step()
                    if training.host.name in self.leaving:
                        break
            if sampler.finished:
                tally = policy.global_parameters()["tally"]
                assert torch.equal(tally, torch.full_like(tally, self.epochs)), "each sample is in it once per epoch"
        self.over(training)

    def verdict(self) -> None:
        """It was seen by each of them."""


def _as_gloo(training: Training) -> None:
    """Have the groups of its cluster break for some of its workers before others, as Gloo's do."""
    make: Any = lambda roster, patience: UnevenGroup(roster, training, patience)  # noqa: E731
    training._make_group = make  # type: ignore[method-assign]


def _weight(number: int) -> float:
    return 1.0 + number % 2


def _undone(back: Restore) -> range:
    """The versions that died."""
    return range(back.source + 1, back.state.version)
