"""Ask any running peer what it sees, without being one: the observer behind `ictp2p status`.

An observer proves that it knows the mesh's token, as every peer does, with a key that lives for one question. It
greets with no cluster, so nobody counts on it. It needs no torch and answers within a few round trips.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from ictp2p.config.checks import dialed
from ictp2p.core.cards import PeerCard
from ictp2p.core.machines import CODECS
from ictp2p.core.packets import (
    STATUS_LIMIT,
    Channel,
    Greeting,
    Packet,
    StatusRefusal,
    StatusReply,
    StatusRequest,
    decode_packet,
    encode_packet,
)
from ictp2p.edge.control import open_control
from ictp2p.edge.credential import Mesh
from ictp2p.edge.network import Network, TcpNetwork
from ictp2p.edge.security import TlsSecurity
from ictp2p.errors import ConnectionLost, IctError, RemoteProtocolError, StatusRefused, Unreachable, printable
from ictp2p.identity import Identity
from ictp2p.machine import Message
from ictp2p.types import Address, ClusterId, PeerId

_NOBODY = ClusterId("")


async def fetch_status(address: str, token: str, timeout: float, network: Network | None = None) -> dict[str, Any]:
    """Return the status of the peer at `address`.

    Args:
        address: `host:port` where it listens.
        token: the mesh's join token.
        timeout: seconds for all of it.
        network: where to dial; TCP by default.

    Raises:
        ConfigError: the address or the token cannot be one.
        NetworkError: nobody answered, or somebody who does not let us in.
        StatusRefused: too many others are asking, or the status is longer than one may be; the message says which.
        ProtocolError: whoever answered is no peer of this version.
    """
    identity = Identity.generate()
    where = dialed(address)
    security = TlsSecurity(identity, Mesh.from_token(token))
    deadline = asyncio.get_running_loop().time() + timeout
    answer = _Answer(where)
    connection = await open_control(network or TcpNetwork(), where, security, timeout=timeout)
    connection.start(answer.take, answer.lost)
    card = PeerCard(identity.peer_id, _NOBODY, "", identity.bulk_public)
    for message in (Greeting(card, PeerId(""), 0), StatusRequest()):
        connection.send(_packet(identity.peer_id, connection.peer_id, message))
    try:
        async with asyncio.timeout_at(deadline):
            return _read(await answer.whole)
    except TimeoutError:
        raise Unreachable(f"{where} did not tell its status within {timeout:g} s") from None
    finally:
        connection.abort()  # there is nothing more to say, and the deadline may be over
        await connection.wait_closed()


class _Answer:
    """A status, as it comes part by part."""

    def __init__(self, where: Address) -> None:
        self.whole: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._where = where
        self._document = bytearray()

    def take(self, frame: bytes) -> None:
        """Take what came; most of what a peer says is for its members."""
        packet = decode_packet(frame)
        if packet.channel != Channel.HELLO or self.whole.done():
            return
        match CODECS[Channel.HELLO].decode(packet.body):
            case StatusRefusal(reason=reason):
                refused = StatusRefused(f"{self._where} does not tell its status: {printable(reason)}")
                self.whole.set_exception(refused)
            case StatusReply(document=part, more=more):
                self._document.extend(part)
                if len(self._document) > STATUS_LIMIT:
                    raise RemoteProtocolError(f"{self._where} sent a status of more than {STATUS_LIMIT} bytes")
                if not more:
                    self.whole.set_result(bytes(self._document))

    def lost(self, reason: IctError | None) -> None:
        """The connection is gone."""
        if not self.whole.done():
            closed = ConnectionLost(f"{self._where} closed the connection before it answered")
            self.whole.set_exception(reason or closed)


def _packet(source: PeerId, target: PeerId, message: Message) -> bytes:
    return encode_packet(Packet(source, _NOBODY, target, 1, Channel.HELLO, CODECS[Channel.HELLO].encode(message)))


def _read(document: bytes) -> dict[str, Any]:
    try:
        status = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"the status is not JSON: {error}") from error
    if not isinstance(status, dict):
        raise RemoteProtocolError(f"the status is a {type(status).__name__}, not an object")
    return status
