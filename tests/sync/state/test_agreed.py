from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from ictp2p.errors import ConfigError
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.state.agreed import Agenda, Said
from ictp2p.sync.state.manifest import Entry
from ictp2p.sync.values import Participant
from ictp2p.types import ClusterId, PeerId


class Votes:
    """Counts who said what, in a tensor and a number of the global state."""

    def __init__(self, says: bytes = b"", name: str = "votes") -> None:
        self.name, self._says = name, says
        self.entries = (Entry(f"{name} by letter", "int64", (26,)),)
        self.counters = {f"{name} in all": 0}
        self.heard: list[tuple[int, list[int]]] = []

    def describe(self) -> Sequence[tuple[str, str]]:
        return [(self.name, "yes")]

    def note(self) -> bytes:
        return self._says

    def decide(self, counters: dict[str, int], tensors: Mapping[str, torch.Tensor], said: Sequence[Said]) -> None:
        for _, note in said:
            counters[f"{self.name} in all"] += len(note)
            for letter in note:
                tensors[f"{self.name} by letter"][letter - ord("a")] += 1

    def landed(self, counters: Mapping[str, int], tensors: Mapping[str, torch.Tensor]) -> None:
        self.heard.append((counters[f"{self.name} in all"], tensors[f"{self.name} by letter"][:3].tolist()))


def worker(votes: Votes, steps: int = 8) -> Callable[[Any], DiLoCo]:
    def body(mesh: Any) -> DiLoCo:
        model = torch.nn.Linear(2, 1)
        torch.nn.init.zeros_(model.weight)
        torch.nn.init.zeros_(model.bias)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        with DiLoCo(mesh, model, inner, sync_every=4, agenda=[votes]) as policy:
            for _ in range(steps):
                model(torch.ones(2)).square().backward()
                inner.step()
            return policy

    return body


def test_what_each_cluster_says_is_in_the_state_of_all(make_world: Any) -> None:
    votes = [Votes(b"ab"), Votes(b"ab"), Votes(b"c")]
    found = make_world(a=2, b=1).run(a_0=worker(votes[0]), a_1=worker(votes[1]), b_0=worker(votes[2]))
    assert len({policy.digest() for policy in found.values()}) == 1
    for kept in votes:
        assert kept.heard[-1] == (6, [2, 2, 2])
        assert (3, [1, 1, 1]) in kept.heard


def test_a_round_that_came_to_nothing_decides_nothing(make_world: Any) -> None:
    world, votes = make_world(a=1), Votes(b"a")
    world.aborts = {0}
    world.run(a_0=worker(votes))
    assert votes.heard[-1] == (1, [1, 0, 0])


@pytest.mark.parametrize("count", range(8))
def test_it_survives_the_leader(make_world: Any, killed: Any, count: int) -> None:
    world = make_world(a=2, b=1)
    world.faults["a/0", "broadcast", count] = killed
    votes = [Votes(b"ab"), Votes(b"ab"), Votes(b"c")]
    found = world.run(a_0=worker(votes[0]), a_1=worker(votes[1]), b_0=worker(votes[2]))
    assert found["a_1"].digest() == found["b_0"].digest()
    assert votes[1].heard[-1] == votes[2].heard[-1] == (6, [2, 2, 2])


def test_a_note_that_makes_no_sense_says_nothing() -> None:
    votes = Votes()
    tensors = {"votes by letter": torch.zeros(26, dtype=torch.int64)}
    parts = [Participant(ClusterId(c), PeerId(""), 1, 1.0, note) for c, note in (("a", b"\xff\x00"), ("b", b""))]
    assert Agenda([votes]).decide({"votes in all": 5}, tensors, parts) == {"votes in all": 5}


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="votes"):
        Agenda([Votes(), Votes()])


def test_too_much_to_say_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'long': 1020\} bytes are more than the 1024"):
        Agenda([Votes(b"a" * 1020, "long")]).note()
