"""Two peers that talk over a control connection on this machine."""

import asyncio
from collections.abc import Callable

from ictp2p.edge.control import ControlConnection, Limits, open_control
from ictp2p.edge.credential import Mesh
from ictp2p.edge.network import TcpNetwork
from ictp2p.edge.reception import serve
from ictp2p.edge.security import PlainSecurity, Security, TlsSecurity
from ictp2p.errors import (
    IctError,
)
from ictp2p.identity import Identity
from ictp2p.types import Address

NETWORK = TcpNetwork()
LOOPBACK = Address("127.0.0.1", 0)
MESH = Mesh.from_token("the mesh of this test")
IDENTITIES = Identity.generate(), Identity.generate()
ALICE, BOB = (TlsSecurity(who, MESH) for who in IDENTITIES)
PLAIN_ALICE, PLAIN_BOB = (PlainSecurity(who, MESH.fingerprint) for who in IDENTITIES)


class Party:
    """One end: its connection, what it got, and why it ended."""

    def __init__(self, connection: ControlConnection) -> None:
        self.connection = connection
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed: asyncio.Future[IctError | None] = asyncio.get_running_loop().create_future()

    def start(self, on_frame: Callable[[bytes], None] | None = None) -> "Party":
        self.connection.start(on_frame or self.frames.put_nowait, self.closed.set_result)
        return self


class Couple:
    """Alice dials Bob; use as an async context manager."""

    def __init__(self, alice: Security = ALICE, bob: Security = BOB, limits: Limits | None = None) -> None:
        self._securities, self._limits = (alice, bob), limits

    async def __aenter__(self) -> tuple[Party, Party]:
        accepted: asyncio.Queue[ControlConnection] = asyncio.Queue()
        alice, bob = self._securities
        self._reception = await serve(NETWORK, LOOPBACK, bob, on_control=accepted.put_nowait, limits=self._limits)
        dialed = await open_control(NETWORK, self._reception.address, alice, limits=self._limits, expected=bob.peer_id)
        self._parties = Party(dialed), Party(await accepted.get())
        return self._parties

    async def __aexit__(self, *_: object) -> None:
        for party in self._parties:
            party.connection.abort()
            if party.connection._on_closed is None:
                party.start()
            await asyncio.shield(party.closed)
        await self._reception.close()
