"""Runs the stack on a network: frames in, machine, frames out, one timer re-armed.

All protocol is in `core`; this module owns sockets and time, and decides nothing but which of two connections to
one peer to keep. Two peers that dial each other at the same moment get two; both sides then prefer the one that
the lower id dialed, and let the other rest for a moment before it is closed, so that neither takes its end for
the death of the peer (BGP resolves collisions by the higher identifier in the same way, RFC 4271 §6.8).

That is so only between the same two processes. A peer that was killed and started again comes with the same id while
the connection to its former life may still look open. It has forgotten what it promised its neighbours, so a route
through it must not outlive it: the stack is told that the old one is lost before it is told of the new one, and nothing
that the old one still brings is read.

Commands are executed strictly in the order in which the stack gave them. A listener may call back into the stack
while they are; what that yields is queued behind, so that no `Send` overtakes a `Persist` it relies on.

A disk that fails ends it all. The machines believe by then what they asked to be kept, so whatever they said next might
be a promise that a crash takes back; databases that went on after a failed fsync have lost data that way (Rebello et
al.: "Can Applications Recover from fsync Failures?", USENIX ATC 2020).

What is on disk already is not written again. Machines persist with each answer what it relies on, also where they are
asked the same again, and whoever asks repeats itself until it is answered: on a disk that takes longer than the pauses
between repetitions, each write would find more of them waiting than it had answered, for ever. The machines cannot tell
what is on disk, for what they ask for may be lost in an error on its way here; who has written it can. It compares with
the whole of what it wrote last under that key, once that had succeeded, and nobody else writes there (`disk`).

What we get wrong ourselves (`LocalProtocolError`) is said, and ends nothing. A message that is longer than any peer
would take is lost, as one on a bad line is, which every machine survives; what is behind it leaves. And whoever's
message we were about to answer has done nothing: its connection stays.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from math import inf
from typing import TYPE_CHECKING

from ictp2p.concurrency import tasks
from ictp2p.concurrency.closing import close_all
from ictp2p.core.commands import Command, Dial, Hangup, Restarted, Transmit
from ictp2p.core.machines import described
from ictp2p.core.packets import Channel
from ictp2p.disk import Disk
from ictp2p.edge.control import ControlConnection, open_control
from ictp2p.edge.network import Network
from ictp2p.edge.security import Security
from ictp2p.errors import IctError, LocalProtocolError, Refused, StateError
from ictp2p.machine import Effects, Notice, Persist
from ictp2p.types import Address, PeerId

if TYPE_CHECKING:
    from ictp2p.core.stack import Core

_TIMER_SLACK = 0.0005  # an event loop with millisecond timers fires up to half a millisecond early
_AFTER_A_FAULT = 1.0
"""Seconds after an exception that nobody expects: what else is due must not wait until somebody speaks to us."""
_RETIREMENT = 1.0  # seconds for which a surplus connection is still read
_FORBEARANCE = 10.0  # seconds after which one is ended at the latest that the other side should have
_STALL = 1.0
"""Seconds from which on a disk is slow; it takes milliseconds."""
_REMEMBERED = 4096
"""Peers of which it is known which life of theirs was met last."""
_GREETING = 20.0
"""Seconds in which who is at the other end must have greeted us; a peer does as soon as the connection is open."""


class Driver:
    """One running stack.

    Args:
        core: the stack.
        network: where to dial.
        security: who we are.
        disk: where `Persist` goes.
        clock: monotonic seconds.
        on_notice: given every notice, in order, between the other commands.
        on_failure: given the error of a disk that keeps nothing more; nothing has left since, and nothing will.
        on_shown: told the address of our end of each connection, before anything is said on it.
        on_stall: told how many seconds the disk took, if that was long: nobody was answered meanwhile.
        on_fault: told of what this process itself got wrong on its connections.
        dial_timeout: seconds for one dial, handshake included.
    """

    def __init__(
        self,
        core: Core,
        network: Network,
        security: Security,
        disk: Disk,
        clock: Callable[[], float],
        on_notice: Callable[[Notice], None],
        on_failure: Callable[[StateError], None],
        on_shown: Callable[[str], None],
        on_stall: Callable[[float], None],
        on_fault: Callable[[LocalProtocolError], None],
        dial_timeout: float = 5.0,
    ) -> None:
        self.core = core
        self.clock = clock
        self._network = network
        self._security = security
        self._disk = disk
        self._kept: dict[str, bytes] = {}
        """What was written last under each key, and is on disk."""
        self._on_notice = on_notice
        self._on_failure = on_failure
        self._on_shown = on_shown
        self._on_stall = on_stall
        self._on_fault = on_fault
        self._dial_timeout = dial_timeout
        self._loop = asyncio.get_running_loop()
        self._connections: dict[PeerId, ControlConnection] = {}
        self._retired: dict[ControlConnection, None] = {}
        self._processes: OrderedDict[PeerId, bytes] = OrderedDict()
        """Which life of each peer was met last, also of those whose connection has ended since."""
        self._dials: dict[asyncio.Task[None], None] = {}
        self._pending: deque[Command] = deque()
        self._executing = False
        self._timer: asyncio.TimerHandle | None = None
        self._armed = 0.0
        """For when the timer is set, by our clock."""
        self._closed = False

    def connection(self, peer: PeerId) -> ControlConnection | None:
        """The open connection to a peer."""
        return self._connections.get(peer)

    def adopt(self, connection: ControlConnection) -> None:
        """Take an established connection, dialed or accepted."""
        if self._closed:
            connection.abort()
            return
        try:
            self._on_shown(connection.local.host)
            self._bury(connection.peer_id, connection.process)
        finally:  # whatever raises: one that nobody reads would look open for as long as the other side is there
            self._place(connection)

    def execute(self, commands: list[Command]) -> None:
        """Carry out what an input of the stack returned, then re-arm the timer."""
        if self._closed:
            return
        self._pending.extend(commands)
        if self._executing:
            return
        try:
            if self._pending:
                self._carry_out_all()
        except Exception:
            self._go_on_after_a_fault()
            raise
        self._arm()

    def call(self, channel: Channel, act: Callable[[float], Effects]) -> None:
        """Give an input to one machine of the stack, at the present time, and carry out what it asks for."""
        now = self.clock()
        self.execute(self.core.call(channel, act(now), now))

    def stop(self) -> None:
        """Say and do nothing more, not even what was asked for already."""
        self._closed = True
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()

    async def close(self) -> None:
        """Stop at once: no timer, no dial, no connection survives."""
        self.stop()
        for task in list(self._dials):
            task.cancel()
        await close_all(lambda: tasks.ended(self._dials), self._close_connections)

    async def _close_connections(self) -> None:
        connections = [*self._connections.values(), *self._retired]
        self._connections.clear()
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.wait_closed() for connection in connections), return_exceptions=True)

    def __repr__(self) -> str:
        return f"<Driver {self.core.card.peer} connections={len(self._connections)}>"

    # ------------------------------------------------------------ commands

    def _carry_out_all(self) -> None:
        self._executing = True
        try:
            while self._pending:
                self._carry_out(self._pending.popleft())
        except StateError as error:
            self.stop()
            self._on_failure(error)
        finally:
            self._executing = False

    def _carry_out(self, command: Command) -> None:
        match command:
            case Transmit(peer=peer, frame=frame):
                if (connection := self._connections.get(peer)) is not None:
                    self._send(connection, frame)
            case Persist(key=key, value=value):
                self._keep(key, value)
            case Dial(peer=peer, address=address):
                self._spawn(self._dial(peer, address))
            case Hangup(peer=peer, gently=gently):
                if (connection := self._connections.get(peer)) is not None:
                    (connection.close if gently else connection.abort)()
            case Notice():
                self._on_notice(command)

    def _send(self, connection: ControlConnection, frame: bytes) -> None:
        try:
            connection.send(frame)
        except LocalProtocolError as error:
            self._on_fault(LocalProtocolError(f"{described(frame)} was not sent: {error}"))

    def _keep(self, key: str, value: bytes) -> None:
        """Nothing may leave that relies on what was not kept, whatever was in the way: an interrupt as well."""
        if self._kept.get(key) == value:
            return
        began = self.clock()
        try:
            self._disk.save(key, value)
        except StateError:
            raise
        except Exception as error:
            raise StateError(f"{key!r} could not be kept: {error!r}") from error
        except BaseException:
            self.stop()
            raise
        self._kept[key] = value
        if (seconds := self.clock() - began) >= _STALL:
            self._on_stall(seconds)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._dials[task] = None
        task.add_done_callback(self._dials.pop)

    async def _dial(self, peer: PeerId, address: Address) -> None:
        try:
            connection = await open_control(
                self._network,
                address,
                self._security,
                expected=peer,
                timeout=self._dial_timeout,
            )
        except Exception as error:  # whatever it is: the stack dials this peer no more until it is told that it failed
            self.execute(self.core.dial_failed(peer, isinstance(error, Refused), self.clock()))
            if not isinstance(error, IctError):
                raise
        else:
            self.adopt(connection)

    # ------------------------------------------------------------ connections

    def _place(self, connection: ControlConnection) -> None:
        peer = connection.peer_id
        present = self._connections.get(peer)
        try:
            if present is not None and present.is_open and not self._preferred(connection, present):
                self._retire(connection, present)
            else:
                self._connections[peer] = connection
                if present is not None:
                    self._retire(present, connection)
                self.execute(self.core.opened(peer, self.clock()))
        finally:  # last: frames may be waiting already, and must find the connection in its place
            self._start(connection)

    def _start(self, connection: ControlConnection) -> None:
        connection.start(lambda frame: self._receive(connection, frame), lambda reason: self._lost(connection, reason))
        self._loop.call_later(_GREETING, self._expect_greeting, connection)

    def _preferred(self, new: ControlConnection, present: ControlConnection) -> bool:
        """A connection by the same dialer replaces the older one; else the lower id's is kept."""
        if new.dialed == present.dialed:
            return True
        return new.dialed == (self.core.card.peer < new.peer_id)

    def _bury(self, peer: PeerId, process: bytes) -> None:
        """End the connections to other processes with this id than the one that is known to live now."""
        for retired in [c for c in self._retired if c.peer_id == peer and c.process != process]:
            retired.abort()
        follows: list[Command] = [Restarted(peer)] if self._processes.pop(peer, process) != process else []
        self._processes[peer] = process
        if len(self._processes) > _REMEMBERED:
            self._processes.popitem(last=False)
        present = self._connections.get(peer)
        if present is not None and present.process != process:
            del self._connections[peer]
            present.abort()
            follows += self.core.lost(peer, self.clock())
        self.execute(follows)

    def _retire(self, surplus: ControlConnection, kept: ControlConnection) -> None:
        """Keep reading a surplus connection for a while, then end it.

        Of two that the other side dialed that is for the other side to do: it may have taken the other one for the
        newer, for they overtake each other, and each end would end the one that the other keeps.
        """
        self._retired[surplus] = None
        theirs = not (surplus.dialed or kept.dialed)
        self._loop.call_later(_FORBEARANCE if theirs else _RETIREMENT, self._end_surplus, surplus)

    def _end_surplus(self, connection: ControlConnection) -> None:
        if connection in self._retired:
            connection.close()

    def _expect_greeting(self, connection: ControlConnection) -> None:
        """Who was let in and does not say who it is to us would be kept for as long as it stays."""
        peer = connection.peer_id
        if self._connections.get(peer) is connection and not self.core.has_greeted(peer):
            connection.abort()

    def _receive(self, connection: ControlConnection, frame: bytes) -> None:
        if self._closed:
            return
        try:
            self.execute(self.core.receive(connection.peer_id, frame, self.clock()))
        except LocalProtocolError as error:
            self._on_fault(error)
            self._go_on_after_a_fault()

    def _lost(self, connection: ControlConnection, reason: IctError | None) -> None:
        self._retired.pop(connection, None)
        peer = connection.peer_id
        if self._connections.get(peer) is not connection:
            return
        del self._connections[peer]
        if self._closed:
            return
        heir = next((c for c in reversed(self._retired) if c.peer_id == peer and c.is_open), None)
        if heir is None:
            self.execute(self.core.lost(peer, self.clock()))
            return
        del self._retired[heir]
        self._connections[peer] = heir
        self.execute(self.core.opened(peer, self.clock()))  # what was under way on the other one is said again

    # ------------------------------------------------------------ time

    def _arm(self, earliest: float = -inf) -> None:
        """Set the timer, unless it is set for that time or sooner: most inputs only put off what was due."""
        due = None if self._closed else self.core.next_timeout()
        if due is None or (self._timer is not None and self._armed <= max(due, earliest)):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._set_timer(max(due, earliest))

    def _set_timer(self, due: float) -> None:
        self._armed = due
        self._timer = self._loop.call_later(max(0.0, due - self.clock()) + _TIMER_SLACK, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        due = self.core.next_timeout()
        if due is None or due > self.clock():
            self._arm()
            return
        try:
            self.execute(self.core.handle_timeout(self.clock()))
        except Exception:
            self._go_on_after_a_fault()
            raise

    def _go_on_after_a_fault(self) -> None:
        """Carry out what is queued behind, and have time pass again; but not at once, for it may be what raises."""
        if self._pending:
            self._loop.call_soon(self.execute, [])
        self._arm(earliest=self.clock() + _AFTER_A_FAULT)
