"""The process group inside a cluster: torch's Gloo, with deadlines, an abort that works, and no leaks.

Where the roster names a vendor's library there is a second communicator beside it, for tensors on the devices: Gloo
carries what the workers say to each other and whatever lies in host memory, the library what is large and lies on the
devices. Both are torch `Backend`s and live the same life; `library` has what differs.

Observed on torch 2.13 with Gloo, and the reasons for what follows:

- A member that is killed surfaces within milliseconds in those who wait for it: the kernel closes its sockets. Who has
  sent to it and waits for a third surfaces when that third hangs up, so who fails hangs up at once. A member that is
  stopped surfaces only at the deadline of the operation.
- `ProcessGroupGloo.abort()` does not end an operation under way. `Work.wait(timeout)` returns in time, but the
  operation goes on in Gloo's own thread, may still write into its tensor much later (the stopped member may wake),
  and the group's destructor waits for it.
- Destroying a group in a daemon thread while the interpreter exits ends the process with `terminate`, and destroying
  it in the interpreter's own end holds the process to the operation's deadline.

So a wait here is sliced, and `abort` (from any thread) ends it within one slice. A group that broke is never reused:
its tensors, which come from `staging` and from nowhere else, stay its own, and it is buried until its operations
have ended, or left to the kernel if the process ends first. What a caller keeps is copied out of staging, and only
after success. A vendor's library does have an `abort` that ends its operations, which may block meanwhile: it is buried
by a thread that aborts it. Success is seen by asking, never by having the device wait: a device that waits for a dead
worker cannot be called back.

The group is built directly on a `Rendezvous`, never through `torch.distributed.init_process_group`: the default
group belongs to the user. It binds to this end of its connection to the rendezvous and resolves no names: a host that
resolves its own name picks the wrong network, or waits seconds for a name server. Gloo's connections are of one family,
or none: it refuses to meet where one member is at an IPv4 address and another at an IPv6 one. What each worker's other
connections show may be either, where hosts have both; but all of them have reached the one rendezvous, the leader's.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import datetime
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed.distributed_c10d
from torch import Tensor

from ictp2p.collectives.group.library import connect
from ictp2p.collectives.group.rendezvous import Rendezvous
from ictp2p.concurrency.interrupts import Answer
from ictp2p.device_memory import placed
from ictp2p.errors import GroupUnbuilt, GroupUnmet, LibraryRefused, LocalGroupError, lacking
from ictp2p.sync.rosters.devices import GLOO
from ictp2p.sync.rosters.roster import Roster
from ictp2p.types import Address, PeerId

_c10d: Any = torch.distributed.distributed_c10d
"""Untyped: torch's stubs lack the operations of a group that is built directly."""

_SLICE = datetime.timedelta(milliseconds=10)
"""How soon an abort ends a wait. Success and failure end it at once."""
_PLACE = re.compile(r"^\[(enforce fail at )?/[^]]*\] ")
"""Where in Gloo's source an error came from: long, and ahead of what people have to read."""
_FIRST_PAUSE, _LONGEST_PAUSE = 20e-6, 1e-3
"""Seconds between two looks at an operation on a device: short for what is quick, and what is long can bear more."""


@dataclass(frozen=True, slots=True)
class GroupTimeouts:
    """The local set of timeouts; those between clusters are configured apart."""

    join: float = 60.0
    """Seconds that all members may take to meet. Long is harmless: a member that dies meanwhile aborts the wait."""

    operation: float = 60.0
    """Seconds that one operation may wait for the slowest member, so longer than its slowest step. A death shows at
    once and a silent member is suspected much earlier; this bounds what neither of the two sees."""

    @classmethod
    def local(cls) -> GroupTimeouts:
        """Several processes on one machine."""
        return cls(join=20.0, operation=20.0)


class LocalGroup:
    """One generation of the group. `open` it, use it from one thread, `abort` it from any, `close` it."""

    def __init__(
        self,
        roster: Roster,
        me: PeerId,
        timeouts: GroupTimeouts | None = None,
        device: torch.device | None = None,
    ) -> None:
        """Describe the group without touching the network.

        Args:
            roster: members in rank order, and the rendezvous.
            me: this worker.
            timeouts: how patient to be.
            device: what this worker computes on; the host by default.
        """
        self.generation = roster.generation
        self.members = roster.members
        self.rank = roster.members.index(me)
        self.size = len(roster.members)
        self.library = roster.library
        self._device = device or torch.device("cpu")
        self._store_address = Address.parse(roster.store)
        self._timeouts = timeouts or GroupTimeouts()
        self._store: Rendezvous | None = None
        self._group: Any = None
        self._vendor: Any = None
        self._works: list[Any] = []
        self._staging: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        self._reason = ""
        self._lock = threading.RLock()  # reentrant: a signal handler may close the peer in the middle of this

    def __repr__(self) -> str:
        state = f"broken: {self._reason}" if self._reason else "open" if self._group else "closed"
        return f"<LocalGroup {self.generation[0]}.{self.generation[1]} rank {self.rank} of {self.size}, {state}>"

    @property
    def device(self) -> torch.device:
        """Where tensors should lie that are to be summed."""
        return torch.device("cpu") if self.library == GLOO else self._device

    def open(self) -> None:
        """Meet the other members.

        Raises:
            LibraryRefused: the vendor's library did not come up.
            GroupUnbuilt: this worker lacks what it needs to build its part.
            GroupUnmet: not all came in time.
            LocalGroupError: a member failed meanwhile, or `abort` was called.
        """
        _sweep()
        if self.size == 1:
            return
        try:
            store = Rendezvous(self._store_address, self._timeouts.join)
            self._admit(store)
            self._group = self._meet(lambda: self._build(store), lambda late: _discard(late, store))
        except (LocalGroupError, RuntimeError, OSError) as error:
            kind = self._fault(error)
            raise kind(str(self._broken("meeting", error))) from error
        if self.library != GLOO:
            self._equip(store)
        self._check()

    def staging(self, elements: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        """A flat tensor of this group's own, for its operations; the same memory each time, so warm.

        Args:
            elements: how many.
            dtype: of which type.
            device: where; in host memory by default, which is page-locked if this worker computes on something else.
        """
        place = device or torch.device("cpu")
        held = self._staging.get((dtype, place))
        if held is None or held.numel() < elements:
            held = self._staging[dtype, place] = placed(elements, dtype, place, near=(self._device,))
        return held[:elements]

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum `tensor`, from `staging`, over the members, in place; every member gets the same bits.

        Raises:
            LocalGroupError: it failed. The tensor's content is then undefined.
        """
        self._run("all_reduce", tensor, lambda g: g.allreduce([tensor], self._timed(_c10d.AllreduceOptions())))

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """Copy `tensor`, from `staging`, from rank `root` to all.

        Raises:
            LocalGroupError: it failed. The tensor's content is then undefined.
        """
        options = self._timed(_c10d.BroadcastOptions())
        options.rootRank = root
        self._run("broadcast", tensor, lambda group: group.broadcast([tensor], options))

    def all_gather(self, data: bytes) -> list[bytes]:
        """Exchange a few bytes, the same number from each member; the answer is in rank order.

        Raises:
            LocalGroupError: it failed.
        """
        if self.size == 1:
            self._check()
            return [data]
        mine = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        theirs = torch.empty(self.size, len(data), dtype=torch.uint8, device="cpu")
        rows, options = list(theirs.unbind()), self._timed(_c10d.AllgatherOptions())
        self._run("all_gather", mine, lambda group: group.allgather([rows], [mine], options))
        return [bytes(row.numpy()) for row in rows]

    def abort(self, reason: str) -> None:
        """Break the group, from any thread: what waits in it, and whatever is called later, raises within moments."""
        with self._lock:
            self._reason = self._reason or reason or "aborted"
            store = self._store
        if store is not None:
            store.abort(reason)

    def close(self) -> None:
        """Leave the group. Never blocks; a broken group is kept aside until its last operation has ended."""
        self.abort("the group is closed")
        self._bury()
        _sweep()

    def _fault(self, error: Exception) -> type[LocalGroupError]:
        """Whose a meeting's failure is, as far as it shows here; what was aborted from outside says nothing."""
        if self._reason:
            return LocalGroupError
        if lacking(error):
            return GroupUnbuilt
        return GroupUnmet if self._store is not None and self._store.in_vain else LocalGroupError

    def _admit(self, store: Rendezvous) -> None:
        """Let `abort` reach the rendezvous from now on, and see whether it came before."""
        with self._lock:
            self._store = store
        if self._reason:  # looked at after: a handler's abort may have come before the store was there
            store.abort(self._reason)

    def _equip(self, store: Rendezvous) -> None:
        """Bring the vendor's library up, as far as its first operation, which is what connects its members."""
        try:
            self._vendor = self._meet(lambda: self._connect(store), lambda late: _end(late, store, [], None))
            first = self.staging(1, torch.float32, self._device).fill_(1.0)
            self.all_reduce(first)
            if first.item() != self.size:
                raise RuntimeError(f"its first sum over {self.size} members gave {first.item():g}")
        except (LocalGroupError, RuntimeError) as error:
            # What was broken from outside, by a death or a newer roster, says nothing about the library.
            refused = not self._reason or self._reason.startswith("all_reduce failed")
            raised = self._broken(self.library, error)
            raise (LibraryRefused(str(raised)) if refused else raised) from error

    def _meet(self, build: Callable[[], Any], discard: Callable[[Any], None]) -> Any:
        """Build something in a thread: a member that stops half-way would hold the constructor to its deadline.

        What comes into being after nobody wanted it any more is discarded.
        """
        made: Future[Any] = Answer()
        try:
            threading.Thread(target=_fulfil, args=(made, build), daemon=True).start()
        except RuntimeError:
            if self._store is not None:
                self._store.close()  # nobody else has it yet
            raise
        while not made.done():
            with contextlib.suppress(TimeoutError):
                made.exception(_SLICE.total_seconds())
            if self._reason:
                break
        if self._reason:
            made.add_done_callback(lambda late: None if late.exception() else discard(late.result()))
        try:
            self._check()
            return made.result()
        finally:
            del made  # it knows its error, and that this frame

    def _connect(self, store: Rendezvous) -> Any:
        timeout = datetime.timedelta(seconds=self._timeouts.join)
        try:
            return connect(self.library, store, self.rank, self.size, timeout)
        except BaseException:
            store.close()
            raise

    def _build(self, store: Rendezvous) -> Any:
        # torch 2.13 offers no public way to name the device of a group that is not the default one.
        options = _c10d.ProcessGroupGloo._Options()
        options._devices = [_c10d.ProcessGroupGloo.create_device(hostname=store.interface)]
        options._timeout = datetime.timedelta(seconds=self._timeouts.join)
        options._threads = 2
        try:
            group = _c10d.ProcessGroupGloo(store, self.rank, self.size, options)
        except BaseException:
            store.close()
            raise
        if self.library == GLOO:
            store.close()
        return group

    def _timed(self, options: Any) -> Any:
        options.timeout = datetime.timedelta(seconds=self._timeouts.operation)
        return options

    def _run(self, name: str, tensor: Tensor, start: Callable[[Any], Any]) -> None:
        self._check()
        if self.size == 1:
            return
        if self._group is None:
            raise LocalGroupError(f"{self!r} is not open")
        by_vendor = self._vendor is not None and tensor.device.type == self._device.type
        try:
            # Held here alone: a frame that an exception keeps would keep the work, and the work its connections.
            self._works = [start(self._vendor if by_vendor else self._group)]
            (self._poll if by_vendor else self._wait)()
        except RuntimeError as error:
            raise self._broken(name, error) from error

    def _poll(self) -> None:
        """Ask until an operation on a device is over; then have what this thread does there next come after it."""
        ends, pause = time.monotonic() + self._timeouts.operation + 1.0, _FIRST_PAUSE
        while not self._works[0].is_completed():
            self._check()
            if time.monotonic() > ends:
                raise RuntimeError(f"no end after {self._timeouts.operation:g} s")
            time.sleep(pause)
            pause = min(2.0 * pause, _LONGEST_PAUSE)
        self._works[0].wait()

    def _wait(self) -> None:
        ends = time.monotonic() + self._timeouts.operation + 1.0
        while True:
            over = self._works[0].is_completed()
            try:
                self._works[0].wait(_SLICE)
                return
            except RuntimeError:
                # One message serves a slice that passed and an operation that failed; only the latter is over.
                if over:
                    raise
            self._check()
            if time.monotonic() > ends:
                raise RuntimeError(f"no end after {self._timeouts.operation:g} s")

    def _check(self) -> None:
        if self._reason:
            raise LocalGroupError(f"{self!r}")

    def _bury(self) -> None:
        if self._vendor is not None:
            held = (self._vendor, self._store, self._works, self._staging)
            _ABORTS.append(threading.Thread(target=_end, args=held, daemon=True))
            _ABORTS[-1].start()
            self._vendor = None
        if self._group is not None:
            _GRAVES.append((self._group, self._works))
            self._group = None
        self._works, self._staging = [], {}

    def _broken(self, doing: str, error: Exception) -> LocalGroupError:
        """Mark the group broken, and say by what; the reason given to `abort` comes before its consequences."""
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        words = _PLACE.sub("", first)
        self.abort(f"{doing} failed: {words.split(' This is typically')[0]}")
        self._bury()
        _sweep()
        return LocalGroupError(f"{self!r}, members {', '.join(m[:8] for m in self.members)}")


_ABORTS: list[threading.Thread] = []
"""Threads that abort a vendor's library and let go of it."""
_LAST_MOMENT = 2.0
"""Seconds that the interpreter's end waits for them, all together."""

_GRAVES: list[tuple[Any, list[Any]]] = []
"""Groups that wait for their operations to end: destroying one earlier would block."""


def _fulfil(made: Future[Any], build: Callable[[], Any]) -> None:
    try:
        made.set_result(build())
    except Exception as error:
        made.set_exception(error)
    finally:
        del made, build  # as in `_meet`


def _discard(group: Any, store: Rendezvous) -> None:
    store.close()
    _GRAVES.append((group, []))


@atexit.register
def _leave_behind() -> None:
    """Keep the interpreter from destroying, at its end, a group whose operation is still under way."""
    ends = time.monotonic() + _LAST_MOMENT
    for thread in _ABORTS:
        thread.join(max(0.0, ends - time.monotonic()))
    _sweep()
    for grave in _GRAVES:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(grave))


def _end(vendor: Any, store: Rendezvous, works: list[Any], staging: object) -> None:
    """Abort a library's communicator, which ends its operations on the device, and only then let go of their memory."""
    store.close()
    with contextlib.suppress(RuntimeError):
        vendor.abort()
    while not all(work.is_completed() for work in works):
        time.sleep(_LONGEST_PAUSE)
    del vendor, works, staging


def _sweep() -> None:
    _ABORTS[:] = [thread for thread in _ABORTS if thread.is_alive()]
    _GRAVES[:] = [grave for grave in _GRAVES if not all(work.is_completed() for work in grave[1])]
