"""An outer step that is taken while its average arrives is the one that would have been taken at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ictp2p.concurrency.elementwise import elementwise
from ictp2p.concurrency.torch_threads import Job
from ictp2p.sync.model import stepping
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.optimizers.delayed import DelayedNesterov
from ictp2p.sync.optimizers.mirror import MirrorDescent
from ictp2p.sync.pace import Pace
from ictp2p.sync.state.agreed import Agenda, Said
from ictp2p.sync.state.halves import Halves
from ictp2p.sync.state.manifest import Entry
from ictp2p.sync.values import LOOKS_ON, Participant
from ictp2p.types import ClusterId, PeerId

OUTER: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None] = {
    "nesterov": None,
    "without momentum": lambda params: torch.optim.SGD(params, lr=0.5),
    "delayed": lambda params: DelayedNesterov(params, every=3),
    "mirror": lambda params: MirrorDescent(params, mirror="p-norm"),
    "of torch": lambda params: torch.optim.Adam(params, lr=1e-3),
}
IN_PARTS = ("nesterov", "without momentum", "delayed")
BATCH = 256
"""Bytes that are stepped at once here."""
ROUNDS = 4

Ranges = list[tuple[int, int]]


@pytest.fixture(autouse=True)
def batches_of_some_elements(small_batches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "_BATCH", BATCH)


class Model(nn.Module):
    """Parameters of many sizes, one of none, and buffers of which one is a variance."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(7, 5), nn.BatchNorm1d(5), nn.Linear(5, 41)
        self.nothing, self.scale = nn.Parameter(torch.empty(0, 5)), nn.Parameter(torch.tensor(2.0))


def weights(outer: str, fragments: int = 1, *, pace: Pace | None = None) -> Weights:
    torch.manual_seed(1)
    model = Model()
    schedule = (lambda rounds: 1.0 / (1 + rounds)) if outer == "nesterov" else None
    return Weights(model, OUTER[outer], [], fragments, pace=pace, schedule=schedule)


def brought(by: Weights, seed: int) -> torch.Tensor:
    by.capture(0.0)
    return torch.randn(by.average.numel(), generator=torch.Generator().manual_seed(seed))


def parts(*counts: float) -> tuple[Participant, ...]:
    return tuple(Participant(ClusterId(f"c{i}"), PeerId("0" * 32), 0, w, b"") for i, w in enumerate(counts))


@st.composite
def arrivals(draw: st.DrawFn) -> list[float]:
    """Where an average is cut, as parts of its size."""
    return draw(st.lists(st.floats(0.0, 1.0), max_size=12))


def ranges(size: int, cuts: Sequence[float]) -> Ranges:
    ends = sorted({0, size, *(int(cut * size) for cut in cuts)})
    return list(pairwise(ends))


@given(
    outer=st.sampled_from(sorted(OUTER)),
    fragments=st.integers(1, 3),
    who=st.sampled_from([parts(1.0), parts(1.0, 2.0), parts(1.0, 1.0, 3.0, LOOKS_ON), parts(LOOKS_ON, LOOKS_ON)]),
    cuts=arrivals(),
    data=st.data(),
)
def test_the_bits_are_those_of_a_step_at_once(
    outer: str, fragments: int, who: Sequence[Participant], cuts: list[float], data: st.DataObject
) -> None:
    """Whatever arrives in which order, told or not, and whatever came of attempts before."""
    early, late = weights(outer, fragments), weights(outer, fragments)
    for number in range(ROUNDS):
        average = brought(early, number)
        brought(late, number)
        told = data.draw(st.permutations(ranges(len(average), cuts)))
        for attempt in data.draw(st.lists(st.sampled_from(["broken off", "finished"]), max_size=2)):
            early.restart(parts(5.0))
            for start, stop in told[: data.draw(st.integers(0, len(told)))]:
                early.average[start:stop] = float("nan")
                early.arrived(start, stop)
            if attempt == "finished":
                early.finish(parts(5.0))
        early.restart(who)
        for start, stop in told[data.draw(st.integers(0, 1)) :]:
            early.average[start:stop] = average[start:stop]
            early.arrived(start, stop)
        early.average.copy_(average)
        late.average.copy_(average)
        assert early.finish(who) == late.finish(who)
        for each in (early, late):
            each.commit(number + 1)
        assert bytes(early.state.memory(committed=True)) == bytes(late.state.memory(committed=True))


@pytest.mark.parametrize("outer", OUTER)
def test_what_has_arrived_is_stepped_before_the_rest_is_here(outer: str) -> None:
    early, late = weights(outer), weights(outer)
    average = brought(early, 0)
    brought(late, 0)
    late.average.copy_(average)
    late.finish(parts(1.0))
    early.restart(parts(1.0))
    batch = BATCH // 4
    early.average[:batch] = average[:batch]
    early.arrived(0, batch - 1)
    before = bytes(early.state.memory(committed=False))
    early.arrived(batch - 1, batch)
    stepped, once = (each.state._halves.tentative["first.weight"] for each in (early, late))
    assert (bytes(early.state.memory(committed=False)) != before) == (outer in IN_PARTS)
    assert torch.equal(stepped, once) == (outer in IN_PARTS)


def test_what_is_final_is_hashed_before_the_rest_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, digests = list[int](), Halves.digests

    def counted(self: Halves, chunks: Sequence[int]) -> dict[int, bytes]:
        found = digests(self, chunks)
        sizes.append(len(found))
        return found

    large = Weights(nn.Linear(1024, 2048, bias=False), None, [])
    large.capture(0.0)
    chunks = large.state._halves.count
    large.restart(parts(1.0))
    monkeypatch.setattr(Halves, "digests", counted)
    for start in range(0, 2**21, 2**17):
        large.arrived(start, start + 2**17)
    assert sum(sizes) == chunks == 16
    sizes.clear()
    large.finish(parts(1.0))
    assert not sum(sizes)


@pytest.mark.parametrize("moved", ["fetched", "rolled back", "written to", "given back", "begun anew"])
def test_what_arrives_late_writes_to_no_state_that_has_become_another_one(moved: str) -> None:
    """An attempt ended, and the mesh is elsewhere: what is still told of it comes to nothing."""
    late, other = weights("nesterov"), weights("nesterov")
    average = brought(late, 0)
    brought(other, 0)
    other.average.fill_(1.0)
    other.finish(parts(1.0))
    other.commit(1)
    late.average.copy_(average)
    late.restart(parts(1.0))
    late.arrived(0, 70)
    if moved == "fetched":
        other.state.hand_on(other.state.digest, 1, late.state)
    elif moved == "given back":
        late.state.release()
    elif moved == "begun anew":
        late.state.begin()
    elif moved == "rolled back":
        late.state.rollback()
    else:
        late.state.tentative["first.weight"].fill_(3.0)
    before = [bytes(late.state.memory(committed=half)) for half in (True, False)]
    late.arrived(70, len(average))
    assert [bytes(late.state.memory(committed=half)) for half in (True, False)] == before
    digest = late.finish(parts(1.0))
    late.restart(parts(1.0))
    assert late.finish(parts(1.0)) == digest


def test_what_was_voted_on_is_kept_until_it_is_stepped_anew() -> None:
    """A second attempt mostly comes to the same bits, and may be committed by others while it fails here."""
    voter = weights("nesterov")
    voter.average.copy_(brought(voter, 0))
    voter.restart(parts(1.0))
    voter.arrived(0, voter.average.numel())
    digest = voter.finish(parts(1.0))
    voter.restart(parts(1.0))
    voter.arrived(0, voter.average.numel() - 1)
    assert voter.state.sealed == digest
    voter.commit(1)
    assert voter.state.incoming.chunks == hashlib.sha256(voter.state.memory(committed=True)).digest()


def test_a_step_that_went_wrong_in_its_midst_is_taken_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted, other = weights("nesterov"), weights("nesterov")
    average = brought(interrupted, 0)
    brought(other, 0)
    for each in (interrupted, other):
        each.average.copy_(average)

    def interrupt(jobs: Iterable[Job]) -> None:
        elementwise(jobs)
        raise KeyboardInterrupt

    interrupted.restart(parts(1.0))
    with monkeypatch.context() as patch:
        patch.setattr(stepping, "elementwise", interrupt)
        with pytest.raises(KeyboardInterrupt):
            interrupted.arrived(0, 100)
    interrupted.arrived(100, len(average))
    assert interrupted.finish(parts(1.0)) == other.finish(parts(1.0))


def test_a_step_goes_by_the_participants_that_it_is_finished_with() -> None:
    early, late = weights("delayed"), weights("delayed")
    average = brought(early, 0)
    brought(late, 0)
    for each in (early, late):
        each.average.copy_(average)
    early.restart(parts(1.0, 1.0))
    early.arrived(0, len(average))
    assert early.finish(parts(1.0)) == late.finish(parts(1.0))


class Rounds:
    """Counts rounds, in a tensor of the state."""

    name, counters = "rounds", MappingProxyType({})
    entries = (Entry("rounds so far", "int64", ()),)

    def describe(self) -> list[tuple[str, str]]:
        return []

    def note(self) -> bytes:
        return b""

    def decide(self, counters: dict[str, int], tensors: Mapping[str, torch.Tensor], said: Sequence[Said]) -> None:
        tensors["rounds so far"] += 1

    def landed(self, counters: Mapping[str, int], tensors: Mapping[str, torch.Tensor]) -> None: ...


def test_what_is_decided_last_is_in_the_digest() -> None:
    """It lies in one chunk with what is final before."""
    counted = Weights(nn.Linear(7, 5), None, [], agenda=Agenda([Rounds()]))
    counted.restart(parts(1.0))
    counted.arrived(0, counted.average.numel())
    counted.finish(parts(1.0))
    counted.commit(1)
    assert counted.state.incoming.chunks == hashlib.sha256(counted.state.memory(committed=True)).digest()
