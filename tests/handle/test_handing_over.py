"""Who leaves alone with a version hands it over, wherever the peers live: real ones, and a real policy."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.errors import PeerClosed, RoundTimeout
from tests.handle.homes import PATIENCE, config

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


class Story:
    """One cluster trains on alone, and leaves, while the other one stands in the middle of a phase."""

    def __init__(self) -> None:
        self.together, self.gone = threading.Event(), threading.Event()
        self.left = 0
        """The version with which the one left."""

    def train(self, peer: ictp2p.Peer) -> None:
        torch.manual_seed(3)
        net = torch.nn.Linear(300, 300)
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        policy = ictp2p.AsyncDiLoCo(peer, net, inner, clusters=2, sync_every=2)
        with policy:
            for _ in range(10_000):
                if self._is_over(peer.cluster, policy):
                    break
                net(torch.randn(8, 300)).square().mean().backward()
                inner.step()
                inner.zero_grad()
            if peer.cluster == "a":
                self.left = policy.version

    def _is_over(self, cluster: str, policy: Any) -> bool:
        if cluster == "a":
            return self.together.is_set() and policy.version >= self._alone_from + 2
        if policy.version >= 2 and not self.together.is_set():
            self._alone_from = policy.version
            self.together.set()
            assert self.gone.wait(PATIENCE)
        return policy.version > self.left > 0


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_training_goes_on_from_what_its_only_holder_left(isolation: str) -> None:
    story, told = Story(), list[dict[str, Any]]()

    def leave(a: ictp2p.Peer) -> None:
        story.train(a)
        a.close()
        story.gone.set()

    with ictp2p.Peer(config("b", isolation)) as b, ThreadPoolExecutor(2) as pool:
        b.on_event(told.append)
        a = ictp2p.Peer(config("a", isolation, b))
        a.start()
        giver = a.id
        for work in [pool.submit(story.train, b), pool.submit(leave, a)]:
            work.result(PATIENCE)
    kept = [event for event in told if event["kind"] == "state_kept"]
    assert [(event["version"], event["giver"]) for event in kept] == [(story.left, giver)]
    adopted = [event for event in told if event["kind"] == "outer" and event["verdict"] == "ADOPT"]
    assert adopted[-1]["version"] == story.left
    assert story.left not in [event["version"] for event in told if event["kind"] == "state_fetched"]
    assert not [event for event in told if event["kind"] in ("state_lost", "state_restored")]


class Still:
    """The handle of a peer that answers nothing."""

    def __init__(self) -> None:
        self.asked = self.waited = 0
        self.handed = Future[None]()

    def hand_over(self) -> Any:
        return self.handed

    def wait(self, future: Any, timeout: float) -> None:
        self.waited += 1
        assert self.waited < 10
        raise TimeoutError

    def waiting(self) -> tuple[bool, str]:
        self.asked += 1
        if self.asked == 3:
            raise RoundTimeout("the peer itself stands still")
        return True, ""


def test_a_peer_that_answers_is_waited_for_and_one_that_stands_still_is_not() -> None:
    still: Any = Still()
    ictp2p.Peer(config("a"))._hand_over(still)
    assert still.asked == 3
    assert still.handed.cancelled()


def test_what_ends_as_it_is_handed_over_has_left() -> None:
    class Ended(Still):
        def hand_over(self) -> Any:
            raise PeerClosed("the peer was closed")

    ended: Any = Ended()
    ictp2p.Peer(config("a"))._hand_over(ended)


def test_a_peer_hands_over_before_it_leaves_however_long_that_takes() -> None:
    """To leave may take but so long, and to hand a state over may take longer."""
    told = list[str]()

    class Leaves(Still):
        left_behind = False

        def wait(self, future: Any, timeout: float) -> None:
            told.append("waits")
            if self.asked < 2:
                raise TimeoutError

        def leave(self) -> None:
            told.append("leaves")

        def close(self) -> None:
            told.append("closes")

    peer = ictp2p.Peer(config("a"))
    handle: Any = Leaves()
    peer._handle = handle
    peer.close()
    assert told == ["waits", "waits", "waits", "leaves", "closes"]
