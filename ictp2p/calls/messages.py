"""`send` and `recv`: messages between the leaders of two clusters, beside the rounds and without agreement.

The receiver asks. A message waits at its sender, in order per receiving cluster and tag, until the leader of that
cluster requests it over a bulk connection; its bytes are then the reply. So nobody stores what nobody wants, and
nothing is sent into a cluster whose leader has just died.

`send` is done once the receiver has said that all of the message is there, in the very step in which its `recv` is. If
that word does not come, for the connection broke or the time of the `recv` was over, the message stays, and comes with
the next one. A word that was lost is said again with the next request, by the number of the message; numbers begin
anywhere in each life of a sender. There may be no such request: who receives may be about to answer, to a sender that
waits for that word first. So whoever has sent all of a message, and lost the connection, asks for the word as well.
Thus while both lead a message comes exactly once, whatever becomes of their connections. The heir of a leader whose
word had not arrived is given the message as well, whether that one died or stands still: of two that cannot know, the
sender is the one that goes on. It waits for no connection of the former leader to stall, and ends no message over it.
"""

from __future__ import annotations

import asyncio
import operator
import struct
from collections import OrderedDict, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakValueDictionary

import msgspec
import torch

from ictp2p.async_peer import AsyncPeer
from ictp2p.bulk.frames import Buffer
from ictp2p.bulk.streams import RECEIPT
from ictp2p.errors import (
    ConfigError,
    IctError,
    MeshMismatch,
    NetworkError,
    PeerClosed,
    RemoteProtocolError,
    RoundAborted,
    RoundTimeout,
    StateError,
    Unreachable,
    shown,
)
from ictp2p.gossip.election import LeaderChanged
from ictp2p.machine import Notice
from ictp2p.types import ClusterId, PeerId
from ictp2p.wire import MALFORMED

_Whose = TypeVar("_Whose", ClusterId, PeerId)
_KIND = "message"
_WORD = "message's word"
_PAUSE = 0.1
"""Seconds before a receiver looks again for a sender that it could not reach."""
_ASKED = 64
"""Messages of one cluster that are asked for at a time. Who asks for one that is not sent yet costs both sides a task,
and holds up nobody until there are so many."""
_MOVING = 4
"""Messages that are on their way to one leader at a time: the first ones would come late if all shared the line."""
_NUMBER = struct.Struct("!Q")
"""What follows a message: which it is."""
_RARELY = 10.0
"""Seconds, at most, between two questions for a word that was lost: who has not had the message may not want it."""
_REMEMBERED = 4096
"""Tags of which is remembered what came last: as many as may be used in turn before a word is lost that was sent."""
_TAGS = range(-(2**63), 2**63)
"""What a tag may be: what every MessagePack reader takes for an integer."""


class _Wanted(msgspec.Struct, frozen=True, array_like=True):
    cluster: ClusterId
    """Who asks."""
    tag: int
    shapes: bytes
    """What it has room for."""
    has: int = 0
    """The message of this tag that it has had last."""


@dataclass(slots=True)
class _Message:
    body: torch.Tensor
    shapes: bytes
    taken: asyncio.Future[None]
    refused: str = ""
    """Why whoever asked last did not take it; it may ask again, with other room."""
    offered: bool = False
    """Whether all of it was sent, and nothing is lacking but the receiver's word."""
    asking: asyncio.Task[None] | None = None
    """Asks for that, if it may be lost."""

    def stop_asking(self) -> None:
        """Ask for it no more."""
        if self.asking is not None:
            self.asking.cancel()


class _Box:
    """What waits for one cluster under one tag. An asker is served the first of it, once it has had the one before.

    Each has a turn of its own: a leader that stands still holds up none of what its heir asks for.

    The box is there for as long as somebody sends or asks. So a program may use a tag once and never again, and what
    others ask for is bounded by how much is served to each of them at a time.
    """

    def __init__(self) -> None:
        self.users = 0
        self.waiting: OrderedDict[int, _Message] = OrderedDict()
        self.turns: WeakValueDictionary[PeerId, asyncio.Semaphore] = WeakValueDictionary()
        self.filled = asyncio.Event()

    def received(self, number: int) -> None:
        """Whom it is for has that message, if it was still waiting: the next one is its turn."""
        message = self.waiting.pop(number, None)
        if message is not None and not message.taken.done():
            message.taken.set_result(None)


class Messages:
    """One peer's messages, on its event loop."""

    def __init__(self, peer: AsyncPeer) -> None:
        self._peer = peer
        self._boxes: defaultdict[tuple[ClusterId, int], _Box] = defaultdict(_Box)
        self._asking: WeakValueDictionary[ClusterId, asyncio.Semaphore] = WeakValueDictionary()
        """For whom something is asked of each cluster: nothing is kept of one that nobody asks any more."""
        self._moving: WeakValueDictionary[PeerId, asyncio.Semaphore] = WeakValueDictionary()
        """What is on its way to each leader, of what it has asked for."""
        self._lines: WeakValueDictionary[tuple[ClusterId, int], asyncio.Lock] = WeakValueDictionary()
        """Of each tag one asks at a time, in the order of the calls: one that has to ask again would be overtaken."""
        self._posted = int.from_bytes(peer.random_bytes(7))
        """The number of the newest: of another life none has the same."""
        self._had: OrderedDict[tuple[PeerId, int], int] = OrderedDict()
        """Of each leader and tag, which message came last."""
        peer.bulk.serve(_KIND, self._serve, 2 * _ASKED)  # who asks anew may be ahead of what it has cancelled
        peer.bulk.serve(_WORD, self._say, 2 * _ASKED)
        peer.subscribe(self._notice)

    async def send(self, body: torch.Tensor, shapes: bytes, target: ClusterId, tag: int, timeout: float) -> None:
        """Have a message ready for a cluster until it has said that it is there.

        Args:
            body: its bytes, which are ours.
            shapes: what they are (`tensors.Bundle.brief`).
            target: whom it is for.
            tag: which of its `receive` calls.
            timeout: seconds.

        Raises:
            ConfigError: the cluster is our own.
            RoundAborted: this peer does not lead its cluster.
            RoundTimeout: nobody took it in time; it is withdrawn. Who had room for something else is named. Of one that
                was under way by then it cannot be known whether it has arrived.
            PeerClosed: the peer was closed.
        """
        self._check(target)
        message = _Message(body, shapes, asyncio.get_running_loop().create_future())
        self._posted += 1
        number = self._posted
        with self._box(target, tag) as box:
            box.waiting[number] = message
            box.filled.set()
            try:
                async with asyncio.timeout(timeout):
                    await message.taken
            except TimeoutError:
                why = self._unread(message, target)
                raise RoundTimeout(
                    f"cluster {target} did not receive message {tag} within {timeout:g} s{why}"
                ) from None
            except asyncio.CancelledError:
                raise PeerClosed("the peer was closed before the message was received") from None
            finally:
                box.waiting.pop(number, None)
                message.stop_asking()

    async def receive(self, nbytes: int, shapes: bytes, source: ClusterId, tag: int, timeout: float) -> torch.Tensor:
        """Ask a cluster's leader for its next message, as long as it takes; the bytes.

        Args:
            nbytes: how many there is room for.
            shapes: what they must be.
            source: who sends.
            tag: which of its messages.
            timeout: seconds.

        Raises:
            ConfigError: the cluster is our own.
            RoundAborted: this peer does not lead its cluster.
            MeshMismatch: what is sent has other types or shapes.
            RoundTimeout: nothing came in time.
            NetworkError: the connection broke in the middle of the message.
            PeerClosed: the peer was closed.
        """
        self._check(source)
        held, failure = torch.zeros(nbytes + _NUMBER.size, dtype=torch.uint8, device="cpu"), ""
        try:
            async with asyncio.timeout(timeout), self._line(source, tag), _turns(self._asking, source, _ASKED):
                while True:
                    try:
                        await self._ask(source, tag, shapes, held, timeout)
                        return held[:nbytes]
                    except Unreachable as error:
                        failure = f": {error}"
                        await asyncio.sleep(_PAUSE)
        except TimeoutError:
            raise RoundTimeout(f"cluster {source} sent no message {tag} within {timeout:g} s{failure}") from None
        except asyncio.CancelledError:
            raise PeerClosed("the peer was closed while it waited for a message") from None

    def _unread(self, message: _Message, target: ClusterId) -> str:
        """Why nobody took a message, if that is known here."""
        if message.offered:
            return ", as far as is known: it was sent, and its word has not come"
        unknown = self._peer.core.directory.leader_of(target) is None
        why = message.refused or (unknown and "no leader of a cluster of that name is known")
        return f": {why}" if why else ""

    def _line(self, source: ClusterId, tag: int) -> asyncio.Lock:
        """Where those who ask a cluster for messages of one tag stand one behind the other."""
        line = self._lines.get((source, tag))
        if line is None:
            line = self._lines[source, tag] = asyncio.Lock()
        return line

    async def _ask(self, source: ClusterId, tag: int, shapes: bytes, held: torch.Tensor, timeout: float) -> None:
        leader = self._peer.core.directory.leader_of(source)
        if leader is None:
            raise Unreachable(f"cluster {source} is not known")
        wanted = msgspec.msgpack.encode(_Wanted(self._peer.cluster, tag, shapes, self._had.get((leader, tag), 0)))
        room = held.numpy().data
        try:
            size = await self._peer.bulk.request(leader, _KIND, wanted, room, timeout=timeout, receipt=True)
        except StateError as error:
            kind, _, words = str(error).partition(": ")
            if kind == MeshMismatch.__name__:  # by which the refusal of a request begins (`bulk.streams`)
                raise MeshMismatch(words) from error
            raise Unreachable(str(error)) from error  # it does not lead, or is not ready for messages: look again
        except NetworkError as error:
            raise Unreachable(str(error)) from error  # whatever had come of it, the message is where it was
        if size != len(held):
            raise RemoteProtocolError(f"{leader} sent a message of {size} bytes, announced as {len(held)}")
        (self._had[leader, tag],) = _NUMBER.unpack(room[-_NUMBER.size :])
        self._had.move_to_end((leader, tag))
        if len(self._had) > _REMEMBERED:
            self._had.popitem(last=False)

    async def _serve(self, peer: PeerId, payload: bytes) -> AsyncGenerator[Buffer, None]:
        try:
            wanted = msgspec.msgpack.decode(payload, type=_Wanted)
        except MALFORMED as error:
            raise RemoteProtocolError(f"a request for a message does not decode: {error}") from error
        self._check_leaders(peer, wanted.cluster)
        with self._box(wanted.cluster, wanted.tag) as box:
            box.received(wanted.has)
            async with _turns(box.turns, peer, 1), self._place(box, peer, wanted.cluster):
                number, message = next(iter(box.waiting.items()))
                if message.shapes != wanted.shapes:
                    room = wanted.shapes.decode()
                    message.refused = f"the message holds {message.shapes.decode()}, there is room for {room}"
                    message.offered = False
                    raise MeshMismatch(message.refused)
                yield message.body.numpy().data
                self._check_leaders(peer, wanted.cluster)  # its heir may be given it, and who was asleep may wake
                if number not in box.waiting:  # who sends has been told so, and may send it once more
                    raise RoundAborted("the message was withdrawn while it was under way")
                message.offered = True
                yield _NUMBER.pack(number)
            try:
                yield RECEIPT
            except GeneratorExit:
                if number in box.waiting:
                    message.stop_asking()  # whoever had it before is not the leader any more, or has asked anew
                    asking = self._inquire(box, number, peer, wanted)
                    message.asking = asyncio.get_running_loop().create_task(asking)
                raise
            box.received(number)

    async def _inquire(self, box: _Box, number: int, peer: PeerId, wanted: _Wanted) -> None:
        """Ask whoever was sent all of a message whether it has come, until its `send` ends.

        "No" is no end of it: all of it may lie there, still to be read from the connection that was lost.
        """
        question, answer, pause = msgspec.msgpack.encode(wanted.tag), bytearray(_NUMBER.size), _PAUSE
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _RARELY)
            try:
                await self._peer.bulk.request(peer, _WORD, question, answer, timeout=_RARELY)
            except IctError:  # it cannot be reached now, or one of us was closed
                if self._peer.core.directory.leader_of(wanted.cluster) != peer:
                    return  # it may have died, and its heir asks for itself
            if _NUMBER.unpack(answer) == (number,):
                box.received(number)

    async def _say(self, peer: PeerId, payload: bytes) -> AsyncGenerator[Buffer, None]:
        """Which message of a tag we have had last from a leader."""
        try:
            tag = msgspec.msgpack.decode(payload, type=int)
        except MALFORMED as error:
            raise RemoteProtocolError(f"a question for a message does not decode: {error}") from error
        yield _NUMBER.pack(self._had.get((peer, tag), 0))

    @asynccontextmanager
    async def _place(self, box: _Box, peer: PeerId, cluster: ClusterId) -> AsyncIterator[None]:
        """Hold a place among those that move, once there is something to move; meanwhile it may be withdrawn again."""
        while True:
            await self._fill(box, peer, cluster)
            async with _turns(self._moving, peer, _MOVING):
                self._check_leaders(peer, cluster)
                if box.waiting:
                    yield
                    return

    async def _fill(self, box: _Box, peer: PeerId, cluster: ClusterId) -> None:
        """Wait until there is something for an asker whose turn it is, and both still lead their clusters.

        Whoever was deposed meanwhile would take a message that its successor then asks for in vain.
        """
        while True:
            self._check_leaders(peer, cluster)
            if box.waiting:
                return
            box.filled.clear()
            await box.filled.wait()

    def _check_leaders(self, peer: PeerId, cluster: ClusterId) -> None:
        if not self._peer.core.leading:
            raise RoundAborted("this peer does not lead its cluster")
        if self._peer.core.directory.leader_of(cluster) != peer:
            raise RoundAborted(f"{peer} does not lead cluster {cluster}, as far as this peer knows")

    @contextmanager
    def _box(self, cluster: ClusterId, tag: int) -> Iterator[_Box]:
        box = self._boxes[cluster, tag]
        box.users += 1
        try:
            yield box
        finally:
            box.users -= 1
            if not box.users:
                del self._boxes[cluster, tag]

    def _notice(self, notice: Notice) -> None:
        """Whoever waits at a peer that does not lead any more is told so, and asks its successor."""
        if isinstance(notice, LeaderChanged):
            for box in self._boxes.values():
                box.filled.set()

    def _check(self, other: ClusterId) -> None:
        if other == self._peer.cluster:
            raise ConfigError(f"cluster {other} cannot send to itself")
        if not self._peer.core.leading:
            raise RoundAborted(f"this peer does not lead cluster {self._peer.cluster}: its leader sends and receives")


def _turns(table: WeakValueDictionary[_Whose, asyncio.Semaphore], of: _Whose, most: int) -> asyncio.Semaphore:
    """The turns of a cluster, or of one peer; they last for as long as somebody has one, or waits."""
    turns = table.get(of)
    if turns is None:
        turns = table[of] = asyncio.Semaphore(most)
    return turns


def checked_tag(tag: int) -> int:
    """A tag as the wire carries it; any kind of integer will do.

    Raises:
        ConfigError: it is not an integer, or takes more than 64 bits.
    """
    try:
        number = operator.index(tag)
    except TypeError:
        raise ConfigError(f"a tag is an integer, not {shown(tag)}") from None
    if number not in _TAGS:
        raise ConfigError(f"tag {shown(number)} takes more than 64 bits")
    return number
