"""A leader hands on what was committed, once, and brings nothing again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from ictp2p.calls.chronicle import Chronicle, Past
from ictp2p.calls.heads import Flag, Head, Heads, Place
from ictp2p.calls.rounds import AllReduce
from ictp2p.calls.tensors import Addend, Bundle
from ictp2p.collectives.plan import one_shot_plan
from ictp2p.collectives.running import digest
from ictp2p.collectives.running.digest import result_digest
from ictp2p.errors import RoundMissed
from ictp2p.runtime.reduction import Outcome
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.mesh import RoundRequest
from ictp2p.sync.values import Close, Open, Participant, StateRef
from ictp2p.types import PeerId
from tests.calls.alone import CLUSTERS, MATE, ME, OTHER, Alone


def test_what_is_voted_is_what_is_held_though_an_attempt_before_it_had_brought_something_else() -> None:
    fake: Any = Alone()
    wrong, right = torch.full((10,), -1.0), torch.arange(10.0)
    fake.attempts = [(wrong, [(0, 3), (3, 9)]), (right, [(5, 10), (0, 5)])]
    mine = torch.zeros(10)
    call = AllReduce(fake, Past(Chronicle(PeerId("1" * 32), CLUSTERS[0]), fake), Addend(Bundle(mine), "avg"))
    heads: Any = Heads((Head(Place(), 0, call.fingerprint, 1.0, Flag.NONE),), 0)
    with patch.object(digest, "BLOCK", 16):
        answer = call.act(fake, heads, SimpleNamespace(check=lambda: None))  # type: ignore[arg-type]
        assert fake.kept is not None
        assert fake.kept[0] == result_digest(right.numpy().data) == result_digest(answer.memory.numpy().data)
    assert not mine.any()
    call.accept(answer)
    assert torch.equal(mine, right)


class Unseen(Alone):
    """A mesh that commits round after round, of which the caller's peer does not see the end of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.result = torch.full((4,), 7.0)
        self.chronicle = Chronicle(ME, CLUSTERS[0])
        self.call = AllReduce(self, Past(self.chronicle, self), Addend(Bundle(torch.ones(4)), "sum"))  # type: ignore[arg-type]
        self.stood = 0
        self.rounds: list[tuple[PeerId, ...]] = []
        """Who leads a cluster in each of the rounds that are to be decided while the caller stands READY."""
        self.decided = 0

    def commit(self, *leaders: PeerId) -> None:
        self.decided += 1
        head = (b"lineage.", (ME,), StateRef(0, b"", ()), ME, self.decided, 1)
        parts = tuple(Participant(CLUSTERS[leader != ME], leader, 1, 1.0) for leader in leaders)
        plan = one_shot_plan(leaders, 4).encode()
        digest = result_digest(self.result.numpy().data)
        self.chronicle.notice(Decided(2 * self.decided - 1, Open(*head, self.call.spec, parts, plan, "", 1.0)))
        self.chronicle.notice(Decided(2 * self.decided, Close(*head, True, digest, "", (leaders[-1],))))

    def round(self, request: RoundRequest) -> Outcome:
        self.stood += 1
        if self.rounds:
            self.commit(*self.rounds.pop(0))
            raise RoundMissed("committed before this cluster held its result, or without it")
        self.attempts = [(self.result, [(0, 4)])]
        return super().round(request)

    def fetch_answer(self, opened: Open, close: Close, memory: Tensor) -> None:
        memory.copy_(self.result.view(torch.uint8))

    def wait_for(self, future: object, idle: object) -> None:
        """It is here."""

    def act(self) -> Tensor:
        heads: Any = Heads((Head(Place(), 0, self.call.fingerprint, 1.0, Flag.NONE),), 0)
        deadline: Any = SimpleNamespace(check=lambda: None)
        answer = self.call.act(self, heads, deadline)  # type: ignore[arg-type]
        self.done = self.call.accept(answer)
        return answer.memory.view(torch.float32)


def test_what_was_committed_and_not_heard_of_is_not_brought_again() -> None:
    """This peer led that round, so none is missed: nothing else keeps the call from standing for another."""
    mesh = Unseen()
    mesh.chronicle.settle(0)
    mesh.chronicle.acts((ME, MATE))  # when it was called the first time
    mesh.commit(ME, OTHER)
    assert mesh.chronicle.missed is None
    assert torch.equal(mesh.act(), mesh.result)
    assert mesh.stood == 0
    assert mesh.done.workers == (ME, MATE)


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_newcomer_does_not_bring_again_what_was_committed_before_it_held_the_result(before: int) -> None:
    """Rounds that were committed without it, before, are none that it missed: it was promised none."""
    mesh = Unseen()
    mesh.rounds = [(OTHER,)] * before + [(ME, OTHER)]
    assert torch.equal(mesh.act(), mesh.result)
    assert mesh.stood == before + 1


def test_a_newcomer_does_not_stand_again_after_rounds_in_which_it_may_have_been() -> None:
    mesh = Unseen()
    mesh.rounds = [(OTHER,), (OTHER,), (OTHER,)]
    commit = mesh.commit

    def after_a_while(*leaders: PeerId) -> None:
        mesh.decided += mesh.stood == 2  # what was decided while it was away nobody told it
        commit(*leaders)

    mesh.commit = after_a_while  # type: ignore[method-assign]
    with pytest.raises(RoundMissed):
        mesh.act()
    assert mesh.stood == 2
