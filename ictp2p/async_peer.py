"""A peer for asyncio programs: one worker's place in the mesh.

`AsyncPeer` puts the parts together and keeps no protocol of its own: identity and disk, one listening port, the
stack and its driver, the bulk connections, and the leader's part in rounds. Everything that touches the outside
comes in through four seams, each a keyword with a real default (`network`, `clock`, `rng`, `disk`, and the
`security` of connections), so that the simulator runs this very class.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

from ictp2p.collectives.running.attempt import ExecuteProfile
from ictp2p.concurrency.blocking import blocking
from ictp2p.concurrency.closing import Step, close_all
from ictp2p.concurrency.tasks import Tasks
from ictp2p.config import Config
from ictp2p.core import commands
from ictp2p.core.packets import Channel
from ictp2p.disk import Disk, FileDisk, MemoryDisk
from ictp2p.edge.credential import Mesh
from ictp2p.edge.network import Network, TcpNetwork
from ictp2p.edge.reception import Reception, serve
from ictp2p.edge.security import Security, TlsSecurity
from ictp2p.errors import IctError, LocalProtocolError, PeerClosed, PeerFailed, StateError, Unreachable, untraced
from ictp2p.identity import Identity
from ictp2p.machine import Effects, Notice
from ictp2p.rows import StatusDocument
from ictp2p.runtime.control_plane import ControlPlane
from ictp2p.runtime.custody import Custody
from ictp2p.runtime.data_folder import claim, keep_to, let_go
from ictp2p.runtime.data_plane import DataPlane
from ictp2p.runtime.departure import Departure
from ictp2p.runtime.entrance import Entrance
from ictp2p.runtime.errands import Errands
from ictp2p.runtime.events import tell
from ictp2p.runtime.group_store import GroupStore, OpenStore
from ictp2p.runtime.handover import Handover
from ictp2p.runtime.health import Health
from ictp2p.runtime.participation import Participation
from ictp2p.runtime.reactions import Reactions
from ictp2p.runtime.reduction import Outcome, Reduction
from ictp2p.runtime.reporting import status_of
from ictp2p.runtime.state_fetch import fetch_agreed
from ictp2p.runtime.state_provider import Here, Provider, serve_state
from ictp2p.seams import Seams
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.rosters.devices import Device
from ictp2p.sync.rounds.restore import Stock
from ictp2p.sync.values import StateRef, Value
from ictp2p.telemetry import Telemetry
from ictp2p.types import Address, ClusterId, PeerId

if TYPE_CHECKING:
    from ictp2p.sync.mesh import Receiver
    from ictp2p.sync.state.global_state import GlobalState

_LOOK = 0.05
"""Seconds between two looks at whether a peer that has just started knows what the others do."""
_CHUNK = 10.0
"""Seconds without probes after each chunk of a state, which takes no longer on a line of a Mbit/s. Who has just joined
fetches the state while everybody wants to know its links: probes took half of a provider's line for most of the fetch,
and measured the other half."""


class AsyncPeer:
    """One worker of a mesh, on the running event loop.

    Args:
        config: who we are and where.
        network: how to listen and dial; TCP by default.
        clock: monotonic seconds.
        rng: jitter; seeded by the system by default.
        random_bytes: keys, nonces and tickets; the system's by default, and nothing else outside a simulator.
        disk: what survives a crash; a folder if the configuration names one, else memory.
        security: how connections are secured; TLS by default.
        open_store: opens the rendezvous store of a process group on an interface, and returns its `host:port` and
            what to close; without it this peer cannot lead a cluster whose workers train together.

    Raises:
        ConfigError: the data folder cannot be used; `FolderInUse`: another peer has it.
        StateError: it is corrupt, or that of a peer of another cluster.
    """

    def __init__(
        self,
        config: Config,
        *,
        network: Network | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        disk: Disk | None = None,
        security: Callable[[Identity], Security] | None = None,
        open_store: OpenStore | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.random_bytes = random_bytes
        self.telemetry = Telemetry(clock)
        self._seams = Seams(
            network or TcpNetwork(),
            clock,
            rng or random.Random(os.urandom(16)),
            random_bytes,
            disk or (FileDisk(config.data_dir) if config.data_dir else MemoryDisk()),
        )
        self._identity = claim(self._seams.disk, config, random_bytes)
        self._make_security = security
        self._store = GroupStore(open_store) if open_store is not None else None
        self._tasks = Tasks()
        self._subscribers: list[Callable[[Notice], None]] = []
        self._led = asyncio.Event()
        self._departure = Departure(config, self.telemetry)
        self.refusals: list[IctError] = []
        """Why strangers were turned away, newest last; bounded."""
        self.life: Callable[[], tuple[str, Mapping[str, str]]] = lambda: ("INIT", {})
        """Where the worker is in its life: at the top level, and by table inside. Whoever trains with it knows."""
        self.health = Health()
        """How well the event loop keeps up, and how often it suspected wrongly."""
        self.failure: PeerFailed | None = None
        """Why this peer stopped by itself, if it did."""
        self._decided: Value | None = None
        """The newest decision that this peer knows of and has kept: what it knew besides could die with it."""
        self._begun = self._closed = False
        self._collapse: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Listen, join the mesh (or found one), and return once this peer's cluster has a leader.

        Raises:
            AddressInUse: the listen address is taken; `AddressNotOurs`: it is not one of this machine.
            Unreachable: no seed let us in within the deadline; the message says what each answered.
            TurnedAway, VersionMismatch: every seed refused us for good; or whoever answered a peer that resumes did.
            StateError: the data folder is of a mesh with another token.
            PeerFailed: the disk keeps nothing, or another process has our identity.
            PeerClosed: the peer was closed, meanwhile or before.
            LocalProtocolError: it has been started before; it goes on as if it had not been asked.
        """
        if self._begun and not self._closed and self.failure is None:
            raise LocalProtocolError("a peer is started once; make another `AsyncPeer` for another life")
        self._begun = True
        try:
            self._check()
            await self._start()
            self._check()
        except BaseException:
            await self.close()
            raise

    async def _start(self) -> None:
        self.security = await blocking(self._secured)
        self._check()
        keep_to(self._seams.disk, self.config, self.security.fingerprint)
        self.reception: Reception = await serve(
            self._seams.network,
            self.config.listen_address,
            self.security,
            on_control=lambda connection: self.control.adopt(connection),
            on_bulk=lambda transport, preamble: self.bulk.accept(transport),
            on_refused=self._refused,
            on_stuck=lambda text: self.telemetry.event("warning", text=text),
        )
        self._check()
        self._assemble()
        self.telemetry.event("started", peer=self.id, cluster=self.cluster, address=str(self.address))
        self.control.start()
        self.health.watch(self.clock)
        await self._entrance.enter()
        self._check()
        self._tasks.spawn(self._entrance.keep_in_touch())
        await self._be_led()

    async def _be_led(self) -> None:
        seconds = self.config.global_timeouts.form
        try:
            async with asyncio.timeout(seconds):
                await self._led.wait()
        except TimeoutError:
            raise Unreachable(f"no leader was elected in this cluster within {seconds:g} s") from None

    def _secured(self) -> Security:
        if self._make_security is not None:
            return self._make_security(self._identity)
        return TlsSecurity(self._identity, Mesh.from_token(self.config.token))

    def _assemble(self) -> None:
        """Put the parts together, from the machines up."""
        config, waits = self.config, self.config.global_timeouts
        control = self.control = ControlPlane(
            config,
            self._identity,
            self._seams,
            self.security,
            self.reception,
            self.stock,
            self._notice,
            self._fail,
            self._warn,
        )
        self.core, self.driver = control.core, control.driver
        if self.core.m.rounds.tip is not None:
            _, self._decided = self.core.m.rounds.tip
        network, random_bytes = self._seams.network, self._seams.random_bytes
        data = DataPlane(config, self._identity, self.driver, network, self.security, self.telemetry, random_bytes)
        self.bulk = data.bulk
        self._custody = Custody(self.bulk, self.telemetry, self.clock)
        self._handover = Handover(config, self.core, self.bulk, self._custody, self.telemetry, self.clock)
        ways = control.dial, control.found, control.join
        self._entrance = Entrance(config, self._seams.disk, self.core, *ways, self._warn)
        profile = ExecuteProfile(connect=waits.connect, start=waits.stall, total=waits.complete)
        self.participation = Participation(
            self.id, self.cluster, self.driver, self.bulk, self.telemetry, profile, self.bulk.doubt
        )
        self._errands = Errands(control, data, self._store, self._tasks, self.telemetry, lambda: self.status())
        self._reactions = Reactions(
            control,
            self.bulk,
            self._entrance,
            self.participation,
            self.health,
            led=self._led,
            released=self._departure.released,
            resigned=self._departure.resigned,
            fail=self._fail,
        )

    async def leave(self) -> bool:
        """Leave for good: hand over what nobody else holds, give up the vote, say goodbye, and close.

        Returns:
            Whether all who need to know that this peer votes no longer do know it. If not, they may need its vote to
            find out, and so what is on its disk.
        """
        if self._closed:
            return self._departure.released.is_set()
        if self.failure is not None or not self.assembled:
            await self.close()
            return False
        try:
            await self.hand_over()
            await self._departure.take(self.control)
        finally:  # cancelled or broken: who leaves `async with` has nobody who closes this peer later
            await self.close()
        return self._departure.released.is_set()

    async def hand_over(self) -> None:
        """Before this peer leaves: have the agreed state held by others, if they do not hold it; see `handover`."""
        if not self._closed and self.failure is None:
            await self._handover.take()

    async def close(self) -> None:
        """Stop everything at once. Others will notice a death; `leave` is the polite way. A start under way ends.

        What one part raises as it is closed is raised once all others are closed too.
        """
        self._closed = True
        if self._collapse is not None:
            await asyncio.shield(self._collapse)
        else:
            await self._close()

    async def _close(self) -> None:
        steps: list[Step] = []
        if self.assembled:
            steps += [self._wake, self.participation.closed, self.bulk.close, self.driver.close]
        steps.append(self.health.rest)
        if self._store is not None:
            steps.append(self._store.close)
        if hasattr(self, "reception"):
            steps.append(self.reception.close)
        await close_all(*steps, self._tasks.end, lambda: let_go(self._seams.disk))

    def _warn(self, text: str) -> None:
        self.telemetry.event("warning", text=text)

    def _fail(self, cause: IctError) -> None:
        """Stop for good: whatever this peer said from now on might break a promise that was made in its name."""
        if self.failure is not None:
            return
        failure = self.failure = PeerFailed(f"the peer stopped by itself: {cause}")
        self.driver.stop()
        self.telemetry.event("failed", error=type(cause).__name__, text=str(cause))
        self.participation.closed(failure)
        self._wake()
        self._tell(commands.Failed(failure))
        self._collapse = asyncio.get_running_loop().create_task(self._close())

    def _wake(self) -> None:
        """Have a start that waits look at what has become of this peer."""
        self._entrance.open()
        self._led.set()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._closed:
            raise PeerClosed("the peer is closed")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    # ------------------------------------------------------------ who and where

    @property
    def id(self) -> PeerId:
        """This peer's id."""
        return self._identity.peer_id

    @property
    def cluster(self) -> ClusterId:
        """The cluster that it belongs to."""
        return self.config.cluster_id

    @property
    def address(self) -> Address:
        """Where it listens.

        Raises:
            PeerClosed: it was never started.
        """
        self.check_assembled()
        return self.reception.address

    @property
    def assembled(self) -> bool:
        """Whether a start has put its parts together: before that nothing can be asked of them."""
        return hasattr(self, "participation")

    def check_assembled(self) -> None:
        """See that something can be asked of them.

        Raises:
            PeerClosed: nothing can yet.
        """
        if not self.assembled:
            raise PeerClosed("the peer is not running yet: start it, and wait until it has started")

    @property
    def leader(self) -> PeerId | None:
        """Who leads this cluster, as far as this peer knows."""
        return self.core.leader if self.assembled else None

    @property
    def agreed_state(self) -> StateRef | None:
        """The agreed global state, if a chain is known."""
        return self._decided.state if self._decided else None

    @property
    def lineage(self) -> bytes:
        """Which founding of the mesh its chain goes back to; empty if no chain is known."""
        return self._decided.lineage if self._decided else b""

    def __repr__(self) -> str:
        role = "leads" if self.assembled and self.core.leading else "in"
        return f"<AsyncPeer {self.id[:8]} {role} {self.cluster}>"

    # ------------------------------------------------------------ what the training side uses

    def call(self, channel: Channel, act: Callable[[float], Effects]) -> None:
        """Give an input to one machine and carry out what it asks for."""
        self.driver.call(channel, act)

    def set_training(self, training: bool) -> None:
        """Say whether rounds should wait for this cluster."""
        self.control.set_training(training)

    async def informed(self) -> None:
        """Wait until this peer knows what the voters do, for as long at most as it takes to reach one.

        What it has on its disk was decided in its former life, and may have been passed over since.
        """
        for _ in range(round(self.config.global_timeouts.connect / _LOOK)):
            if self.core.m.rounds.informed:
                return
            await asyncio.sleep(_LOOK)

    def serve_state(self, state: GlobalState) -> None:
        """Let the other peers have `state` from now on, and answer for it when they ask who holds the agreed one."""
        self.provide(Here(state))

    def provide(self, state: Provider) -> None:
        """As `serve_state`, wherever the state is."""
        self._custody.own = state
        serve_state(self.bulk, self._custody, lambda: self._reserve(_CHUNK))

    def _reserve(self, seconds: float) -> None:
        """Have our line free of probes from now on, for a while: whoever waits for what comes over it needs it."""
        self.core.m.links.reserve(self.clock() + seconds)
        self.bulk.stop_probes()

    async def fetch_state(self, ref: StateRef, state: Receiver) -> None:
        """Receive an agreed state of whoever should have it; see `state_fetch.fetch_agreed`."""
        began = self.clock()
        try:
            if not await self._custody.hand_on(ref, state):
                await fetch_agreed(self.core, self.bulk, ref, state, self.telemetry, self.clock)
        except StateError:
            self._note_fetch(ref, self.clock() - began)
            raise
        self._custody.reached(ref.version)
        self._note_fetch(ref, self.clock() - began)

    def _note_fetch(self, ref: StateRef, seconds: float) -> None:
        """See whether a newer state was agreed on in the meantime."""
        agreed = self.agreed_state
        if agreed is None or agreed.version <= ref.version:
            return
        if not 0.0 < self.control.overtaken(seconds) <= self.core.m.rounds.profile.fetch_grace:
            text = f"in the {seconds:.0f} s of fetching the state a newer one was agreed on, and rounds wait no longer"
            self._warn(f"{text}: this cluster may never be as far as the others")

    def stock(self) -> Stock | None:
        """Say which global state others can have of this peer; None before there can be any."""
        custody = self._custody
        return None if custody.own is None and not custody.keeps else Stock(custody.held(), custody.sealed())

    def equip(self, device: Device) -> None:
        """Say what the training thread computes on."""
        self.control.equip(device)

    async def reduce(self, work: Reduction) -> Outcome:
        """Take part in the next round as this cluster's leader; see `Participation.reduce`."""
        self._check()
        self.check_assembled()
        return await self.participation.reduce(work)

    def subscribe(self, subscriber: Callable[[Notice], None]) -> None:
        """Have every notice given to `subscriber`, on the event loop; what it raises goes to that one's handler."""
        self._subscribers.append(subscriber)

    def status(self) -> StatusDocument:
        """Everything that this peer believes, as plain data: what `ictp2p status --json` prints.

        Raises:
            PeerClosed: it was never started.
        """
        self.check_assembled()
        return status_of(self.core, *self.life(), self.clock())

    # ------------------------------------------------------------ what is told

    def _notice(self, notice: Notice) -> None:
        if isinstance(notice, Decided):
            self._decided = notice.value
        self.participation.notice(notice)
        tell(self.telemetry, self.core.directory, notice)
        self._reactions.notice(notice)
        self._errands.notice(notice)
        self._tell(notice)

    def _tell(self, notice: Notice) -> None:
        """What one subscriber raises keeps the notice from no other, and costs no neighbour its connection."""
        for subscriber in list(self._subscribers):
            try:
                subscriber(notice)
            except Exception as error:
                told = {"message": f"a subscriber failed on {notice}", "exception": error}
                asyncio.get_running_loop().call_exception_handler(told)

    def _refused(self, address: Address, error: IctError) -> None:
        self.refusals = [*self.refusals[-31:], untraced(error)]
        self.telemetry.event("refused", address=str(address), error=type(error).__name__, text=str(error))
