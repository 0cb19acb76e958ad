"""`Peer` and `DiLoCo` as a user has them: one training thread each, real sockets, a tiny model."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.config import Timeouts
from ictp2p.disk import MemoryDisk
from ictp2p.errors import (
    AddressInUse,
    ConfigError,
    LocalProtocolError,
    MeshMismatch,
    PeerClosed,
    PeerFailed,
    StateError,
)
from ictp2p.sync.policy import Policy

TOKEN = "a token for tests only"
WAITS = Timeouts(connect=2.0, stall=2.0, form=8.0, complete=20.0)


def config(cluster: str, join: str | None = None) -> ictp2p.Config:
    seeds = (join,) if join else ()
    return ictp2p.Config.local(cluster=cluster, token=TOKEN, join=seeds, global_timeouts=WAITS, local_timeouts=WAITS)


def model(width: int = 5) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))


class Together:
    """What workers do together: they begin at once, and nobody ends before all hold enough versions in common.

    Without the second, one of them could run all its rounds alone before the others are counted in.
    """

    def __init__(self, workers: int, *, at_once: bool = True, until: Callable[[set[int]], bool] = bool) -> None:
        self._begin = threading.Barrier(workers if at_once else 1)
        self._held: dict[int, set[int]] = {}
        self._workers, self._until = workers, until
        self._lock = threading.Lock()

    def begin(self) -> None:
        self._begin.wait(20)

    def enough(self, worker: int, versions: Iterable[int], least: int) -> bool:
        """Whether all hold two versions beyond the first in common, `least` or a later one among them."""
        with self._lock:
            self._held[worker] = set(versions)
            common = {v for v in set.intersection(*self._held.values()) if v > 1}
            met = len(self._held) == self._workers and len(common) >= min(self._workers, 2)
            return met and max(common) >= least and self._until(common)


class Worker:
    """One worker's training loop in a thread of the test."""

    def __init__(
        self,
        peer: ictp2p.Peer,
        *,
        versions: int,
        rows: int = 0,
        width: int = 5,
        together: Together | None = None,
        kind: type[Policy] = ictp2p.DiLoCo,
        **policy: Any,
    ) -> None:
        self.peer = peer
        self._kind = kind
        self._together = together or Together(1)
        self.digests: dict[int, str] = {}
        self.steps = Counter[int]()
        """Of each version: how many inner steps began from it."""
        self.ready = threading.Event()
        self._versions = versions
        self._rows = rows
        self._width = width
        self._policy = {"sync_every": 2, **policy}

    def run(self) -> None:
        net = model(self._width)
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        with self._kind(self.peer, net, inner, **self._policy) as policy:
            self._note(policy)
            self.ready.set()
            self._together.begin()
            for x in self.peer.steps(self._batches()):
                self.steps[policy.version] += 1
                net(x).square().mean().backward()
                inner.step()
                inner.zero_grad()
                self._note(policy)
                if self._together.enough(id(self), self.digests, self._versions):
                    return

    def _note(self, policy: Policy) -> None:
        self.digests[policy.version] = policy.digest()

    def _batches(self) -> Iterator[torch.Tensor]:
        random = torch.Generator().manual_seed(self._rows)
        while True:
            yield torch.randn(4, 3, generator=random)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


def of_five(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rounds in which five clusters took part."""
    return [e for e in events if e["kind"] == "round_committed" and len(e["participants"]) == 5]


def start(pool: ThreadPoolExecutor, *workers: Worker) -> list[Future[None]]:
    return [pool.submit(worker.run) for worker in workers]


def finish(futures: list[Future[None]]) -> None:
    for future in futures:
        future.result(40)


def test_two_clusters_hold_the_same_bits_at_every_version(pool: ThreadPoolExecutor) -> None:
    with ictp2p.Peer(config("a")) as a, ictp2p.Peer(config("b", str(a.address))) as b:
        together = Together(2)
        workers = [Worker(peer, versions=8, rows=row, together=together) for row, peer in enumerate((a, b))]
        finish(start(pool, *workers))
        common = workers[0].digests.keys() & workers[1].digests.keys()
        assert len(common) >= 2
        assert {v: workers[0].digests[v] for v in common} == {v: workers[1].digests[v] for v in common}
        assert a.state == "TRAINING"
        assert a.leader == a.id
        assert {c["cluster"] for c in a.clusters} == {"a", "b"}
        assert a.members[0]["peer"] == a.id
        assert a.stats()["false_suspicions"] == 0


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ictp2p.StreamingDiLoCo, {"sync_every": 4, "fragments": 2, "overlap": 1}),
        (ictp2p.StreamingDiLoCo, {"sync_every": 4, "fragments": 2, "overlap": 2, "mix": 0.5}),
        (ictp2p.EagerDiLoCo, {"sync_every": 2}),
        (ictp2p.DiLoCo, {"outer": lambda p: ictp2p.DelayedNesterov(p, every=2)}),
    ],
)
def test_rounds_under_cover_of_training_hold_the_same_bits(
    pool: ThreadPoolExecutor, kind: type[Policy], options: dict[str, Any]
) -> None:
    with ExitStack() as peers:
        a = peers.enter_context(ictp2p.Peer(config("a")))
        others = [peers.enter_context(ictp2p.Peer(config(c, str(a.address)))) for c in ("a", "b")]
        together = Together(3)
        workers = [
            Worker(p, versions=9, rows=row, together=together, kind=kind, **options)
            for row, p in enumerate((a, *others))
        ]
        finish(start(pool, *workers))
        for other in workers[1:]:
            common = {v for v in workers[0].digests.keys() & other.digests.keys() if v > 1}
            assert len(common) >= 2
            assert {v: workers[0].digests[v] for v in common} == {v: other.digests[v] for v in common}
        assert a.stats()["illegal_transitions"] == 0


def test_pairs_agree_on_what_was_done_and_send_nothing_to_anybody_else(pool: ThreadPoolExecutor) -> None:
    """Five clusters, so two pairs and one alone in each round; a model of 26 elements, of which each sends twice."""
    with ExitStack() as peers:
        a = peers.enter_context(ictp2p.Peer(config("a")))
        others = [peers.enter_context(ictp2p.Peer(config(c, str(a.address)))) for c in "bcde"]
        events = list[dict[str, Any]]()
        together = Together(5, until=lambda common: bool(of_five(events)))
        for peer in (a, *others):
            peer.on_event(events.append)
        workers = [
            Worker(p, versions=6, rows=row, together=together, kind=ictp2p.NoLoCo) for row, p in enumerate((a, *others))
        ]
        finish(start(pool, *workers))
        for other in workers[1:]:
            common = {v for v in workers[0].digests.keys() & other.digests.keys() if v > 1}
            assert len(common) >= 2
            assert {v: workers[0].digests[v] for v in common} == {v: other.digests[v] for v in common}
        assert a.stats()["illegal_transitions"] == 0
        # A round of one pair: half of the vector there, the other half's sum back; an all-reduce of five would be more.
        assert {e["bytes_sent"] for e in of_five(events)} == {0, 2 * 26 * 4}


def test_holders_of_a_module_hold_the_same_bits_and_nobody_else_gets_them(pool: ThreadPoolExecutor) -> None:
    """Paths of one large and one small module each: `left` is held twice, `right` once, and `shared` by all three."""
    sizes = {"left": 70_000, "right": 90_000, "shared": 10}
    paths = {"a": ("left", "shared"), "b": ("left", "shared"), "c": ("right", "shared")}
    held: dict[str, dict[int, dict[str, torch.Tensor]]] = {name: {} for name in paths}

    def run(peer: ictp2p.Peer, together: threading.Barrier) -> None:
        model = torch.nn.ParameterDict({m: torch.nn.Parameter(torch.zeros(sizes[m])) for m in paths[peer.cluster]})
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        random = torch.Generator().manual_seed(ord(peer.cluster))
        together.wait(20)
        with ictp2p.DiPaCo(peer, model, inner, sync_every=2, modules=paths[peer.cluster]) as policy:
            for _ in peer.steps(iter(int, 1)):
                for parameter in model.parameters():
                    parameter.grad = torch.randn(parameter.shape, generator=random)
                inner.step()
                held[peer.cluster][policy.version] = policy.global_parameters()
                if all(max(versions, default=0) >= 8 for versions in held.values()):
                    return

    with ExitStack() as peers:
        a = peers.enter_context(ictp2p.Peer(config("a")))
        others = [peers.enter_context(ictp2p.Peer(config(c, str(a.address)))) for c in "bc"]
        events = list[dict[str, Any]]()
        others[1].on_event(events.append)
        together = threading.Barrier(3)
        finish([pool.submit(run, peer, together) for peer in (a, *others)])
        for module, (one, other) in {"left": ("a", "b"), "shared": ("a", "c")}.items():
            common = {v for v in held[one].keys() & held[other].keys() if v > 4}
            assert common
            assert all(torch.equal(held[one][v][module], held[other][v][module]) for v in common)
            assert held[one][max(common)][module].any()
        sent = [e["bytes_sent"] for e in events if e["kind"] == "round_committed" and len(e["participants"]) == 3]
        assert sent
        assert max(sent) < 4 * 10 * 20, "c moves what it shares, and nothing of its own or of the others' modules"
        assert a.stats()["illegal_transitions"] == 0


def test_two_workers_of_a_cluster_step_together(pool: ThreadPoolExecutor) -> None:
    with ictp2p.Peer(config("a")) as one, ictp2p.Peer(config("a", str(one.address))) as two:
        together = Together(2)
        workers = [Worker(p, versions=5, rows=row, together=together) for row, p in enumerate((one, two))]
        finish(start(pool, *workers))
        common = {v for v in workers[0].digests.keys() & workers[1].digests.keys() if v > 1}
        assert {v: workers[0].digests[v] for v in common} == {v: workers[1].digests[v] for v in common}
        between = sorted(common)[:-1]
        assert [worker.steps[v] for worker in workers for v in between] == [2] * 2 * len(between)


def test_the_rest_of_a_cluster_goes_on_when_its_leader_ends_its_training(pool: ThreadPoolExecutor) -> None:
    """The leader's peer stays, to serve the state, say: its cluster is led by who trains."""
    with ExitStack() as peers:
        one = peers.enter_context(ictp2p.Peer(config("a")))
        others = [peers.enter_context(ictp2p.Peer(config(c, str(one.address)))) for c in ("a", "b")]
        first = Worker(one, versions=3)
        ended = start(pool, first)[0]
        together = Together(
            2, at_once=False, until=lambda common: ended.done() and min(sorted(common)[-2:]) > max(first.digests) + 1
        )
        rest = [Worker(p, versions=3, rows=row, together=together) for row, p in enumerate(others)]
        finish([ended, *start(pool, *rest)])
        assert one.leader == others[0].id
        common = rest[0].digests.keys() & rest[1].digests.keys()
        assert {v: rest[0].digests[v] for v in common} == {v: rest[1].digests[v] for v in common}


def test_rounds_do_not_wait_for_a_cluster_that_has_ended_its_training(pool: ThreadPoolExecutor) -> None:
    """Twelve of them would take two minutes of waiting for the straggler."""
    with ictp2p.Peer(config("a")) as a, ictp2p.Peer(config("b", str(a.address))) as b:
        workers = [Worker(p, versions=versions, together=Together(1)) for p, versions in ((a, 3), (b, 15))]
        finish(start(pool, *workers))
        assert max(workers[1].digests) >= 15


def test_a_cluster_that_joins_later_starts_from_the_agreed_state(pool: ThreadPoolExecutor) -> None:
    with ictp2p.Peer(config("a")) as a:
        together = Together(2, at_once=False)
        first = Worker(a, versions=12, rows=1, together=together)
        running = start(pool, first)
        assert first.ready.wait(20)
        with ictp2p.Peer(config("b", str(a.address))) as b:
            late = Worker(b, versions=12, rows=2, together=together)
            finish([*running, *start(pool, late)])
        common = {v for v in late.digests.keys() & first.digests.keys() if v > 1}
        assert common
        assert {v: late.digests[v] for v in common} == {v: first.digests[v] for v in common}


@pytest.mark.parametrize(
    ("other", "named"),
    [({"sync_every": 3}, "sync_every"), ({"width": 6}, r"tensor .*\[6"), ({"codec": "other"}, "codec")],
)
def test_a_model_or_policy_that_differs_is_refused_by_name(
    pool: ThreadPoolExecutor, other: dict[str, Any], named: str
) -> None:
    with ictp2p.Peer(config("a")) as a, ictp2p.Peer(config("b", str(a.address))) as b:
        first = Worker(a, versions=2, rows=1)
        running = start(pool, first)
        assert first.ready.wait(20)
        (odd,) = start(pool, Worker(b, versions=2, rows=2, **other))
        with pytest.raises(MeshMismatch, match=named):
            odd.result(20)
        finish(running)


def test_draining_ends_the_loop_after_the_next_commit(pool: ThreadPoolExecutor) -> None:
    with ictp2p.Peer(config("a")) as a:
        worker = Worker(a, versions=10**6, rows=1)
        running = start(pool, worker)
        assert worker.ready.wait(20)
        a.drain()
        finish(running)
        assert a.state == "DRAINING"
        assert a.status()["phase"] == "DRAINING/D_COMMIT"
        assert a.stats()["illegal_transitions"] == 0
    assert a.state == "EXIT"


def test_closing_the_peer_ends_whatever_waits_on_it(pool: ThreadPoolExecutor) -> None:
    with ictp2p.Peer(config("a")) as a:
        b = ictp2p.Peer(config("a", str(a.address)))
        b.start()
        worker = Worker(b, versions=10**6, rows=1)  # its leader's training thread never comes
        running = start(pool, worker)
        assert not worker.ready.wait(0.5)
        b.close()
        with pytest.raises(PeerClosed):
            running[0].result(20)


def test_a_mesh_that_was_stopped_whole_goes_on_from_what_its_workers_bring(
    pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """Each is told to join the other; nobody founds anything the second time."""

    def peers(first: str = "", second: str = "") -> list[ictp2p.Peer]:
        one = replace(config("a", second), listen=first or "127.0.0.1:0", data_dir=str(tmp_path / "a"))
        two = replace(config("b", first), listen=second or "127.0.0.1:0", data_dir=str(tmp_path / "b"))
        return [ictp2p.Peer(replace(c, restore_after=1.0)) for c in (one, two)]

    told: list[dict[str, Any]] = []
    a, b = peers()
    with a:
        b = ictp2p.Peer(replace(b.config, join=(str(a.address),)))
        with b:
            together = Together(2, at_once=False)
            finish(start(pool, *(Worker(p, versions=4, rows=n, together=together) for n, p in enumerate((a, b)))))
            addresses, slot, lost = (str(a.address), str(b.address)), a.status()["slot"], a.status()["state_version"]
    a, b = peers(*addresses)
    for peer in (a, b):
        peer.on_event(lambda event: told.append(dict(event)) if event["kind"].startswith("state_") else None)
    began = [pool.submit(peer.start) for peer in (a, b)]
    finish(began)
    with ExitStack() as stack:
        for peer in (a, b):
            stack.callback(peer.close)
        together = Together(2)
        workers = [Worker(p, versions=lost + 6, rows=n, together=together, resume=True) for n, p in enumerate((a, b))]
        finish(start(pool, *workers))
        assert a.status()["slot"] > slot
    restored = [event for event in told if event["kind"] == "state_restored"]
    assert {event["source"] for event in restored} == {0}
    common = workers[0].digests.keys() & workers[1].digests.keys()
    assert common
    assert {v: workers[0].digests[v] for v in common} == {v: workers[1].digests[v] for v in common}


def test_a_disk_that_fails_ends_whatever_waits_on_the_peer_and_says_why(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(disk: MemoryDisk, key: str, value: bytes) -> None:
        raise StateError("cannot write: No space left on device")

    with ictp2p.Peer(config("a")) as a:
        events: list[dict[str, Any]] = []
        a.on_event(events.append)
        worker = Worker(a, versions=10**9)
        futures = start(pool, worker)
        worker.ready.wait(20)
        monkeypatch.setattr(MemoryDisk, "save", refuse)
        with pytest.raises(PeerFailed, match=r"stopped by itself: cannot write: No space left"):
            finish(futures)
        with pytest.raises(PeerFailed, match="No space left"):
            a.all_reduce([torch.zeros(3)])
        assert [event["text"] for event in events if event["kind"] == "failed"] == [
            "cannot write: No space left on device"
        ]


def test_events_are_flat_and_timed(pool: ThreadPoolExecutor) -> None:
    told: list[dict[str, Any]] = []
    peer = ictp2p.Peer(config("a"))
    peer.on_event(told.append)
    with peer:
        finish(start(pool, Worker(peer, versions=2, rows=1)))
    kinds = [event["kind"] for event in told]
    assert kinds[0] == "started"
    for expected in ("leader", "life", "roster", "round_opened", "round_committed"):
        assert expected in kinds
    assert all(isinstance(event["time"], float) for event in told)


def test_a_peer_that_is_not_running_says_so() -> None:
    peer = ictp2p.Peer(config("a"))
    for use in (lambda: peer.id, lambda: peer.address, lambda: peer.status(), lambda: peer.drain()):
        with pytest.raises(PeerClosed, match="with peer"):
            use()
    with pytest.raises(AttributeError, match="nonsense"):
        _ = peer.nonsense
    peer.close()


def test_a_bad_cluster_name_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="'Not A Name'"):
        config("Not A Name")


def test_one_peer_trains_one_model_at_a_time_and_lives_once() -> None:
    with ictp2p.Peer(config("a")) as a:
        net = model()
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        with ictp2p.DiLoCo(a, net, inner, sync_every=2) as policy:
            other = model()
            second = ictp2p.DiLoCo(a, other, torch.optim.SGD(other.parameters(), lr=0.1), sync_every=2)
            with pytest.raises(LocalProtocolError, match="a policy trains with this peer already"):
                second.__enter__()
            net(torch.ones(4, 3)).square().mean().backward()
            inner.step()
            assert policy.progress.step == 1, "the first one is none the worse"
        with pytest.raises(LocalProtocolError, match="a peer is started once"):
            a.start()
    with pytest.raises(LocalProtocolError, match="a peer is started once"):
        a.start()


def test_a_peer_whose_start_failed_may_be_started_again() -> None:
    with ictp2p.Peer(config("a")) as a:
        taken = ictp2p.Peer(replace(config("b"), listen=str(a.address)))
        for _ in range(2):
            with pytest.raises(AddressInUse, match=str(a.address.port)):
                taken.start()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_is_told_that_the_peer_stayed_behind() -> None:
    with ictp2p.Peer(config("a")) as a:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # a data loader's worker, say: nothing here may wait for a thread that is not here
            said = "nothing"
            try:
                a.stats()
            except PeerClosed as error:
                said = str(error)
            a.close()
            os.write(writing, said.encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert f"the peer lives in process {os.getpid()}" in os.read(reading, 1000).decode()
        os.close(reading)
        os.close(writing)
        assert a.members[0]["status"] == "alive", "the parent's peer is none the worse"
