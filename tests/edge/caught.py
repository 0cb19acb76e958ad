"""The two ends of connections, and where they meet."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator

from ictp2p.edge.network import TcpNetwork
from ictp2p.types import Address

LOOPBACK = Address("127.0.0.1", 0)
NETWORK = TcpNetwork()


class Caught(asyncio.Protocol):
    """Notes its transport and what came."""

    def __init__(self) -> None:
        self.made: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made.set_result(transport)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """A fork of this process that lives on for as long, as the workers of a `DataLoader` do."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = os.fork()
        if child == 0:
            theirs.send(b"?")
            theirs.recv(1)
            os._exit(0)
        try:
            ours.recv(1)
            yield
        finally:
            ours.send(b"!")
            os.waitpid(child, 0)  # it has been told


def failed(error: OSError) -> asyncio.Future[None]:
    future = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
