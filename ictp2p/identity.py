"""Who a peer is: its key.

**A peer is its Ed25519 key** (RFC 8032). The peer id is a hash of the public key, so nobody can claim an id
without the key, and no registry hands ids out. The key lives on the peer's disk beside its acceptor state:
whoever lost the disk lost the promises made there, and comes back as somebody else.

**Bulk connections** are sealed with keys of their own, agreed by X25519 (RFC 7748) between keys that live as
long as the process and are announced over the authenticated control connections.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ictp2p.disk import Disk
from ictp2p.errors import HandshakeFailed, LocalProtocolError, RemoteProtocolError, StateError
from ictp2p.types import PeerId

_SEED_SIZE = 32
_PROOF_SIZE = 96
_BULK_KEY = b"ictp2p bulk key v1"
"""What is signed begins with this, so that no signature for something else is one for a key."""


def peer_id_of(public_key: bytes) -> PeerId:
    """Return the id of whoever holds the private half of a raw 32-byte Ed25519 public key."""
    return PeerId(hashlib.blake2b(public_key, digest_size=16, person=b"ictp2p peer").hexdigest())


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Say whether `signature` over `message` was made with the private half of `public_key`."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def check_bulk_proof(peer: PeerId, bulk_public: bytes, proof: bytes) -> None:
    """See that an X25519 key is that of a peer, by the beginning of `proof`: whoever announced it may be another.

    Raises:
        HandshakeFailed: it is not, for all that this shows.
    """
    public_key, signature = proof[:32], proof[32:_PROOF_SIZE]
    if peer_id_of(public_key) != peer or not verify(public_key, _BULK_KEY + bulk_public, signature):
        raise HandshakeFailed(f"whoever answers for {peer} does not prove to be it: the key on its card is another's")


class BulkKeys(NamedTuple):
    """AES-128 keys of one bulk connection, 16 bytes each. One side's `sending` is the other's `receiving`."""

    sending: bytes
    receiving: bytes


class Identity:
    """A peer's signing key, and the key-agreement key of this process."""

    def __init__(self, seed: bytes, bulk_seed: bytes) -> None:
        """Build from raw private keys, 32 bytes each; most callers want `load` or `generate`."""
        self._signing = Ed25519PrivateKey.from_private_bytes(seed)
        self._agreeing = X25519PrivateKey.from_private_bytes(bulk_seed)
        self.public_key = self._signing.public_key().public_bytes_raw()
        """Raw Ed25519 public key, 32 bytes."""
        self.peer_id = peer_id_of(self.public_key)
        self.bulk_public = self._agreeing.public_key().public_bytes_raw()
        """Raw X25519 public key of this process, 32 bytes. Announce it only over authenticated connections."""
        self.bulk_proof = self.public_key + self.sign(_BULK_KEY + self.bulk_public)
        """That it is this peer's (`check_bulk_proof`): our public key, and a signature, 96 bytes."""

    @classmethod
    def generate(cls) -> Identity:
        """Make a new peer."""
        return cls.from_bytes(os.urandom(_SEED_SIZE))

    @classmethod
    def from_bytes(cls, seed: bytes, bulk_seed: bytes | None = None) -> Identity:
        """Be the peer whose `to_bytes` gave `seed`. A simulator also fixes the process's key with `bulk_seed`.

        Raises:
            StateError: a seed is not 32 bytes.
        """
        bulk_seed = os.urandom(_SEED_SIZE) if bulk_seed is None else bulk_seed
        for what, value in (("identity", seed), ("bulk key", bulk_seed)):
            if len(value) != _SEED_SIZE:
                raise StateError(f"a stored {what} has {_SEED_SIZE} bytes, not {len(value)}")
        return cls(seed, bulk_seed)

    @classmethod
    def load(cls, disk: Disk, key: str = "identity", random_bytes: Callable[[int], bytes] = os.urandom) -> Identity:
        """Be the peer that this disk belongs to, making a new one on an empty disk."""
        seed = disk.load(key)
        if seed is None:
            disk.save(key, seed := random_bytes(_SEED_SIZE))
        return cls.from_bytes(seed, random_bytes(_SEED_SIZE))

    def to_bytes(self) -> bytes:
        """Return the private signing key, 32 bytes, for the peer's own disk and nowhere else."""
        return self._signing.private_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Sign with this peer's key: 64 bytes, the same for the same message."""
        return self._signing.sign(message)

    def bulk_key(self, their_public: bytes, context: bytes) -> BulkKeys:
        """Agree the two keys of a bulk connection with the process whose `bulk_public` is `their_public`.

        Args:
            their_public: the other side's announced X25519 key.
            context: equal on both sides and never used twice between two processes: chunks are sealed under
                counter nonces, and a repeated key with a repeated nonce gives the plaintext away. Both sides'
                fresh random bytes belong in it.

        Raises:
            RemoteProtocolError: their key is not a usable one.
            LocalProtocolError: it is our own.
        """
        if their_public == self.bulk_public:
            raise LocalProtocolError("a bulk key was asked for a connection of this process to itself")
        try:
            secret = self._agreeing.exchange(X25519PublicKey.from_public_bytes(their_public))
        except ValueError as error:  # wrong length, or a point of small order
            raise RemoteProtocolError(f"bulk key {their_public.hex()} is not a usable X25519 key") from error
        publics = sorted((self.bulk_public, their_public))
        info = b"ictp2p bulk v1" + b"".join(publics) + context
        okm = HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(secret)
        low, high = okm[:16], okm[16:]
        return BulkKeys(low, high) if self.bulk_public == publics[0] else BulkKeys(high, low)

    def __repr__(self) -> str:
        return f"<Identity {self.peer_id}>"
