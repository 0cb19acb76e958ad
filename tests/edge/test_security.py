import asyncio
import os
import ssl
import tempfile
from pathlib import Path

import pytest

from ictp2p.edge.credential import Mesh
from ictp2p.edge.security import PlainSecurity, Security, TlsSecurity
from ictp2p.errors import ConfigError, HandshakeFailed
from ictp2p.identity import Identity

MESH = Mesh.from_token("the mesh of this test")
ALICE, BOB = Identity.generate(), Identity.generate()
TIMEOUT = 5.0


class End(asyncio.Protocol):
    """One end of a plain connection, held at the point where the preambles have passed."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.transport: asyncio.Future[asyncio.Transport] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.came: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.pause_reading()  # type: ignore[attr-defined]
        self.transport.set_result(transport)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self.came.put_nowait(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


async def pair() -> tuple[End, End]:
    loop = asyncio.get_running_loop()
    acceptor = End()
    server = await loop.create_server(lambda: acceptor, "127.0.0.1", 0)
    _, dialer = await loop.create_connection(End, *server.sockets[0].getsockname())
    await acceptor.transport
    server.close()
    return dialer, acceptor


async def shake(dialer_security: Security, acceptor_security: Security) -> list[asyncio.Transport | BaseException]:
    """Both ends' outcome of securing one connection."""
    dialer, acceptor = await pair()
    raw = [await dialer.transport, await acceptor.transport]
    outcomes = await asyncio.gather(
        dialer_security.secure(raw[0], dialer, server_side=False, timeout=TIMEOUT),
        acceptor_security.secure(raw[1], acceptor, server_side=True, timeout=TIMEOUT),
        return_exceptions=True,
    )
    if not any(isinstance(outcome, BaseException) for outcome in outcomes):
        outcomes[0].write(b"over the secured transport")
        assert await acceptor.came.get() == b"over the secured transport"
    for transport in raw:
        transport.abort()
    return outcomes


def test_tls_is_1_3_and_proves_each_side_to_the_other(run):
    async def story() -> None:
        alice, bob = TlsSecurity(ALICE, MESH), TlsSecurity(BOB, MESH)
        dialed, accepted = await shake(alice, bob)
        for transport in (dialed, accepted):
            assert transport.get_extra_info("ssl_object").version() == "TLSv1.3"
        assert alice.proven(dialed) == BOB.peer_id
        assert bob.proven(accepted) == ALICE.peer_id

    run(story())


def test_a_dialer_without_the_token_is_not_let_in_even_if_it_accepts_anybody(run):
    async def story() -> None:
        stranger = TlsSecurity(ALICE, Mesh.from_token("some other mesh altogether"))
        stranger._client.verify_mode = ssl.CERT_NONE
        _, accepted = await shake(stranger, TlsSecurity(BOB, MESH))
        assert isinstance(accepted, HandshakeFailed)
        assert "CERTIFICATE_VERIFY_FAILED" in str(accepted)

    run(story())


def test_an_acceptor_without_the_token_is_refused_and_both_sides_are_told(run):
    async def story() -> None:
        stranger = TlsSecurity(BOB, Mesh.from_token("some other mesh altogether"))
        dialed, accepted = await shake(TlsSecurity(ALICE, MESH), stranger)
        assert isinstance(dialed, HandshakeFailed)
        assert "CERTIFICATE_VERIFY_FAILED" in str(dialed)
        assert isinstance(accepted, HandshakeFailed)

    run(story())


def test_a_dialer_without_a_certificate_is_refused(run):
    async def story() -> None:
        bare = TlsSecurity(ALICE, MESH)
        bare._client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        bare._client.check_hostname, bare._client.verify_mode = False, ssl.CERT_NONE
        _, accepted = await shake(bare, TlsSecurity(BOB, MESH))
        assert isinstance(accepted, HandshakeFailed)
        assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in str(accepted)

    run(story())


@pytest.mark.parametrize("old_side", ["dialer", "acceptor"])
def test_older_tls_is_refused(run, old_side: str):
    async def story() -> None:
        alice, bob = TlsSecurity(ALICE, MESH), TlsSecurity(BOB, MESH)
        context = alice._client if old_side == "dialer" else bob._server
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        outcomes = await shake(alice, bob)
        assert all(isinstance(outcome, HandshakeFailed) for outcome in outcomes)

    run(story())


def test_a_peer_that_dies_during_tls_is_a_failed_handshake(run):
    async def story() -> None:
        dialer, acceptor = await pair()
        (await dialer.transport).abort()
        with pytest.raises(HandshakeFailed, match="died"):
            await TlsSecurity(BOB, MESH).secure(await acceptor.transport, acceptor, server_side=True, timeout=TIMEOUT)
        (await acceptor.transport).abort()

    run(story())


def test_a_peer_that_says_nothing_costs_no_more_than_the_deadline(run):
    async def story() -> None:
        dialer, acceptor = await pair()
        with pytest.raises(HandshakeFailed):
            await TlsSecurity(BOB, MESH).secure(await acceptor.transport, acceptor, server_side=True, timeout=0.2)
        for end in (dialer, acceptor):
            (await end.transport).abort()

    run(story())


def forbid(*_: object) -> int:
    """As seccomp does."""
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("forbidden", [False, True])
def test_no_key_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forbidden: bool):
    written: list[bytes] = []
    write = Path.write_bytes

    def write_bytes(self: Path, data: bytes) -> int:
        assert self.is_relative_to(tmp_path)
        assert self.stat().st_mode & 0o077 == 0
        assert self.parent.stat().st_mode & 0o077 == 0
        written.append(data)
        return write(self, data)

    if forbidden:
        monkeypatch.setattr(os, "memfd_create", forbid, raising=False)
    else:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    TlsSecurity(ALICE, MESH)
    assert len(written) == 2
    assert all(data.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") for data in written)
    assert list(tmp_path.iterdir()) == []


def test_where_no_file_can_be_had_at_all_the_error_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "memfd_create", forbid, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"memory \(.*not permitted\), temporary files \(.*nowhere.*TMPDIR"):
        TlsSecurity(ALICE, MESH)


def test_without_proc_a_file_in_memory_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = Path.stat

    def stat(self: Path, **how: bool) -> os.stat_result:
        if self.is_relative_to("/proc"):
            raise FileNotFoundError(2, "No such file or directory", str(self))
        return real(self, **how)

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert TlsSecurity(ALICE, MESH).peer_id == ALICE.peer_id


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs files in memory")
def test_a_machine_without_a_writable_folder_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert TlsSecurity(ALICE, MESH).peer_id == ALICE.peer_id


def test_plain_security_proves_nothing_and_says_so(run):
    async def story() -> None:
        alice, bob = PlainSecurity(ALICE, b"12345678"), PlainSecurity(BOB, b"12345678")
        dialed, _ = await shake(alice, bob)
        assert alice.proven(dialed) is None

    run(story())
