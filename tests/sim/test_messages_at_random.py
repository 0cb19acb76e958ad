"""`send` and `recv` between leaders while they die, sleep and are cut off: what was sent comes, in its order, and once.

Also over relays, to which the same happens, and which leave; and on connections that break or are forgotten.

`CALLS=200 pytest tests/sim/test_messages_at_random.py` tries many more.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict

import pytest
import torch
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import ictp2p
from ictp2p.errors import RoundAborted, RoundTimeout
from ictp2p.types import ClusterId
from sim import World
from sim.training import Training
from tests.sim.call_harms import Harm, Harmed, Life
from tests.sim.calls import Caller

STORIES = int(os.environ.get("CALLS", "3"))
LAYOUTS = (((2, 2), ""), ((1, 1, 1), ""), ((2, 1, 2), ""), ((1, 1, 1), "bc"), ((1, 2, 2), "bc"))
"""Workers of each cluster, and which clusters cannot be dialed: two of these meet at a third one."""
HARMS = st.builds(
    Harm,
    st.floats(0.01, 2.0),
    st.sampled_from(["crash", "restart", "sleep", "cut", "down", "two", "leave", "reset", "forget", "forget"]),
    st.integers(0, 4),
    st.sampled_from([0.3, 1.5, 5.0]),
)
MEETING = 4.0
ENDING = 20.0
"""Virtual seconds that messages go on after the last harm."""
PATIENCE = 3.0
SLACK = 3.0
ELEMENTS = (1, 20_000)
LONG = 2.0
"""Seconds of sleep after which a leader may be taken for dead."""
DOCUMENTED = (RoundAborted, RoundTimeout)


class Story(Harmed):
    """Clusters in a ring, each of whose leader sends to the next one, and receives from the one before."""

    def __init__(self, layout: tuple[int, ...], hidden: str, elements: int, seed: int) -> None:
        self.clusters, self.elements = "abc"[: len(layout)], elements
        names = [f"{name}/{n}" for name, workers in zip(self.clusters, layout, strict=True) for n in range(workers)]
        super().__init__(World(seed=seed, profile="local", spare_quorum=True), names)
        self.world.links(delay=0.005, bandwidth=1e8)
        self.received: defaultdict[Life, list[tuple[int, ...]]] = defaultdict(list)
        """Of whom, which of its lives, and which of its messages, in their order."""
        self.sent: set[tuple[int, ...]] = set()
        """The messages that were said to be received."""
        self.inherited: set[str] = set()
        """Clusters of which somebody may have taken over: it may be given what its leader had, which may be gone."""
        for name, workers in zip(self.clusters, layout, strict=True):
            self.world.cluster(name, workers=workers, program=self.program, up=1e6, down=1e6, nat=name in hidden)

    def program(self, training: Training) -> None:
        host, caller = training.host, Caller(training)
        caller._engine.patience = PATIENCE
        caller.gather(len(self.clusters), 60.0)
        at, number = self.clusters.index(host.cluster), 0
        target, source = self.clusters[at - 1], self.clusters[(at + 1) % len(self.clusters)]
        while host.name not in self.leaving:
            number += 1
            mark = self.names.index(host.name), host.lives, number
            self.receive(training, caller, source, self.send(caller, target, mark), mark)
            training.compute(0.1)
        self.world.at(0.0, lambda: self.world.supervisor.leave(host))
        training.compute(1e7)

    def send(self, caller: Caller, target: str, mark: tuple[int, ...]) -> ictp2p.Work[None]:
        message = [torch.tensor(mark), torch.full((self.elements,), mark[2])]
        return caller.send(message, ClusterId(target), async_op=True)

    def receive(
        self, training: Training, caller: Caller, source: str, sending: ictp2p.Work[None], mark: tuple[int, ...]
    ) -> None:
        """Take one message, and see what became of the one that was sent meanwhile."""
        whose, content = torch.zeros(3, dtype=torch.int64), torch.zeros(self.elements, dtype=torch.int64)
        life = training.host.name, training.host.lives
        if self.ended(training, caller.recv([whose, content], ClusterId(source), async_op=True)):
            self.received[life].append(tuple(whose.tolist()))
            assert self.names[int(whose[0])][0] == source
            assert bool((content == whose[2]).all())
        else:
            assert int(whose.abs().sum() + content.abs().sum()) == 0, "nothing has come"
        if self.ended(training, sending):
            self.sent.add(mark)

    def ended(self, training: Training, work: ictp2p.Work[None]) -> bool:
        """Whether a message came through; it is known in time."""
        clock, slept = training._peer.clock, self.slept[training.host.name]
        began = clock()
        try:
            work.wait()
        except DOCUMENTED:
            return False
        finally:
            took = clock() - began - (self.slept[training.host.name] - slept)
            assert took <= PATIENCE + SLACK, f"{training.host.name}: {took}"
        return True

    def harm(self, harm: Harm) -> None:
        slept_on = harm.kind == "sleep" and harm.seconds < LONG
        if harm.kind not in {"cut", "reset", "forget"} and not slept_on:
            self.inherited.add(self.names[harm.whom % len(self.names)][0])
        super().harm(harm)

    def verdict(self) -> None:
        found = Counter(mark for marks in self.received.values() for mark in marks)
        twice = {self.target(mark) for mark, times in found.items() if times > 1}
        assert self.inherited >= twice, "none comes twice"
        for marks in self.received.values():
            for whose in {mark[:2] for mark in marks}:
                numbers = [mark[2] for mark in marks if mark[:2] == whose]
                assert numbers == sorted(set(numbers)), "they come in the order in which they were sent, and once"
        for mark in self.sent - set(found):
            name, life, number = self.names[mark[0]], *mark[1:]
            assert self.target(mark) in self.inherited, f"message {number} of {name} in life {life} was not received"

    def target(self, mark: tuple[int, ...]) -> str:
        """Whom a message is for."""
        return self.clusters[self.clusters.index(self.names[mark[0]][0]) - 1]


CUT_IN_TWO = [
    Harm(1.479143387106533, "sleep", 0, 0.3),
    Harm(0.99999, "sleep", 2, 1.5),
    Harm(1.335094280178909, "cut", 2, 0.3),
    Harm(1.7626128978424813, "cut", 2, 5.0),
]
"""What was under way when the time of a `recv` was over was lost, and its `send` had ended well."""


AT_A_RELAY = [Harm(1.0, "forget", 0, 0.3), Harm(0.8, "sleep", 0, 1.5), Harm(2.3, "restart", 0, 1.5)]
"""What happens to the cluster over which two others meet."""


@pytest.mark.timeout(60 + 10 * STORIES)
@example(((2, 1, 2), ""), 20_000, 0, CUT_IN_TWO)
@example(((1, 1, 1), "bc"), 20_000, 0, AT_A_RELAY)
@given(st.sampled_from(LAYOUTS), st.sampled_from(ELEMENTS), st.integers(0, 3), st.lists(HARMS, max_size=4))
@settings(
    max_examples=STORIES,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_whatever_happens_messages_come_in_their_order_and_once(
    clusters: tuple[tuple[int, ...], str], elements: int, seed: int, harms: list[Harm]
) -> None:
    story = Story(*clusters, elements, seed)
    with story.world as world:
        world.run_for(MEETING)
        for harm in harms:
            story.harm(harm)
        world.run_for(ENDING)
        assert harms or all(len(story.received[name, 1]) > 20 for name in world.leaders().values())
    story.verdict()


@pytest.mark.parametrize("seed", range(3))
def test_who_answers_each_message_goes_on_when_connections_are_reset(seed: int) -> None:
    """Regression: the word was lost with its connection, and nobody asked for more: both stood until `complete`."""
    world, answered = World(seed=seed, profile="local", spare_quorum=True), 0
    world.links(delay=0.02, bandwidth=1e8)

    def program(training: Training) -> None:
        nonlocal answered
        caller, other = Caller(training), ClusterId({"a": "b", "b": "a"}[training.host.cluster])
        caller.gather(2, 60.0)
        asks, number = training.host.cluster == "a", torch.zeros(1, dtype=torch.int64)
        for turn in range(10_000):
            if asks:
                caller.send(torch.tensor([turn]), other)
            caller.recv(number, other)
            assert number.item() == turn
            if not asks:
                caller.send(number, other)
            answered = turn

    for cluster in "ab":
        world.cluster(cluster, workers=1, program=program, up=1e7, down=1e7)
    with world:
        world.run_for(MEETING)
        for reset in range(10):
            world.run_for(0.5 + 0.011 * reset)
            world.reset_connections("a/0", "b/0")
            before = answered
            world.run_for(2.0)
            assert answered > before
