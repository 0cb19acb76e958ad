from __future__ import annotations

import errno
import hashlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ictp2p.collectives.group import local
from ictp2p.collectives.group.local import GroupTimeouts, LocalGroup
from ictp2p.collectives.group.rendezvous import RendezvousServer
from ictp2p.errors import GroupUnbuilt, GroupUnmet, LocalGroupError
from ictp2p.sync.rosters.roster import Roster
from ictp2p.types import PeerId
from tests.garbage import uncollected
from tests.interrupts import interrupted

WORKER = """
import hashlib, sys, threading
import torch
from ictp2p.collectives.group.local import GroupTimeouts, LocalGroup
from ictp2p.errors import LocalGroupError
from ictp2p.sync.rosters.roster import Roster

torch.set_num_threads(1)
rank, store, members = int(sys.argv[1]), sys.argv[2], tuple(sys.argv[3].split(","))
waits = GroupTimeouts(join=3600.0, operation=3600.0)
group = LocalGroup(Roster(1, 1, members, store, 0), members[rank], waits)
group.open()
print("open", flush=True)
for line in sys.stdin:
    command, *arguments = line.split()
    try:
        if command == "sum":
            tensor = group.staging(int(arguments[0]), torch.float32)
            tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(rank)))
            if len(arguments) > 1:
                threading.Timer(float(arguments[1]), group.abort, ("member 2 is dead",)).start()
            group.all_reduce(tensor)
            print("sum", hashlib.blake2b(tensor.numpy().data).hexdigest(), flush=True)
        elif command == "gather":
            print("gather", b"".join(group.all_gather(b"<%d>" % rank)).decode(), flush=True)
        elif command == "broadcast":
            tensor = group.staging(8, torch.int64).fill_(rank)
            group.broadcast(tensor, 1)
            print("broadcast", tensor.sum().item(), flush=True)
        elif command == "ping":
            print("pong", flush=True)
        elif command == "close":
            group.close()
            print("closed", flush=True)
            break
    except LocalGroupError as error:
        print("error", str(error).replace("\\n", " "), flush=True)
"""


class Member:
    def __init__(self, rank: int, store: str, members: tuple[str, ...]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), store, ",".join(members)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> list[str]:
        assert self.process.stdout
        return self.process.stdout.readline().strip().split(maxsplit=1)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def cluster() -> Iterator[list[Member]]:
    server = RendezvousServer("127.0.0.1")
    names = tuple(f"{rank:032x}" for rank in range(3))
    members = [Member(rank, str(server.address), names) for rank in range(3)]
    try:
        assert [m.hear() for m in members] == [["open"]] * 3
        yield members
    finally:
        for member in members:
            member.end()
        server.close()


@pytest.mark.real
def test_every_member_gets_the_same_bits_and_all_close_at_once(cluster: list[Member]) -> None:
    for member in cluster:
        member.say("sum 1000003")
    digests = {member.hear()[1] for member in cluster}
    expected = sum(torch.randn(1000003, generator=torch.Generator().manual_seed(rank)) for rank in range(3))
    assert len(digests) == 1
    assert isinstance(expected, torch.Tensor)
    for member in cluster:
        member.say("gather")
    assert [member.hear()[1] for member in cluster] == ["<0><1><2>"] * 3
    for member in cluster:
        member.say("broadcast")
    assert [member.hear()[1] for member in cluster] == ["8"] * 3
    for member in cluster:
        member.say("close")
    assert [member.hear() for member in cluster] == [["closed"]] * 3
    assert [member.process.wait() for member in cluster] == [0, 0, 0]


@pytest.mark.real
def test_a_killed_member_is_an_error_in_the_survivors_at_once(cluster: list[Member]) -> None:
    for member in cluster[:2]:
        member.say("sum 1000000")
    cluster[2].process.kill()
    for member in cluster[:2]:
        word, message = member.hear()
        assert word == "error"
        assert "all_reduce failed" in message
        assert "1.1 rank" in message
        member.say("close")
        assert member.hear() == ["closed"]
        assert member.process.wait() == 0


@pytest.mark.real
def test_who_fails_hangs_up_so_that_who_waits_for_it_fails_too(cluster: list[Member]) -> None:
    """Rank 0 sends so little that all of it has left before the death, which it does not see: it waits for rank 1."""
    cluster[0].say("ping")
    cluster[0].say("sum 1000")
    assert cluster[0].hear() == ["pong"]
    cluster[2].process.kill()
    cluster[2].process.wait()
    cluster[1].say("sum 1000")
    for member in (cluster[1], cluster[0]):
        word, message = member.hear()
        assert word == "error"
        assert "all_reduce failed" in message


@pytest.mark.real
def test_abort_ends_a_wait_on_a_stopped_member_and_names_it(cluster: list[Member]) -> None:
    os.kill(cluster[2].process.pid, signal.SIGSTOP)
    for member in cluster[:2]:
        member.say("sum 1000000 0.3")
    for member in cluster[:2]:
        word, message = member.hear()
        assert word == "error"
        assert "member 2 is dead" in message
        member.say("gather")
        assert "member 2 is dead" in member.hear()[1]
        member.say("close")
        assert member.hear() == ["closed"], "closing waits for nobody"
        assert member.process.wait() == 0, "nor does the end of the process"


def roster(server: RendezvousServer, size: int) -> Roster:
    return Roster(1, 1, tuple(f"{rank:032x}" for rank in range(size)), str(server.address), 0)


@pytest.fixture
def server() -> Iterator[RendezvousServer]:
    server = RendezvousServer("127.0.0.1")
    yield server
    server.close()


def groups(server: RendezvousServer, size: int, timeouts: GroupTimeouts) -> list[LocalGroup]:
    made = [LocalGroup(roster(server, size), PeerId(name), timeouts) for name in roster(server, size).members]
    threads = [threading.Thread(target=group.open) for group in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_members_meet_in_the_family_of_the_rendezvous_whatever_else_their_connections_show(host: str) -> None:
    """Regression: each bound to what its own first connection had shown, IPv4 or IPv6, and they never met."""
    server = RendezvousServer(host)
    made = groups(server, 2, GroupTimeouts.local())
    try:
        assert [bool(group._group) for group in made] == [True, True]
    finally:
        for group in made:
            group.close()
        server.close()


@pytest.mark.parametrize("place", ["[enforce fail at /a/gloo/device.cc:285] ", "[/a/gloo/pair.cc:144] ", ""])
def test_what_broke_a_group_is_said_before_where_in_gloos_source(server: RendezvousServer, place: str) -> None:
    """Regression: who read the status saw a path, and the line ended before the reason."""
    group = LocalGroup(roster(server, 2), PeerId("0" * 32))
    said = str(group._broken("meeting", RuntimeError(f"{place}ss1.ss_family == ss2.ss_family. 10 vs 2")))
    assert "meeting failed: ss1.ss_family == ss2.ss_family. 10 vs 2>" in said


def test_the_default_group_stays_the_users(server: RendezvousServer) -> None:
    made = groups(server, 2, GroupTimeouts.local())
    assert not torch.distributed.is_initialized()
    for group in made:
        group.close()


def test_a_late_member_cannot_write_into_what_the_caller_kept(server: RendezvousServer) -> None:
    one, other = groups(server, 2, GroupTimeouts.local())
    mine = one.staging(4, torch.float32).fill_(1.0)
    threading.Timer(0.1, one.abort, ("gone",)).start()
    with pytest.raises(LocalGroupError, match="gone"):
        one.all_reduce(mine)
    one.close()
    fresh = one.staging(4, torch.float32).zero_()
    other.all_reduce(other.staging(4, torch.float32).fill_(5.0))
    assert fresh.tolist() == [0.0] * 4, "the abandoned operation ends in memory of its own"
    other.close()


def test_meeting_without_the_others_ends_by_the_deadline(server: RendezvousServer) -> None:
    group = LocalGroup(roster(server, 2), PeerId("0" * 32), GroupTimeouts(join=0.3))
    with pytest.raises(GroupUnmet, match="meeting failed"):
        group.open()


def no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def no_socket(*_: object) -> socket.socket:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize(
    ("what", "name", "instead"), [(threading.Thread, "start", no_thread), (socket, "create_connection", no_socket)]
)
def test_what_this_worker_lacks_is_its_own_fault(
    server: RendezvousServer, monkeypatch: pytest.MonkeyPatch, what: Any, name: str, instead: Any
) -> None:
    group = LocalGroup(roster(server, 2), PeerId("0" * 32), GroupTimeouts(join=50.0))
    with monkeypatch.context() as patch:
        patch.setattr(what, name, instead)
        with pytest.raises(GroupUnbuilt, match=r"can't start new thread|Too many open files"):
            group.open()


def test_a_meeting_that_was_aborted_is_nobodys_fault(server: RendezvousServer, monkeypatch: pytest.MonkeyPatch) -> None:
    group = LocalGroup(roster(server, 2), PeerId("0" * 32), GroupTimeouts(join=50.0))
    group.abort("roster 1.2 came")
    monkeypatch.setattr(socket, "create_connection", no_socket)
    with pytest.raises(LocalGroupError, match=r"roster 1\.2 came") as raised:
        group.open()
    assert raised.type is LocalGroupError


def test_meeting_ends_when_aborted(server: RendezvousServer) -> None:
    group = LocalGroup(roster(server, 2), PeerId("0" * 32), GroupTimeouts(join=3600.0))
    threading.Timer(0.2, group.abort, ("roster 1.2 came",)).start()
    with pytest.raises(LocalGroupError, match=r"roster 1\.2 came"):
        group.open()


def test_a_lone_worker_needs_no_network() -> None:
    alone = LocalGroup(Roster(1, 1, ("a",), "127.0.0.1:1", 0), PeerId("a"))
    alone.open()
    tensor = alone.staging(3, torch.float32).fill_(2.0)
    alone.all_reduce(tensor)
    alone.broadcast(tensor, 0)
    assert tensor.tolist() == [2.0] * 3
    assert alone.all_gather(b"x") == [b"x"]
    assert repr(alone) == "<LocalGroup 1.1 rank 0 of 1, closed>"
    alone.abort("over")
    with pytest.raises(LocalGroupError, match="over"):
        alone.all_gather(b"x")


def test_staging_is_warm_memory(server: RendezvousServer) -> None:
    alone = LocalGroup(roster(server, 1), PeerId("0" * 32))
    first = alone.staging(100, torch.float32)
    assert alone.staging(50, torch.float32).data_ptr() == first.data_ptr()
    assert alone.staging(100, torch.uint8).dtype == torch.uint8


def test_a_digest_of_a_sum_does_not_depend_on_who_asks(server: RendezvousServer) -> None:
    made = groups(server, 3, GroupTimeouts.local())
    tensors = [group.staging(777, torch.float32) for group in made]
    for rank, tensor in enumerate(tensors):
        tensor.copy_(torch.randn(777, generator=torch.Generator().manual_seed(rank)))
    threads = [threading.Thread(target=g.all_reduce, args=(t,)) for g, t in zip(made, tensors, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({hashlib.blake2b(t.numpy().data).digest() for t in tensors}) == 1
    for group in made:
        group.close()


@pytest.mark.timeout(20)  # else it waits for itself
def test_a_signals_handler_may_break_a_group_wherever_it_comes_into_its_opening(server: RendezvousServer) -> None:
    """Regression: it waited for ever for the lock that its own thread held."""
    for at in itertools.count(1):
        group, told = LocalGroup(roster(server, 2), PeerId("0" * 32)), list[str]()
        store: Any = SimpleNamespace(abort=told.append)
        with interrupted(at, lambda group=group: group.abort("closed"), local) as steps:  # type: ignore[misc]
            group._admit(store)
        if steps[0] < at:
            break
        assert "closed" in told, at


def test_a_group_that_does_not_meet_leaves_nothing_to_the_garbage_collector() -> None:
    """Regression: its error knew the frame that had waited for it, and that what had brought the error."""
    members = tuple(PeerId(f"{rank:032x}") for rank in range(2))

    def alone() -> None:
        server = RendezvousServer("127.0.0.1")
        roster = Roster(1, 1, members, str(server.address), 0)
        group = LocalGroup(roster, members[0], GroupTimeouts(join=0.2, operation=0.2))
        with pytest.raises(LocalGroupError):
            group.open()
        group.close()
        server.close()

    with uncollected(LocalGroup) as left:
        alone()
    assert left == []
