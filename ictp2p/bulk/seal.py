"""Sealing of bulk bodies: AES-128, as GCM or OCB (`ciphers`), under one key per direction, counters as nonces.

Keys are fresh for each connection (their context holds both nonces), so counters may start at zero and never
repeat. Sealing a megabyte costs a fifth of what TLS records cost in Python, and can go straight into the tensor.

A body in several pieces, as of a list of tensors, is sealed from where they lie and opened to where they belong, piece
by piece: what arrives is the same, and nothing is copied but by the cipher itself. To begin so costs some microseconds
more, and so does each piece. `cryptography` does that for GCM alone: for OCB pieces are copied, and sealed in place.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import ciphers
from cryptography.hazmat.primitives.ciphers import algorithms, modes

from ictp2p.bulk.ciphers import Cipher, aead
from ictp2p.bulk.frames import SEAL_BYTES, Buffer
from ictp2p.errors import HandshakeFailed, RemoteProtocolError


class Seal:
    """One direction of one connection."""

    def __init__(self, key: bytes, cipher: Cipher = Cipher.GCM) -> None:
        if len(key) != 16:
            raise HandshakeFailed(f"bulk key of {len(key)} bytes, expected 16")
        self._cipher, self._block = aead(cipher, key), algorithms.AES(key)
        self._by_pieces = cipher is Cipher.GCM
        self._count = 0

    def seal(self, header: bytes, body: Buffer, into: memoryview) -> None:
        """Seal `body` and bind it to `header`; `into` has `SEAL_BYTES` more than the body."""
        self._cipher.encrypt_into(self._nonce(), body, header, into)

    def sealed(self, header: bytes, body: Buffer) -> bytes:
        """Seal what is so small that new memory costs less than to look after old; give all that goes out."""
        return header + self._cipher.encrypt(self._nonce(), body, header)

    def seal_pieces(self, header: bytes, pieces: Sequence[Buffer], into: memoryview) -> None:
        """Seal a body that lies in several pieces, as `seal` does."""
        if not self._by_pieces:
            self.seal(header, gathered(pieces, into[:-SEAL_BYTES]), into)
            return
        encryptor = ciphers.Cipher(self._block, modes.GCM(self._nonce())).encryptor()
        encryptor.authenticate_additional_data(header)
        at = 0
        for piece in pieces:
            at += encryptor.update_into(piece, into[at:])
        encryptor.finalize()
        into[at:] = encryptor.tag

    def open_pieces(self, header: Buffer, sealed: memoryview, into: Sequence[memoryview]) -> None:
        """Open a body into several pieces; if it raises, as `open` does, they hold what nobody vouches for.

        What was sealed stands in its place no longer.
        """
        if not self._by_pieces:
            body = sealed[:-SEAL_BYTES]
            self.open(header, sealed, body)
            scatter(body, into)
            return
        tag = bytes(sealed[-SEAL_BYTES:])
        decryptor = ciphers.Cipher(self._block, modes.GCM(self._nonce(), tag)).decryptor()
        decryptor.authenticate_additional_data(header)
        at = 0
        for piece in into:
            at += decryptor.update_into(sealed[at : at + len(piece)], piece)
        try:
            decryptor.finalize()
        except InvalidTag:
            raise _broken(sealed) from None

    def open(self, header: Buffer, sealed: memoryview, into: memoryview) -> None:
        """Open what `seal` made into `into`, which has `SEAL_BYTES` less than `sealed`.

        Raises:
            RemoteProtocolError: header or body are not what was sealed, or not in this order.
        """
        try:
            self._cipher.decrypt_into(self._nonce(), sealed, header, into)
        except InvalidTag:
            raise _broken(sealed) from None

    def _nonce(self) -> bytes:
        nonce = self._count.to_bytes(12, "big")
        self._count += 1
        return nonce


def gathered(pieces: Sequence[Buffer], room: memoryview) -> memoryview:
    """Copy pieces one behind the other into `room`, and give it: they may be sealed there, in place."""
    start = 0
    for piece in pieces:
        room[start : start + len(piece)] = piece
        start += len(piece)
    return room


def scatter(body: memoryview, into: Sequence[memoryview]) -> None:
    """Copy a body to pieces that have its length together."""
    for piece in into:
        piece[:] = body[: len(piece)]
        body = body[len(piece) :]


def _broken(sealed: memoryview) -> RemoteProtocolError:
    return RemoteProtocolError(f"sealed body of {len(sealed) - SEAL_BYTES} bytes is forged or torn")
