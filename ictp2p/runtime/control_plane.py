"""The control plane of one peer: its machines, on sockets and by the clock, and how it shows itself to the others.

`core` is pure, and its driver carries out what it asks for. Here it is made of what the peer was configured with, gets
its inputs at the present time, and is told what its own connections show. What `data_plane` is for tensors, this is for
all else.
"""

from __future__ import annotations

from collections.abc import Callable

from ictp2p.config import Config
from ictp2p.core import planning
from ictp2p.core.cards import Limits, PeerCard
from ictp2p.core.commands import Command
from ictp2p.core.machines import Machines, Profiles
from ictp2p.core.packets import Channel
from ictp2p.core.stack import Core
from ictp2p.core.standing import StandingPlan
from ictp2p.edge.control import ControlConnection, SelfConnection, open_control
from ictp2p.edge.reception import Reception
from ictp2p.edge.security import Security
from ictp2p.errors import LocalProtocolError, StateError, TurnedAway
from ictp2p.identity import Identity
from ictp2p.machine import Effects, Notice
from ictp2p.runtime.data_folder import NOT_A_COPY, begin_life
from ictp2p.runtime.driver import Driver
from ictp2p.runtime.repetition import Repetition
from ictp2p.runtime.whereabouts import Whereabouts
from ictp2p.seams import Seams
from ictp2p.sync.rosters.devices import Device
from ictp2p.sync.rounds.restore import Stock
from ictp2p.sync.values import Value, genesis
from ictp2p.types import Address, PeerId

_MARGIN = 1.5
"""Times what a fetch took, what the next one is said to need."""
_TRIES = 8
"""How often a round waits for a fetch, if all were in vain."""


class ControlPlane:
    """The control plane of one life of a peer that listens.

    Args:
        config: who this peer is, and how it is to be.
        identity: signs what it says of itself.
        seams: the outside.
        security: how connections are secured.
        reception: where it listens.
        stock: says which global state others can have of it; None as long as its worker may yet bring one.
        on_notice: given every notice, in order.
        on_failure: given why the disk keeps nothing more.
        warn: tells people what they have to mend.

    Raises:
        StateError: the disk keeps nothing, or not what it was given.
    """

    def __init__(
        self,
        config: Config,
        identity: Identity,
        seams: Seams,
        security: Security,
        reception: Reception,
        stock: Callable[[], Stock | None],
        on_notice: Callable[[Notice], None],
        on_failure: Callable[[StateError], None],
        warn: Callable[[str], None],
    ) -> None:
        self._config = config
        self._seams = seams
        self._security = security
        self._reception = reception
        self._life = begin_life(seams.disk)
        self._whereabouts = Whereabouts(config, reception.address, warn)
        self._plans = StandingPlan(config.full_mesh)
        self._warn = warn
        self._repetition = Repetition()
        self.founded = False
        """Whether this process has founded its mesh, rather than joined or resumed it."""
        self._overtaken = 0
        """How often, since it took part in a round."""
        self.core = self._make_core(identity, stock)
        self.driver = Driver(
            self.core,
            seams.network,
            security,
            seams.disk,
            seams.clock,
            on_notice,
            on_failure,
            self._shown,
            self._stalled,
            self._faulted,
            dial_timeout=config.global_timeouts.connect,
        )

    def _make_core(self, identity: Identity, stock: Callable[[], Stock | None]) -> Core:
        config, rng = self._config, self._seams.rng
        card = PeerCard(
            identity.peer_id,
            config.cluster_id,
            "" if self._whereabouts.hidden else self._whereabouts.known,
            identity.bulk_public,
            durable=config.data_dir is not None,
            rank=config.rank,
            inside=self._whereabouts.known if self._whereabouts.hidden else "",
        )
        machines = Machines(
            identity,
            config.cluster_id,
            Profiles.named(config.local_profile, config.global_profile, config.restore_after),
            self._seams.disk,
            self._life,
            rng,
            planner=lambda request: self._plans.answer(self.core.directory, request),
            validate=planning.check_plan,
            stock=stock,
        )
        return Core(machines, card, rng, Limits(config.bulk_rate or 0.0, config.room), complete=config.full_mesh)

    # ------------------------------------------------------------ in and out of the mesh

    def start(self) -> None:
        """Come alive, alone."""
        self._execute(self.core.start(self._life << 32, self._seams.clock()))

    def found(self) -> None:
        """Begin a mesh."""
        self.founded = True
        lineage = self._seams.rng.getrandbits(64).to_bytes(8, "big")
        first = genesis(lineage, self.core.card.peer)
        self.call(Channel.ROUNDS, lambda now: self.core.m.rounds.bootstrap(first, now))

    def join(self) -> None:
        """Take this peer's place in the mesh that it belongs to."""
        self._execute(self.core.joined(self._seams.clock()))

    def resign(self) -> None:
        """Say goodbye to this peer's cluster."""
        self._execute(self.core.resign(self._seams.clock()))

    def leave(self) -> None:
        """Say goodbye to everybody."""
        self._execute(self.core.leave(self._seams.clock()))

    # ------------------------------------------------------------ inputs at the present time

    def call(self, channel: Channel, act: Callable[[float], Effects]) -> None:
        """Give an input to one machine and carry out what it asks for."""
        self.driver.call(channel, act)

    def set_training(self, training: bool) -> None:
        """Say whether rounds should wait for this cluster, if that is not what was said."""
        if training != self.core.publication.training:
            self._execute(self.core.set_training(training, self._seams.clock()))

    def overtaken(self, seconds: float) -> float:
        """A newer state was agreed on in the `seconds` that this peer fetched one: have the next round wait for it.

        Gives for how long. A fetch that broke off has taken less than all of it would, so it is never less than the
        last time; and nothing after some times, not counting short fetches, which nobody had to wait for: one that
        fails for other reasons must not hold up everybody without end.
        """
        before = self.core.publication.behind
        self._overtaken += _MARGIN * seconds > before / 2
        said = max(_MARGIN * seconds, before) if self._overtaken <= _TRIES else 0.0
        self._be_behind(said)
        return said

    def caught_up(self) -> None:
        """This peer has taken part in a round."""
        self._overtaken = 0
        self._be_behind(0.0)

    def _be_behind(self, seconds: float) -> None:
        if seconds != self.core.publication.behind:
            self._execute(self.core.set_behind(seconds, self._seams.clock()))

    def equip(self, device: Device) -> None:
        """Say what the training thread computes on."""
        if device != self.core.card.device:
            self._execute(self.core.equip(device, self._seams.clock()))

    def tell_status(self, observer: PeerId, document: bytes) -> None:
        """Answer who asked for this peer's status."""
        self._execute(self.core.tell_status(observer, document, self._seams.clock()))

    def decided(self, value: Value) -> None:
        """Learn from what was decided: later plans are made with what this one showed."""
        self._plans.decided(self.core.directory, value, self._seams.clock())

    def _execute(self, work: list[Command]) -> None:
        self.driver.execute(work)

    # ------------------------------------------------------------ connections and addresses

    async def dial(self, address: Address) -> PeerId:
        """Open a connection to an address, and give whose it is.

        Raises:
            IctError: it cannot be opened; see `control.open_control`.
        """
        timeout = self._config.global_timeouts.connect
        knocks = self._reception.knocks
        try:
            connection = await open_control(self._seams.network, address, self._security, timeout=timeout)
        except SelfConnection as error:
            if self._reception.knocks != knocks:  # whatever ways it took, it came in at our own door
                raise
            what = f"{address} is another process with the identity of this one, {self.core.card.peer}"
            raise TurnedAway(f"{what}: {NOT_A_COPY}") from error
        self.adopt(connection)
        return connection.peer_id

    def adopt(self, connection: ControlConnection) -> None:
        """Take an established connection, dialed or accepted."""
        self.driver.adopt(connection)

    @property
    def host(self) -> str:
        """The numeric address of this machine where our cluster meets while we lead it, as connections show it."""
        return self._whereabouts.interface

    def _stalled(self, seconds: float) -> None:
        """A disk that is slow makes a peer look dead, and a quorum lost, and nothing else shows which it is."""
        text = f"the disk took {seconds:.1f} s to keep a few bytes: for so long this peer answered nobody"
        self._warn_once(text)

    def _faulted(self, error: LocalProtocolError) -> None:
        self._warn_once(f"this peer broke the protocol, which is a fault of ictp2p and of no other peer: {error}")

    def _warn_once(self, text: str) -> None:
        due = self._repetition.to_log(text, self._seams.clock())
        if due is not None:
            self._warn(due)

    def _shown(self, host: str) -> None:
        where = self._whereabouts
        address = where.shown(self.core.card.endpoint(mate=True), host)
        if address is not None:
            self._execute(self.core.readdress(str(address), self._seams.clock(), inside=where.hidden))
