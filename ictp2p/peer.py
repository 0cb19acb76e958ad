"""A peer for training loops: `with ictp2p.Peer(config) as peer`.

The peer lives on an event loop of its own in a daemon thread (`handle`); every method here may be called from any
other thread and blocks until it has its answer or a typed error. What a policy needs is in `training`, what an asyncio
program needs in `async_peer`; this joins them under the names that users see.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ictp2p import torchrun
from ictp2p.calls.engine import CallEngine
from ictp2p.collective_calls import CollectiveCalls
from ictp2p.concurrency import logs
from ictp2p.config import Config
from ictp2p.errors import (
    AddressInUse,
    ConfigError,
    Exhausted,
    FolderInUse,
    IctError,
    LocalProtocolError,
    PeerClosed,
    RoundTimeout,
    Translated,
    VersionMismatch,
    lacking,
    shown,
)
from ictp2p.fsm import DRAINING
from ictp2p.handle import Handle
from ictp2p.handle.process import ProcessHandle
from ictp2p.handle.thread import beside
from ictp2p.rows import ClusterRow, LinkRow, MemberRow, RouteRow, StatusDocument
from ictp2p.runtime import data_folder
from ictp2p.runtime.life import Life
from ictp2p.runtime.repetition import Repetition
from ictp2p.started import named, note, started
from ictp2p.sync.samples.hand import Batches
from ictp2p.sync.samples.sampler import ElasticSampler
from ictp2p.training.mesh import TrainingMesh
from ictp2p.types import Address, ClusterId, PeerId

_log = logging.getLogger(__name__)

_MOST_VAIN = 1000
"""Times that `steps` ends at once after a drain: epochs that a loop counts off, rather than one without an end."""

T = TypeVar("T")
EventCallback = Callable[[dict[str, Any]], None]

_CUT_SHORT = (
    "%s: its leaving was cut short by %s: the others notice a death, and may need its vote. "
    "If they report that they have no quorum, start it again, with its data_dir"
)

_NAMES = frozenset(name for name in vars(TrainingMesh) if not name.startswith("_") and name != "close")

if TYPE_CHECKING:
    _MeshMethods = TrainingMesh
else:

    class _MeshMethods:
        """Passes on what policies call (`sync.mesh.Mesh`) to the `TrainingMesh` that a peer has while it runs."""

        def __getattr__(self, name: str) -> Any:
            if name not in _NAMES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            mesh = self.__dict__.get("_mesh")
            if mesh is None:
                raise PeerClosed("start the peer before it is used: `with peer:`, or `peer.start()`")
            return getattr(mesh, name)


class Peer(CollectiveCalls, _MeshMethods):
    """One worker's place in the mesh.

    Args:
        config: this worker's name, addresses and timeouts; see `docs/parameters.md`.

    Raises:
        ConfigError: it is not a `Config`.
    """

    def __init__(self, config: Config) -> None:
        if not isinstance(config, Config):
            raise ConfigError(f"config must be an ictp2p.Config, as Config.lan() gives, not {shown(config)}")
        self.config = config
        self._callbacks: list[EventCallback] = []
        self._repetition = Repetition()
        self._handle: Handle | None = None
        self._mesh: TrainingMesh | None = None
        self._lived: Life | None = None
        self._draining_from: tuple[int, int] | None = None
        self._vain_steps = 0  # how often `steps` was called after it has drained
        self._ending = threading.RLock()  # reentrant: a signal handler may close what its thread is closing
        self._ended = self._closed = False
        self._starting = self._unwanted = False  # a start is under way; it was closed, then or since
        self._left: bool | None = None  # it has not begun to
        self._told = threading.local()  # set on the thread that runs a callback, as long as it does
        self.embedded: object = None
        """Which callback of `integrations` has a policy entered with this peer; set by them."""

    def __repr__(self) -> str:
        if self._handle is None:
            return f"<Peer {self.config.cluster} not started>"
        return f"<Peer {self._handle.id[:8]} {self.config.cluster} {self.state} clusters={self._handle.clusters}>"

    def __getstate__(self) -> object:
        """Refuse to be pickled or copied, as what is handed to another process or to a DataLoader's workers is."""
        raise TypeError(f"{self!r} stays in the process that made it: leave it out of what is handed to another")

    # ------------------------------------------------------------ life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Join the mesh, or found one if the configuration names nobody to join.

        Raises:
            ConfigError: the data folder cannot be used; `FolderInUse`: another peer has it.
            StateError: it is corrupt, or that of a peer of another cluster.
            AddressInUse: the listen address is taken; `AddressNotOurs`: it is not one of this machine.
            Unreachable: no seed answered in time.
            TurnedAway, VersionMismatch: every seed refused us for good.
            Exhausted: this process or its machine has no more threads, descriptors or memory.
            PeerClosed: it was closed meanwhile, by another thread or a signal handler.
            LocalProtocolError: it has been started before, or closed while it started. After a start that failed by
                itself it may be started again.
        """
        if self._handle is not None or self._unwanted:
            raise LocalProtocolError("a peer is started once; make another `Peer` for another life")
        self._starting, given = True, self.config
        try:
            mates = torchrun.rendezvous(self.config, os.environ)
            if mates is not None:
                self.config = mates.before(self.config, data_folder.home)
            self._begin(mates)
        except (AddressInUse, FolderInUse) as error:
            raise named(error, self.config, self.running()) from error
        finally:
            self._starting = False
            if self._handle is None:  # what was found out for this start is found out anew for the next
                self.config = given
        note(self)

    def _begin(self, mates: torchrun.Rendezvous | None) -> None:
        live = ProcessHandle if self.config.isolation == "process" else beside
        with Translated(Exception, _exhausted):
            handle: Handle = live(self.config, self._tell)
            try:
                self._handle = handle
                if self._unwanted:  # after that: a close either finds the handle, or is found here
                    raise PeerClosed("the peer was closed while it started")
                self._join(handle)
                if mates is not None:
                    mates.after(self.config, handle.address)
            except BaseException:
                handle.close()
                self._handle = self._mesh = self._engine = None
                raise

    @classmethod
    def running(cls) -> list[Peer]:
        """The peers that were started in this process and not closed since, in that order.

        A peer goes on running when its variable is assigned to something else, as when a notebook's cell is run again.
        Here it can still be found, and closed.
        """
        return [p for p in started() if not (p._closed or p._handle is None or p._handle.left_behind)]

    def _join(self, handle: Handle) -> None:
        """Have everything that listens in place, then start."""
        life = self._lived = Life(handle.event)
        handle.show(lambda: (life.state, life.inside))
        mesh = TrainingMesh(handle, life)
        engine = CallEngine(handle, mesh)
        handle.start()
        self._mesh, self._engine = mesh, engine

    def close(self) -> None:
        """Say goodbye to the mesh and stop. May be called several times, and by several threads: all wait for the end.

        An interrupt (Ctrl-C) cuts the goodbye short: the peer stops at once, and the others notice a death. If a second
        interrupt cuts that short as well, the next call finishes it. A `start` under way in another thread raises
        `PeerClosed`; one that has only just begun does so a little later, and is not waited for.

        Raises:
            LocalProtocolError: a callback of `on_event` called it, which runs on the thread that it would wait for.
        """
        starting, handle = self._starting, self._handle
        if handle.left_behind if handle is not None else not starting:
            return
        self._check_caller()
        self._unwanted = True
        handle = self._handle  # once more, after that: see `_begin`
        if handle is None:
            return
        with self._ending:
            if not self._ended:  # nor under way, in this thread: a handler of a signal called it within itself
                self._end(handle)

    def _end(self, handle: Handle) -> None:
        try:
            self._ended = True
            if self._left is None:
                self._leave(handle)
            self._stop(handle)
        except BaseException as error:  # nobody may come who closes it once more
            self._stop(handle)
            if not self._left:
                logs.warning(_log, _CUT_SHORT, self.config.cluster, type(error).__name__)
            raise
        finally:
            self._ended = self._closed

    def _leave(self, handle: Handle) -> None:
        self._left = False
        if self._mesh is not None:
            self._mesh.close()
        if self._engine is not None:
            self._engine.close()
        if self._lived is not None:
            self._lived.closing()
        self._hand_over(handle)
        handle.leave()
        self._left = True
        if self._lived is not None:
            self._lived.closed()

    def _hand_over(self, handle: Handle) -> None:
        """Wait while others fetch what nobody but this worker holds; not for a peer that stands still."""
        with contextlib.suppress(PeerClosed, RoundTimeout):
            future = handle.hand_over()
            try:
                while True:
                    try:
                        return handle.wait(future, self.config.global_timeouts.connect)
                    except TimeoutError:
                        if future.done():
                            raise
                        handle.waiting()
            finally:
                future.cancel()
                del future  # as in `LoopThread.wait`

    def _stop(self, handle: Handle) -> None:
        """End where it lives, and all that waits for it: what has left has ended most of that."""
        if self._mesh is not None:
            self._mesh.close()
        handle.close()
        if self._engine is not None:
            self._engine.close()
        self._closed = True

    def drain(self) -> None:
        """Ask this worker to leave after its next committed round: then `steps` ends. May be called from any thread.

        The round may be one of a policy or of a collective call. As long as no state is shared, none is waited for.
        Only `steps` ends by itself. A program that does not use it hears of the request by the events `life` and
        `phase`, finds `drained` True once it may leave, and then has to call `close`. Without a quorum there is no such
        round: the inner step that waits for one raises `PeerClosed` after `global_timeouts.stall`.

        Raises:
            PeerClosed: the peer was not started.
        """
        reached = self._reached()
        if self._draining_from is None:
            self._draining_from = reached
            self._training.asked_to_leave()
            if self._lived is not None:
                self._lived.draining()

    def steps(self, loader: Iterable[T]) -> Iterator[T]:
        """Yield the batches of `loader` until it ends or this worker has drained.

        A loop around it, as over epochs, has to end when `drained` is True.

        If the loader's `batch_sampler` is an `ElasticSampler`, a batch is given again later if the program asks for the
        next one without an inner step in between. So iterate over this itself; a prefetcher belongs inside, as in
        `peer.steps(sampler.over(prefetcher))`.

        Args:
            loader: what yields the batches, such as a `DataLoader`.

        Raises:
            ConfigError: the loader is not iterable, or is a loader of an `ElasticSampler` with `in_order=False`.
            PeerClosed: the peer is closed, or was not started; or it was called a thousand times after this worker had
                drained, by a loop that does not look at `drained` and would never end.
        """
        _ = self._running
        batches = _counted(loader)
        for batch in batches:
            if self._has_drained():
                if isinstance(batches, Batches):
                    batches.batch_sampler.drain()
                self._vain_steps += 1
                if self._vain_steps > _MOST_VAIN:
                    raise PeerClosed("this worker has drained: end the loop when peer.drained is True")
                break
            yield batch
        if self._draining_from is not None and self._lived is not None:
            self._lived.heard(DRAINING, "committed")

    @property
    def drained(self) -> bool:
        """Whether this worker was asked to leave and may do so now: the round that it had to wait for is over.

        Raises:
            PeerClosed: the peer was not started.
        """
        if self._training.left_together is not None:
            return self._training.left_together
        if self._draining_from is None:
            return False
        reached = zip(self._reached(), self._draining_from, strict=True)
        return self._training.global_state is None or any(now > before for now, before in reached)

    def _has_drained(self) -> bool:
        if self._draining_from is not None and self._lived is not None:
            self._lived.heard(DRAINING, "runs")
        return self.drained

    def _reached(self) -> tuple[int, int]:
        """The version of the state, which a policy's rounds move, and the last round that a call accounted for."""
        state, engine = self._training.global_state, self._engine
        return -1 if state is None else state.version, 0 if engine is None else engine.chronicle.settled

    # ------------------------------------------------------------ what it sees

    @property
    def id(self) -> PeerId:
        """This peer's id, 32 hexadecimal digits. Without a `data_dir` each start has another one."""
        return self._running.id

    @property
    def cluster(self) -> ClusterId:
        """The name of its cluster."""
        return self.config.cluster_id

    @property
    def address(self) -> Address:
        """The host and port where it listens; `str` makes `host:port` of it."""
        return self._running.address

    @property
    def state(self) -> str:
        """Its state in the table LIFE of `docs/life.md`; INIT for one that has neither trained nor called anything."""
        return self._lived.state if self._lived is not None else "INIT"

    @property
    def leader(self) -> PeerId | None:
        """Who leads this cluster, as far as this peer knows."""
        return self._running.leader

    @property
    def members(self) -> list[MemberRow]:
        """The workers of this cluster, for a while also those that are dead or have left."""
        rows: list[MemberRow] = self._answering.view("members")
        return rows

    @property
    def clusters(self) -> list[ClusterRow]:
        """The clusters of the mesh, for a while also those that are dead or have left."""
        rows: list[ClusterRow] = self._answering.view("clusters")
        return rows

    @property
    def links(self) -> list[LinkRow]:
        """The links between clusters, as their leaders measure them; a follower's view may be much older."""
        rows: list[LinkRow] = self._answering.view("links")
        return rows

    @property
    def routes(self) -> list[RouteRow]:
        """The routes from this cluster; empty unless this peer leads it."""
        rows: list[RouteRow] = self._answering.view("routes")
        return rows

    def status(self) -> StatusDocument:
        """Everything that this peer believes, as plain data: what `ictp2p status --json` prints."""
        found: StatusDocument = self._answering.view("status")
        return found

    def stats(self) -> dict[str, Any]:
        """Counters and latencies of this peer, times in seconds; the keys are in `docs/reference.md`."""
        found: dict[str, Any] = self._answering.view("stats")
        return found

    def on_event(self, callback: EventCallback) -> None:
        """Have `callback` called with a dict for each event: `kind`, `time` (seconds since 1970), and its own fields.

        The events are in `docs/reference.md`. To hear of all of them, register before the peer is started. The callback
        runs on the peer's own thread: it must be quick, and may not wait for the peer, which raises
        `LocalProtocolError` there. An exception in it is logged, the same one once in ten minutes, and the callback is
        called for later events all the same.

        Raises:
            ConfigError: it is not callable.
        """
        if not callable(callback):
            raise ConfigError(f"callback {shown(callback)} is not callable: give a function that takes a dict")
        self._callbacks.append(callback)

    def _tell(self, kind: str, fields: Mapping[str, Any]) -> None:
        told = {"kind": kind, "time": time.time(), **fields}
        self._told.here = True
        try:
            for callback in self._callbacks:
                self._call(callback, told)
        finally:
            self._told.here = False
        match kind, fields:  # a program's own event may be called the same, and say something else
            case "warning", {"text": str(text)}:  # who watches no events must learn it too: the log reaches the screen
                self._log_warning(text, of_a_round="round" in fields)
            case "refused", {"error": VersionMismatch.__name__, "address": str(address), "text": str(text)}:
                self._log_refused(address.rpartition(":")[0], text)

    def _log_warning(self, text: str, *, of_a_round: bool) -> None:
        due = self._repetition.to_log(text, time.monotonic()) if of_a_round else text
        if due is not None:
            logs.warning(_log, "%s: %s", self.config.cluster, due)

    def _log_refused(self, host: str, why: str) -> None:
        """Of another release, which operators have to see; scanners come all day, and may not fill the log."""
        due = self._repetition.to_log(f"{host} was not let in: {why}", time.monotonic(), about=host)
        if due is not None:
            logs.warning(_log, "%s: %s", self.config.cluster, due)

    def _call(self, callback: EventCallback, told: dict[str, Any]) -> None:
        try:
            callback(told)
        except BaseException as error:  # `sys.exit` as well: it would end the peer's thread, and nobody be answered
            text = f"a callback of on_event failed: {type(error).__name__}: {error}"
            if (due := self._repetition.to_log(text, time.monotonic())) is not None:
                logs.exception(_log, "%s: on %s, %s", self.config.cluster, told["kind"], due)

    def _check_caller(self) -> None:
        """Refuse what would wait for the very thread that it is asked on: that wait would never end."""
        if getattr(self._told, "here", False):
            raise LocalProtocolError(
                "a callback of on_event must not wait for the peer, whose thread it is on: do it in another thread"
            )

    @property
    def _answering(self) -> Handle:
        self._check_caller()
        return self._running

    @property
    def _calls(self) -> CallEngine:
        self._check_caller()
        return super()._calls

    @property
    def _running(self) -> Handle:
        if self._closed:
            raise PeerClosed("the peer was closed: make another `Peer` for another life")
        if self._handle is None:
            raise PeerClosed("the peer is not running: use `with peer:`")
        return self._handle

    @property
    def _training(self) -> TrainingMesh:
        if self._mesh is None:
            raise PeerClosed("the peer is not running: use `with peer:`")
        return self._mesh


def _exhausted(error: Exception) -> None:
    """What the interpreter and the system raise where there is no more of something, as one of our errors."""
    if lacking(error) and not isinstance(error, IctError):
        raise Exhausted(f"no peer can be started here: {type(error).__name__}: {error}") from error


def _counted(loader: Iterable[T]) -> Iterable[T]:
    """The same, seen by the sampler that it draws from, if that is one that counts."""
    if not (hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")):
        raise ConfigError(
            f"loader {shown(loader)} is not iterable: give steps() what yields the batches, such as a DataLoader"
        )
    sampler = getattr(loader, "batch_sampler", None)
    return sampler.over(loader) if isinstance(sampler, ElasticSampler) else loader
