"""How a connection that has exchanged preambles becomes one whose other end is known.

`TlsSecurity` is the real one: TLS 1.3 and nothing older (RFC 8446), certificates on both sides, both under the
mesh's authority and no other. Host names play no part: a peer is its key, wherever it is dialed. Session tickets
are off, because a resumed session would not show the certificate again, and connections are few and long.

`PlainSecurity` proves nothing. It is for the simulator, whose network cannot be eavesdropped on and whose
thousand peers should not spend their time in OpenSSL.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from ictp2p.edge.credential import Credential, Mesh, certified_peer
from ictp2p.errors import ConfigError, HandshakeFailed
from ictp2p.identity import Identity
from ictp2p.types import PeerId


class Security(Protocol):
    """Who this side is, and how it makes sure of the other."""

    @property
    def peer_id(self) -> PeerId:
        """This side's id."""
        ...

    @property
    def process(self) -> bytes:
        """What tells this process from all others with this id: its key-agreement key, 32 bytes."""
        ...

    @property
    def fingerprint(self) -> bytes:
        """The mesh's name on the wire, 8 bytes."""
        ...

    @property
    def membership(self) -> bytes:
        """What all of the mesh know and nobody else, 32 bytes: the key under which relays are asked."""
        ...

    async def secure(
        self, transport: asyncio.Transport, protocol: asyncio.Protocol, *, server_side: bool, timeout: float
    ) -> asyncio.Transport:
        """Take a paused transport, after the preambles, and return one that `protocol` may talk through.

        The protocol can be given data before this returns. `connection_made` is not called.

        Raises:
            HandshakeFailed: one side refused the other, or went away.
        """
        ...

    def proven(self, transport: asyncio.Transport) -> PeerId | None:
        """Return who is at the other end of a transport from `secure`; None takes the other end at its word."""
        ...


class TlsSecurity:
    """TLS 1.3, both sides certified by the mesh's authority."""

    def __init__(self, identity: Identity, mesh: Mesh) -> None:
        self.peer_id, self.process = identity.peer_id, identity.bulk_public
        self.fingerprint = mesh.fingerprint
        self.membership = mesh.membership
        credential = mesh.issue(identity)
        self._server = _context(ssl.PROTOCOL_TLS_SERVER, identity, credential)
        self._client = _context(ssl.PROTOCOL_TLS_CLIENT, identity, credential)

    async def secure(
        self, transport: asyncio.Transport, protocol: asyncio.Protocol, *, server_side: bool, timeout: float
    ) -> asyncio.Transport:
        """Shake hands; see `Security.secure`."""
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                transport,
                protocol,
                self._server if server_side else self._client,
                server_side=server_side,
                ssl_handshake_timeout=timeout,
                ssl_shutdown_timeout=timeout,
            )
        except ssl.SSLError as error:
            raise HandshakeFailed(f"TLS failed: {error.reason or error}") from error
        except OSError as error:
            # A side that does not like what it is shown may end the connection before its alert gets out.
            raise HandshakeFailed(f"the other side refused us, or died, during TLS: {error}") from error
        if secured is None:  # asyncio's answer when the connection ends just as the handshake does
            raise HandshakeFailed("the other side refused us, or died, during TLS")
        return secured

    def proven(self, transport: asyncio.Transport) -> PeerId:
        """Return the id that belongs to the certified key."""
        session: ssl.SSLObject = transport.get_extra_info("ssl_object")
        certificate = session.getpeercert(binary_form=True)
        if certificate is None:  # cannot be under CERT_REQUIRED; were it so, nobody may come in
            raise HandshakeFailed("the other side showed no certificate")
        return certified_peer(certificate)


class PlainSecurity:
    """No secrets, no proof: takes everybody at their word. For simulated networks only."""

    def __init__(self, identity: Identity, fingerprint: bytes) -> None:
        self.peer_id, self.process = identity.peer_id, identity.bulk_public
        self.fingerprint = self.membership = fingerprint

    async def secure(
        self, transport: asyncio.Transport, protocol: asyncio.Protocol, *, server_side: bool, timeout: float
    ) -> asyncio.Transport:
        """Hand the transport over as it is."""
        transport.set_protocol(protocol)
        transport.resume_reading()
        return transport

    def proven(self, transport: asyncio.Transport) -> None:
        """Know nothing."""


def _context(side: ssl._SSLMethod, identity: Identity, credential: Credential) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the key is the name; see `proven`
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_TICKET
    if side == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    context.load_verify_locations(cadata=credential.authority.decode())
    _load_key(context, identity, credential)
    return context


def _load_key(context: ssl.SSLContext, identity: Identity, credential: Credential) -> None:
    """Python's `ssl` reads keys from files only: one that is gone at once, with the key under a fresh password."""
    password = secrets.token_bytes(32).hex()
    key = Ed25519PrivateKey.from_private_bytes(identity.to_bytes()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
    )
    with _file_of(key + credential.certificate) as path:
        context.load_cert_chain(path, password=password)


@contextlib.contextmanager
def _file_of(content: bytes) -> Iterator[Path]:
    """Give a path to read this from: where there are files in memory, nothing has to be writable (memfd_create(2)).

    They are tried, not looked for: a sandbox may forbid the call (seccomp), a chroot may lack /proc, where they are.

    Raises:
        ConfigError: neither they nor a folder for temporary files can be had here.
    """
    with contextlib.ExitStack() as held:
        try:
            path = held.enter_context(_file_in_memory(content))
        except OSError as error:
            try:
                path = held.enter_context(_file_in_folder(content))
            except OSError as other:
                raise ConfigError(
                    f"no place for a key that OpenSSL reads from a file: memory ({error}), temporary files ({other}); "
                    "mount /proc, or let TMPDIR name a folder that can be written to"
                ) from other
        yield path


@contextlib.contextmanager
def _file_in_memory(content: bytes) -> Iterator[Path]:
    if not hasattr(os, "memfd_create"):
        raise FileNotFoundError("it has no files here")
    with os.fdopen(os.memfd_create("ictp2p", os.MFD_CLOEXEC), "wb") as file:
        file.write(content)
        file.flush()
        path = Path("/proc/self/fd", str(file.fileno()))
        path.stat()  # raises where /proc is not mounted
        yield path


@contextlib.contextmanager
def _file_in_folder(content: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ictp2p-") as directory:
        path = Path(directory, "peer.pem")
        path.touch(mode=0o600)
        path.write_bytes(content)
        yield path
