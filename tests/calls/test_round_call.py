"""Which answer a call takes that a mate handed over."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from ictp2p.calls.chronicle import Chronicle, Past
from ictp2p.calls.completed import Completed
from ictp2p.calls.handing import Answer
from ictp2p.calls.rounds import AllReduce, Barrier, Broadcast
from ictp2p.calls.tensors import Addend, Bundle
from ictp2p.errors import RoundMissed
from ictp2p.types import ClusterId
from tests.calls.alone import CLUSTERS, ME, NOBODY, OTHER, Alone


def test_an_answer_that_a_mate_handed_over_is_accounted_for_when_this_worker_leads_next() -> None:
    chronicle = Chronicle(ME, ClusterId("a"))
    call = Barrier(NOBODY, Past(chronicle, NOBODY))
    done = Completed(7, (ClusterId("a"),), 0.0, 0, 0, "star", "because")
    call.accept(Answer(call.fingerprint, msgspec.msgpack.encode(done), torch.empty(0, dtype=torch.uint8)))
    assert chronicle.settled == 7


@pytest.mark.parametrize("brought", [True, False])
def test_a_sum_that_a_mate_hands_over_is_no_answer_for_who_came_too_late_to_it(brought: bool) -> None:
    """Regression: `all_reduce` returned the sum of the others, and nobody noticed."""
    fake: Any = Alone()
    past, tensor, others = Past(Chronicle(ME, CLUSTERS[0]), fake), torch.ones(2), torch.full((2,), 7.0)
    done = Completed(7, CLUSTERS, 0.0, 0, 0, "star", "because", (OTHER, ME) if brought else (OTHER,))
    encoded, memory = msgspec.msgpack.encode(done), others.view(torch.uint8)
    total = AllReduce(fake, past, Addend(Bundle(tensor, written=True), "sum"))
    if brought:
        assert total.accept(Answer(total.fingerprint, encoded, memory)) == done
    else:
        with pytest.raises(RoundMissed, match="round 7 was decided without this worker"):
            total.accept(Answer(total.fingerprint, encoded, memory))
    assert torch.equal(tensor, others if brought else torch.ones(2))
    copy = Broadcast(fake, past, Bundle(tensor, written=True), CLUSTERS[1])
    copy.accept(Answer(copy.fingerprint, encoded, memory))
    assert torch.equal(tensor, others), "a copy is right for whoever gets it"


def test_what_its_former_life_was_in_is_no_answer_to_a_worker_that_has_made_calls_since() -> None:
    """Regression: it had made its first call alone, and was handed as its second what its mates had done before it."""
    fake: Any = Alone()
    past, tensor = Past(Chronicle(ME, CLUSTERS[0]), fake), torch.ones(2)
    past.chronicle.settle(9)
    done = msgspec.msgpack.encode(Completed(7, CLUSTERS, 0.0, 0, 0, "star", "because", (OTHER, ME)))
    for call in (
        AllReduce(fake, past, Addend(Bundle(tensor, written=True), "sum")),
        Broadcast(fake, past, Bundle(tensor, written=True), CLUSTERS[1]),
    ):
        with pytest.raises(RoundMissed, match="round 7 was decided before this worker's last call"):
            call.accept(Answer(call.fingerprint, done, torch.zeros(2).view(torch.uint8)))
    assert tensor.tolist() == [1.0, 1.0]
