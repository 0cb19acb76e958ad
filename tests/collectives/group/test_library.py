"""A vendor's library beside Gloo: its life, its end and what a refusal does.

There is no device here, so the library is a plug-in that torch makes by name, as it makes HCCL; behind the name is a
second Gloo. All but the communicator itself is what runs for NCCL. Where there are two CUDA devices, NCCL is run too.
"""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed
import torch.distributed.distributed_c10d as c10d

import ictp2p
from ictp2p.collectives.group import library
from ictp2p.collectives.group.local import GroupTimeouts, LocalGroup
from ictp2p.collectives.group.rendezvous import Rendezvous, RendezvousServer
from ictp2p.device_memory import home, placed, settle
from ictp2p.errors import LibraryRefused, LocalGroupError
from ictp2p.sync.rosters.devices import HOST, Device
from ictp2p.sync.rosters.roster import Roster
from ictp2p.training import said
from ictp2p.types import PeerId

NAME = "ictp2ptwin"
CPU = torch.device("cpu")


class Twin:
    """A library as torch knows it: makes the members' ends, or refuses to."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.operations = 0
        self.refusing: set[int] = set()
        """Ranks that it does not come up for."""
        self.once = False
        """Whether it refuses them the first time only."""
        self.coming: Callable[[], object] = lambda: None
        """Called when a member comes to its meeting."""
        self.before_refusing: Callable[[], object] = lambda: None
        """Called when one comes that it refuses."""
        self.given = datetime.timedelta()
        """The deadline that the last one had."""

    def make(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
        if rank in self.refusing:
            if self.once:
                self.refusing.clear()
            self.before_refusing()
            raise RuntimeError(f"rank {rank} has no such network device\nand a long trace")
        options = c10d.ProcessGroupGloo._Options()
        options._devices = [c10d.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        options._timeout = self.given = timeout
        self.coming()
        self.made.append(c10d.ProcessGroupGloo(store, rank, size, options))
        return _Counting(self, self.made[-1])


class _Counting:
    def __init__(self, twin: Twin, group: Any) -> None:
        self._twin, self._group = twin, group

    def __getattr__(self, name: str) -> Any:
        self._twin.operations += name in ("allreduce", "broadcast", "allgather")
        return getattr(self._group, name)


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> Twin:
    made = Twin()
    plugins = {**torch.distributed.Backend._plugins}
    plugins[NAME.upper()] = torch.distributed.Backend._BackendPlugin(made.make, False)
    monkeypatch.setattr(torch.distributed.Backend, "_plugins", plugins)
    return made


@pytest.fixture
def server() -> Iterator[RendezvousServer]:
    server = RendezvousServer("127.0.0.1")
    yield server
    server.close()


def members(server: RendezvousServer, size: int, name: str = NAME, **waits: float) -> list[LocalGroup]:
    names = tuple(f"{rank:032x}" for rank in range(size))
    roster = Roster(1, 1, names, str(server.address), 0, name)
    patience = GroupTimeouts(**{"join": 20.0, "operation": 20.0, **waits})
    return [LocalGroup(roster, PeerId(name), patience, CPU) for name in names]


def opened(groups: list[LocalGroup]) -> list[BaseException | None]:
    """Open all at once; what each raised. Who fails has the others stop waiting, as the leader's next roster would."""

    def enter(group: LocalGroup) -> BaseException | None:
        try:
            group.open()
        except LocalGroupError as error:
            for other in groups:
                other.abort("roster 1.2 came")
            return error
        return None

    with ThreadPoolExecutor(len(groups)) as pool:
        return list(pool.map(enter, groups))


def test_the_library_carries_the_sums_and_the_group_ends_cleanly(twin: Twin, server: RendezvousServer) -> None:
    groups = members(server, 3)
    assert opened(groups) == [None] * 3
    before = twin.operations
    assert before == 3, "coming up is one sum"

    def work(group: LocalGroup) -> tuple[list[float], list[bytes]]:
        tensor = group.staging(4, torch.float32, group.device).fill_(group.rank + 1)
        group.all_reduce(tensor)
        group.broadcast(tensor, 0)
        return tensor.tolist(), group.all_gather(b"%d" % group.rank)

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, groups)) == [([6.0] * 4, [b"0", b"1", b"2"])] * 3
    assert twin.operations - before == 9
    assert all(group.device == CPU and group.library == NAME for group in groups)
    for group in groups:
        group.close()
        with pytest.raises(LocalGroupError, match="closed"):
            group.all_gather(b"x")


def test_a_member_that_it_does_not_come_up_for_refuses_it_by_name(twin: Twin, server: RendezvousServer) -> None:
    came = threading.Semaphore(0)
    twin.refusing, twin.coming = {1}, came.release
    twin.before_refusing = lambda: [came.acquire(timeout=10.0) for _ in range(2)]  # else they may still meet over Gloo
    errors = opened(members(server, 3))
    assert type(errors[1]) is LibraryRefused
    assert "ictp2ptwin failed: rank 1 has no such network device" in str(errors[1])
    assert "long trace" not in str(errors[1])
    for error in (errors[0], errors[2]):
        assert type(error) is LocalGroupError, "who was told to stop refuses nothing"
        assert "roster 1.2 came" in str(error)


def test_a_library_that_torch_does_not_have_is_refused(server: RendezvousServer) -> None:
    errors = opened(members(server, 2, "hccl"))
    assert LibraryRefused in map(type, errors)
    assert any("no collective library 'hccl'" in str(error) for error in errors)


def test_one_that_never_connects_is_refused_by_the_deadline(twin: Twin, server: RendezvousServer) -> None:
    first, second = members(server, 2, join=20.0)
    second.library = "gloo"  # it does not come to the library's own meeting
    twin.coming = lambda: first._store._socket.settimeout(0.5)  # type: ignore[union-attr]  # not before: they meet first
    with ThreadPoolExecutor(2) as pool:
        waiting, _ = pool.submit(first.open), pool.submit(second.open)
        with pytest.raises(LibraryRefused, match="ictp2ptwin failed"):
            waiting.result()
    assert twin.given == datetime.timedelta(seconds=20)
    second.close()


def test_abort_ends_a_wait_in_the_library(twin: Twin, server: RendezvousServer) -> None:
    groups = members(server, 2, operation=600.0)  # longer than this test may take
    assert opened(groups) == [None, None]
    threading.Timer(0.2, groups[0].abort, ("member 1 is dead",)).start()
    with pytest.raises(LocalGroupError, match="member 1 is dead"):
        groups[0].all_reduce(groups[0].staging(4, torch.float32, CPU))
    for group in groups:
        group.close()


def test_an_operation_in_the_library_has_a_deadline(twin: Twin, server: RendezvousServer) -> None:
    groups = members(server, 2)
    assert opened(groups) == [None, None]
    groups[0]._timeouts = GroupTimeouts(operation=0.5)  # not before it is open, which takes an operation too
    with pytest.raises(LocalGroupError, match="all_reduce failed"):
        groups[0].all_reduce(groups[0].staging(4, torch.float32, CPU))
    for group in groups:
        group.close()


def test_the_watchdogs_orders_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    monkeypatch.delenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", raising=False)
    with library._set(library._WATCHDOG):
        assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
        assert os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "0"
    assert "TORCH_NCCL_ASYNC_ERROR_HANDLING" not in os.environ
    assert os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"


def test_the_store_does_what_a_library_asks_of_it(server: RendezvousServer) -> None:
    store = Rendezvous(server.address, 5.0)
    assert not store.check(["a"])
    store.set("a", b"1")
    assert store.check(["a"])
    assert (store.add("n", 2), store.add("n", -5)) == (2, -3)
    assert (store.delete_key("a"), store.delete_key("a")) == (True, False)
    prefixed = c10d.PrefixStore("nccl/", store)
    prefixed.set("id", "x")
    assert prefixed.get("id") == b"x"
    assert prefixed.add("count", 1) == 1
    assert prefixed.check(["id"])
    store.close()


def test_the_host_has_nothing_to_describe_and_nothing_to_wait_for() -> None:
    assert library.describe(CPU) == HOST
    assert library.describe(torch.device("meta")) == Device("meta")
    assert home([torch.empty(1), torch.empty(1)]) == CPU
    assert home([torch.empty(1), torch.empty(1, device="meta")]) == CPU
    assert home([torch.empty(1, device="meta")]).type == "meta"
    assert not placed(3, torch.float32, CPU, near=[CPU]).is_pinned()
    settle([torch.empty(1)])


# ------------------------------------------------------------ in whole peers


def peers_with(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each worker of this process claim a device of its own, for which torch has the twin."""
    count = iter(range(100))
    monkeypatch.setattr(said, "describe", lambda device: Device("cpu", f"here/{next(count)}", "", NAME, "1"))


def config(*join: str) -> ictp2p.Config:
    return ictp2p.Config.local(cluster="a", token="a token for tests only", join=join)


class Worker:
    def __init__(self, peer: ictp2p.Peer, steps: int) -> None:
        self.peer, self._steps = peer, steps
        self.events: list[dict[str, Any]] = []
        peer.on_event(self.events.append)

    def run(self) -> str:
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        with ictp2p.DiLoCo(self.peer, net, inner, sync_every=2) as policy:
            for _ in range(self._steps):
                net(torch.ones(4, 3)).square().mean().backward()
                inner.step()
                inner.zero_grad()
            return policy.digest()

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]


@pytest.mark.real
@pytest.mark.parametrize("refusing", [False, True])
def test_a_cluster_uses_the_library_or_falls_back_together(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, refusing: bool
) -> None:
    peers_with(twin, monkeypatch)
    twin.refusing, twin.once = ({1} if refusing else set()), True
    with ictp2p.Peer(config()) as one, ictp2p.Peer(config(str(one.address))) as two:
        workers = [Worker(one, 6), Worker(two, 6)]
        with ThreadPoolExecutor(2) as pool:
            digests = [f.result(40) for f in [pool.submit(w.run) for w in workers]]
        assert digests[0] == digests[1]
        for worker in workers:
            used = [e["library"] for e in worker.told("collectives") if e["size"] == 2]
            assert used == ["gloo" if refusing else NAME]
            assert not worker.told("illegal_transition")
        warned = [e["text"] for w in workers for e in w.told("warning") if "falls back to gloo" in e["text"]]
        assert bool(warned) == refusing
        assert {m["library"] for m in one.members} == {NAME}


# ------------------------------------------------------------ on devices


@pytest.mark.real
@pytest.mark.skipif(
    not torch.distributed.is_nccl_available() or torch.cuda.device_count() < 2,
    reason="NCCL needs two CUDA devices",
)
def test_nccl_sums_on_devices_aborts_and_is_rebuilt() -> None:
    places = [torch.device("cuda", index) for index in range(2)]
    described = [library.describe(place) for place in places]
    assert {d.library for d in described} == {"nccl"}
    assert len({d.unit for d in described}) == 2
    names = tuple(f"{rank:032x}" for rank in range(2))
    for number in (1, 2):
        server = RendezvousServer("127.0.0.1")
        roster = Roster(1, number, names, str(server.address), 0, "nccl")
        waits = GroupTimeouts(join=60.0, operation=20.0)
        groups = [LocalGroup(roster, PeerId(n), waits, p) for n, p in zip(names, places, strict=True)]
        assert opened(groups) == [None, None]

        def work(group: LocalGroup) -> list[float]:
            with torch.cuda.device(group.device):
                tensor = group.staging(1 << 20, torch.float32, group.device).fill_(group.rank + 1)
                group.all_reduce(tensor)
                assert tensor.device == group.device
                return tensor[::100000].tolist()

        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(work, groups)) == [[3.0] * 11] * 2
        threading.Timer(0.5, groups[0].abort, ("member 1 is dead",)).start()
        with pytest.raises(LocalGroupError, match="member 1 is dead"):
            groups[0].all_reduce(groups[0].staging(4, torch.float32, places[0]))
        for group in groups:
            group.close()
        server.close()
