"""A peer in a thread and one in a process of its own are the same to whoever trains with them.

Real processes, which take seconds to start, so the tests of this module share one mesh where they can: cluster a's peer
lives where the test says, cluster b's in a thread.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.errors import AddressInUse, ConfigError, MeshMismatch, PeerClosed, RoundTimeout
from ictp2p.handle.process import ProcessHandle
from tests.handle.homes import PATIENCE, config

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


class Pair:
    """Two clusters of one worker each."""

    def __init__(self, isolation: str) -> None:
        self.events: list[dict[str, Any]] = []
        self.b = ictp2p.Peer(config("b"))
        self.b.start()
        self.a = ictp2p.Peer(config("a", isolation, self.b))
        self.a.on_event(self.events.append)
        self.a.start()
        self.both(lambda name, peer: peer.gather(2, timeout=PATIENCE))
        self.both(lambda name, peer: peer.barrier())

    def both(self, body: Callable[[str, ictp2p.Peer], Any]) -> tuple[Any, Any]:
        with ThreadPoolExecutor(2) as pool:
            a, b = pool.submit(body, "a", self.a), pool.submit(body, "b", self.b)
            return a.result(PATIENCE), b.result(PATIENCE)

    def close(self) -> None:
        self.a.close()
        self.b.close()


@pytest.fixture(scope="module", params=["thread", "process"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(request.param)
    try:
        yield pair
    finally:
        pair.close()


VALUE = {"a": 1.5, "b": 4.0}


def test_collective_calls(pair: Pair) -> None:
    def body(name: str, peer: ictp2p.Peer) -> Any:
        flat = torch.arange(70_001, dtype=torch.float32) * VALUE[name]
        strided, half = torch.full((3, 4), VALUE[name]).t(), torch.full((9,), VALUE[name], dtype=torch.bfloat16)
        done = peer.all_reduce([flat, strided, torch.empty(0)], weight=VALUE[name])
        later = [peer.all_reduce(half, op="sum", async_op=True), peer.barrier(async_op=True)]
        for work in later:
            work.wait(PATIENCE)
        copied = [torch.full((5,), VALUE[name]), torch.tensor([name == "a"])]
        peer.broadcast(copied, "b")
        part = peer.reduce_scatter(torch.full((7,), VALUE[name]), op="sum")
        rows = peer.all_gather(torch.full((300_000,), VALUE[name], dtype=torch.float64)).tensors
        return done.clusters, [flat, strided, half, *copied, part.part, *rows["a"], *rows["b"]], (part.start, part.stop)

    (clusters, ours, here), (_, theirs, there) = pair.both(body)
    assert clusters == ("a", "b")
    mean = sum(v * v for v in VALUE.values()) / sum(VALUE.values())
    scale = (torch.arange(70_001) * 1.5 * 1.5 + torch.arange(70_001) * 4.0 * 4.0) / 5.5
    assert torch.allclose(ours[0], scale)
    assert torch.allclose(ours[1], torch.full((4, 3), mean))
    assert ours[2].tolist() == [5.5] * 9
    assert ours[3].tolist() == [4.0] * 5
    assert ours[4].tolist() == [False]
    assert ours[6].tolist() == [1.5] * 300_000
    assert ours[7].tolist() == [4.0] * 300_000
    assert sorted((here, there)) == [(0, here[1] if here[0] == 0 else there[1]), max(here, there)]
    assert set(ours[5].tolist()) == {5.5}
    assert all(torch.equal(one, other) for n, (one, other) in enumerate(zip(ours, theirs, strict=True)) if n != 5)


def test_messages(pair: Pair) -> None:
    for sender, receiver, name in ((pair.a, pair.b, "b"), (pair.b, pair.a, "a")):
        sent = [torch.arange(100_000), torch.tensor([True])]
        work = sender.send(sent, name, tag=3, async_op=True)
        small = torch.zeros(3)
        with pytest.raises(MeshMismatch, match="holds int64"):
            receiver.recv(small, str(sender.cluster), tag=3)
        room = [torch.zeros(100_000, dtype=torch.int64), torch.tensor([False])]
        receiver.recv(room, str(sender.cluster), tag=3)
        work.wait(PATIENCE)
        assert all(torch.equal(one, other) for one, other in zip(sent, room, strict=True))


def test_what_is_seen(pair: Pair) -> None:
    a, b = pair.a, pair.b
    assert a.leader == a.id
    assert [row["peer"] for row in a.members] == [a.id]
    assert {row["cluster"] for row in a.clusters} == {"a", "b"}
    assert a.status()["peer"] == a.id
    assert a.status()["life"] == a.state
    assert a.status().keys() == b.status().keys()
    assert a.stats()["illegal_transitions"] == 0
    assert "control_round_trip_p99" in a.stats()
    assert isinstance(a.links, list)
    assert isinstance(a.routes, list)
    assert "clusters=2" in repr(a)
    assert a._handle.lineage == b._handle.lineage != b""  # what a checkpoint says where it belongs by
    kinds = {event["kind"] for event in pair.events}
    assert {"started", "leader", "life", "round_committed"} <= kinds
    (opened, *_) = [event for event in pair.events if event["kind"] == "round_opened"]
    assert opened["participants"] == ["a", "b"]


def test_a_state_goes_to_whoever_lacks_it(pair: Pair) -> None:
    def body(name: str, peer: ictp2p.Peer) -> Any:
        state = {"weight": torch.full((900_000,), VALUE[name]), "step": torch.tensor(3)}
        found = peer.sync_state(state)
        again = peer.sync_state(state)
        return found, again, state

    (first, second, ours), (other, same, theirs) = pair.both(body)
    assert {first.received, other.received} == {True, False}
    assert (first.version, second.version) == (1, 2)
    assert (second.received, same.received) == (False, False)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    if not first.received:  # then a gave its state to b; now it takes b's
        theirs["weight"] += 1
        kept = {key: tensor.clone() for key, tensor in theirs.items()}
        pair.both(lambda name, peer: peer.sync_state(ours if name == "a" else theirs))
        assert torch.equal(ours["weight"], theirs["weight"])
        assert kept.keys() == ours.keys()


def test_errors_are_the_same(pair: Pair) -> None:
    a, _ = pair.a, pair.b
    assert a._engine is not None
    patience, a._engine.patience = a._engine.patience, 0.5
    try:
        with pytest.raises(RoundTimeout, match=r"within 0.5 s"):
            a.barrier()
        with pytest.raises(RoundTimeout, match="2 of 9 clusters"):
            a.gather(9, timeout=0.1)
    finally:
        a._engine.patience = patience
    with pytest.raises(ConfigError, match="cannot send to itself"):
        a.send(torch.ones(1), "a")


class Together:
    """Both clusters begin at once, and neither ends before they hold three versions in common."""

    def __init__(self) -> None:
        self._begin = threading.Barrier(2)
        self.digests: dict[str, dict[int, str]] = {"a": {}, "b": {}}

    @property
    def common(self) -> set[int]:
        """The versions after the first that both hold."""
        return {version for version in {*self.digests["a"]} & {*self.digests["b"]} if version > 1}

    def train(self, peer: ictp2p.Peer) -> None:
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 3)
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        seed = torch.Generator().manual_seed(ord(peer.cluster))
        with ictp2p.DiLoCo(peer, net, inner, sync_every=2) as policy:
            self._begin.wait(PATIENCE)
            for _ in peer.steps(range(1_000_000)):
                net(torch.randn(8, 4, generator=seed)).square().mean().backward()
                inner.step()
                inner.zero_grad()
                self.digests[peer.cluster][policy.version] = policy.digest()
                if len(self.common) >= 3:
                    peer.drain()


def test_a_policy_trains_to_equal_bits_beside_a_peer_in_a_thread_and_drains() -> None:
    b, together = ictp2p.Peer(config("b")), Together()
    with b, ictp2p.Peer(config("a", "process", b)) as a, ThreadPoolExecutor(2) as pool:
        for work in [pool.submit(together.train, peer) for peer in (a, b)]:
            work.result(PATIENCE)
        assert all(together.digests["a"][version] == together.digests["b"][version] for version in together.common)
        assert a.state == "DRAINING"

        # The same process: it does not mind an interrupt, and its death ends every wait at once, with its cause.
        handle: Any = a._handle
        assert isinstance(handle, ProcessHandle)
        process = handle.line.process
        assert process is not None
        os.kill(process, signal.SIGINT)
        os.kill(process, signal.SIGTERM)
        assert a.status()["peer"] == a.id
        waiting = a.barrier(async_op=True), a.recv(torch.ones(1), "b", async_op=True)
        os.kill(process, signal.SIGKILL)
        for work in waiting:
            with pytest.raises(PeerClosed, match="was ended by SIGKILL"):
                work.wait(PATIENCE)
        with pytest.raises(PeerClosed, match="was ended by SIGKILL"):
            a.status()


def test_what_keeps_a_peer_from_starting_is_told_as_what_it_is() -> None:
    with ictp2p.Peer(config("b")) as b:
        taken = ictp2p.Peer(config("a", "process", b, listen=str(b.address)))
        with pytest.raises(AddressInUse):
            taken.start()
        assert "not started" in repr(taken)


def test_whoever_exits_in_the_thread_that_reads_ends_no_wait_in_silence() -> None:
    """Regression: `sys.exit` ended that thread without a word, and nobody was ever answered."""

    def exits(*_: object) -> None:
        raise SystemExit(1)

    handle = ProcessHandle(config("a", "process"), exits)
    handle.start()
    assert handle.waiting()[0]
    handle.line._heard = exits
    with pytest.raises(PeerClosed, match="after SystemExit: 1"):
        handle.waiting()
    handle.close()
