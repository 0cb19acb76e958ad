"""Calls of clusters of one to three workers while workers die, sleep and come back, and clusters are cut off.

Each worker brings who it is and which of its calls this is, each in places of its own, so a sum says what is in it.
What must hold, whatever happens: all who got a round got the same of it; in it are the tensors of exactly those whom
`Completed` names, each worker's own among them, of this very call; workers that have seen no error stay together, the
n-th call of one with the n-th of the other; and every call ends. `CALLS=200 pytest tests/sim/test_calls_at_random.py`
tries many more.
"""

from __future__ import annotations

import itertools
import os
from collections import defaultdict

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ictp2p.calls.completed import Completed
from ictp2p.errors import IctError
from ictp2p.types import PeerId
from sim import World
from sim.training import Training
from tests.sim.call_harms import Harm, Harmed, Life
from tests.sim.calls import Caller

LAYOUTS = ((2, 2), (3, 1), (1, 1, 1), (2, 1, 1), (3, 2), (3,))
LOOPS = (("all_reduce",), ("all_reduce", "barrier"), ("barrier", "all_reduce", "barrier"))
CALLS = 8
STORIES = int(os.environ.get("CALLS", "12"))
MEETING = 4.0
"""Virtual seconds until all have met and call."""
BOUND = 60.0 * 2 * CALLS
"""Virtual seconds in which the last calls end: each has 60, and one that failed may have cost its mates as much."""


HARMS = st.builds(
    Harm,
    st.floats(0.01, 3.0),
    st.sampled_from(["crash", "restart", "sleep", "sleep", "cut"]),
    st.integers(0, 5),
    st.sampled_from([0.3, 1.5, 5.0, 12.0]),
)


class Story(Harmed):
    """A world, what is done to it, and what each call came to."""

    def __init__(self, layout: tuple[int, ...], loop: tuple[str, ...], step: float) -> None:
        clusters = dict(zip("abc", layout, strict=False))
        names = [f"{cluster}/{number}" for cluster, workers in clusters.items() for number in range(workers)]
        super().__init__(World(seed=7, profile="local", spare_state=False, spare_quorum=True), names)
        self.layout, self.loop, self.step = layout, loop, step
        self.results: defaultdict[int, dict[Life, tuple[int, torch.Tensor | None]]] = defaultdict(dict)
        """By round and worker: the number of its call, and the sum that it got."""
        self.errors: defaultdict[Life, list[int]] = defaultdict(list)
        """The numbers of the calls that failed."""
        self.peers: dict[PeerId, int] = {}
        """Places of the workers."""
        self.world.links(delay=0.005, bandwidth=1e8)
        for cluster, workers in clusters.items():
            self.world.cluster(cluster, workers=workers, program=self.program)

    def program(self, training: Training) -> None:
        host, caller = training.host, Caller(training)
        assert host.peer is not None
        life, place = (host.name, host.lives), self.names.index(host.name)
        self.peers[host.peer.id] = place
        if host.lives == 1:
            training.meet()
            caller.gather(len(self.layout), 60.0)
        for number in range(CALLS):
            self.call(caller, self.loop[number % len(self.loop)], life, place, number)
            training.compute(self.step)
        self.done.add(host.name)
        caller.leave()
        training.compute(1e7)

    def call(self, caller: Caller, kind: str, life: Life, place: int, number: int) -> None:
        tensor = torch.zeros(2 * len(self.names), dtype=torch.int64)
        tensor[2 * place], tensor[2 * place + 1] = 1, 1000 * life[1] + number
        brought = tensor.clone()
        try:
            done = caller.barrier() if kind == "barrier" else caller.all_reduce(tensor, op="sum")
        except IctError:
            self.errors[life].append(number)
            assert torch.equal(tensor, brought), "a call that fails changes nothing"
        else:
            assert done.round > max((round_ for round_, held in self.results.items() if life in held), default=0)
            self.results[done.round][life] = number, None if kind == "barrier" else tensor
            if kind != "barrier":
                self.check(done, tensor, brought)

    def check(self, done: Completed, tensor: torch.Tensor, brought: torch.Tensor) -> None:
        """What one worker can see of its own result."""
        ours = brought != 0
        assert torch.equal(tensor[ours], brought[ours]), "its own tensors are in it, of this very call"
        inside = {name for name, times in zip(self.names, tensor[::2].tolist(), strict=True) if times}
        assert set(tensor[::2].tolist()) <= {0, 1}, "nobody's twice"
        assert {name[0] for name in inside} == set(done.clusters)
        cluster = self.names[int(brought.argmax()) // 2][0]
        assert {self.names[self.peers[peer]] for peer in done.workers} == {n for n in inside if n[0] == cluster}

    def verdict(self) -> None:
        """What only who sees all of them can say."""
        apart: dict[tuple[Life, Life], tuple[int, int]] = {}
        for round_, held in sorted(self.results.items()):
            kinds = {tensor if tensor is None else tuple(tensor.tolist()) for _, tensor in held.values()}
            assert len(kinds) == 1, f"round {round_}: all have the same bits"
            for one, other in itertools.combinations(sorted(held), 2):
                now = held[one][0], held[other][0]
                before = apart.get((one, other), (-1, -1) if one[1] == other[1] == 1 else None)
                if before is not None and not self.failed(one, before[0], now[0], other, before[1], now[1]):
                    assert now[0] - before[0] == now[1] - before[1], f"round {round_}: {one} and {other} are apart"
                apart[one, other] = now

    def failed(self, one: Life, since: int, until: int, other: Life, after: int, before: int) -> bool:
        """Whether a call of either failed meanwhile: then it may be behind, as it was told."""
        return any(since < n < until for n in self.errors[one]) or any(after < n < before for n in self.errors[other])


@pytest.mark.timeout(60 + 10 * STORIES)
@given(st.sampled_from(LAYOUTS), st.sampled_from(LOOPS), st.sampled_from([0.0, 0.3, 1.0]), st.lists(HARMS, max_size=5))
@settings(
    max_examples=STORIES,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_whatever_happens_sums_are_of_those_named_and_calls_stay_in_step(
    layout: tuple[int, ...], loop: tuple[str, ...], step: float, harms: list[Harm]
) -> None:
    story = Story(layout, loop, step)
    with story.world as world:
        world.run_for(MEETING)
        for harm in harms:
            story.harm(harm)
        story.end(BOUND)
    story.verdict()
