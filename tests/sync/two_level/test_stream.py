from __future__ import annotations

import threading
from typing import Any, cast

import pytest
import torch

from ictp2p.errors import LocalGroupError
from ictp2p.sync.two_level.stream import Kind, Publisher, Verdict, follow
from ictp2p.sync.values import Participant
from ictp2p.types import ClusterId, PeerId
from tests.garbage import LARGE, uncollected


def pair(make_world: Any, lead: Any, trail: Any) -> Any:
    def group(mesh: Any) -> Any:
        mesh.roster_ready(True)
        return mesh.open_group(mesh.wait_roster(None))

    return make_world(a=2).run(a_0=lambda mesh: lead(group(mesh)), a_1=lambda mesh: trail(group(mesh)))


PARTS = (
    Participant(ClusterId("a"), PeerId("1" * 32), 3, 8.0, b"faster"),
    Participant(ClusterId("b"), PeerId("2" * 32), 1, 2.0),
)
AVERAGE = torch.arange(3_000_001, dtype=torch.float32)


def test_data_arrives_while_the_round_goes_on_and_the_verdict_follows(make_world: Any) -> None:
    half, complete = threading.Event(), threading.Event()
    got = torch.zeros_like(AVERAGE)

    def lead(group: Any) -> None:
        publisher = Publisher(group, AVERAGE)
        publisher.wait()
        publisher.restart(1, PARTS)
        publisher.data(2_000_000, 3_000_001)
        half.set()
        publisher.data(0, 2_000_000)
        assert complete.wait(20), "a follower is complete before the verdict"
        publisher.tell(Verdict(Kind.COMMIT, 7, b"d" * 32))

    def trail(group: Any) -> Verdict:
        return follow(group, got, complete.set)

    assert pair(make_world, lead, trail)["a_1"] == Verdict(Kind.COMMIT, 7, b"d" * 32)
    assert torch.equal(got, AVERAGE)


def test_an_attempt_counts_from_its_beginning(make_world: Any) -> None:
    completed, told = [], []

    def lead(group: Any) -> None:
        publisher = Publisher(group, AVERAGE)
        publisher.restart(1, PARTS)
        publisher.data(0, 3_000_000)
        publisher.restart(2, PARTS)
        publisher.data(3_000_000, 3_000_001)
        publisher.tell(Verdict(Kind.ABANDON, reason="no quorum: 1 of 3 " + "x" * 500))

    def trail(group: Any) -> Verdict:
        return follow(group, torch.zeros_like(AVERAGE), lambda: completed.append(1), lambda *begun: told.append(begun))

    verdict = pair(make_world, lead, trail)["a_1"]
    assert not completed
    assert told == [(1, PARTS), (2, PARTS)]
    assert verdict.kind is Kind.ABANDON
    assert verdict.reason.startswith("no quorum: 1 of 3 xxx")


@pytest.mark.parametrize("mine", [True, False])
def test_a_verdict_says_whether_our_part_is_in(make_world: Any, mine: bool) -> None:
    verdict = Verdict(Kind.ADOPT, 9, b"e" * 32, mine)
    found = pair(
        make_world,
        lambda group: Publisher(group, AVERAGE).tell(verdict),
        lambda group: follow(group, torch.zeros(1), lambda: None),
    )
    assert found["a_1"] == verdict


def test_a_broken_group_silences_the_publisher_and_lets_the_round_go_on(make_world: Any) -> None:
    def lead(group: Any) -> Publisher:
        publisher = Publisher(group, AVERAGE)
        publisher.wait()
        group.abort("the follower died")
        publisher.data(0, 3_000_001)
        publisher.tell(Verdict(Kind.COMMIT))
        return publisher

    def trail(group: Any) -> None:
        with pytest.raises(LocalGroupError):
            follow(group, torch.zeros(1), lambda: None)

    assert "the follower died" in str(pair(make_world, lead, trail)["a_0"].broken)


@pytest.mark.parametrize(
    ("kind", "start", "stop"),
    [(99, 0, 0), (Kind.RESTART, 1, 2**40), (Kind.DATA, 5, 5), (Kind.DATA, 0, 2), (Kind.DATA, 7, 3)],
)
def test_a_header_that_makes_no_sense_is_an_error(make_world: Any, kind: Any, start: int, stop: int) -> None:
    def lead(group: Any) -> None:
        Publisher(group, AVERAGE)._send(kind, start, stop)

    def trail(group: Any) -> None:
        with pytest.raises(LocalGroupError, match="leader a/0"):
            follow(group, torch.zeros(1), lambda: None)

    pair(make_world, lead, trail)


class Broken:
    """A group that has just broken."""

    size = 2

    def staging(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(elements, dtype=dtype)

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        raise LocalGroupError("a member is dead")


def test_a_publisher_whose_group_broke_leaves_nothing_to_the_garbage_collector() -> None:
    """Regression: it kept the error, which knew the frames that it went through, and these the average."""

    def publish() -> str:
        publisher = Publisher(cast("Any", Broken()), torch.ones(LARGE))
        publisher.wait()
        return publisher.broken

    with uncollected() as left:
        assert publish() == "a member is dead"
    assert left == []
