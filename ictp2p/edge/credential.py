"""A mesh is its token: how peers show each other that they belong, with no server that signs.

scrypt (RFC 7914) turns the join token into the Ed25519 key of the mesh's certificate authority, the same one on
every peer that knows the token. Each peer issues itself a certificate for its own key, signed by that authority;
TLS 1.3 then proves both at once: this is the holder of that key, and it knows the token. The token itself never
travels, and nothing but the token needs to be handed out. A certificate proves nothing about honesty: whoever
has the token is a full member.

Before TLS, peers compare the mesh's fingerprint, a hash of the authority's public key, so that a peer with a
wrong token is told so. A fingerprint lets an eavesdropper test guesses of the token, at the price of one scrypt
each; `ictp2p token` therefore draws 128 bits, and short tokens are refused. The salt is the same for all meshes, for
all peers have to come to one key from the token alone (`docs/security.md` says why that is no harm).

Certificates are valid from 1970 to 9999: trust ends when the token changes, and a peer whose clock is wrong must
not be locked out. They are deterministic: the same token makes the same authority, byte for byte.
"""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ictp2p.config.checks import secret
from ictp2p.errors import ConfigError, RemoteProtocolError
from ictp2p.identity import Identity, peer_id_of, verify
from ictp2p.types import PeerId

_SCRYPT_SALT = b"ictp2p mesh authority v1"
_SCRYPT_COST = 1 << 15  # 32 MiB and about 0.1 s: once per process for us, once per guess for a thief
_NOT_BEFORE = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NOT_AFTER = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Credential:
    """A peer's right to be in a mesh, as TLS wants it."""

    authority: bytes
    """The mesh's self-signed certificate, PEM; equal on every peer of the mesh."""
    certificate: bytes
    """This peer's certificate, PEM, signed by the mesh's authority."""


class Mesh:
    """The authority of one mesh, as every holder of its token can derive it."""

    def __init__(self, authority: Ed25519PrivateKey) -> None:
        self._authority = authority
        public = authority.public_key().public_bytes_raw()
        self.fingerprint = hashlib.blake2b(public, digest_size=8, person=b"ictp2p mesh").digest()
        """8 bytes that name the mesh on the wire without telling the token."""
        secret = authority.private_bytes_raw()
        self.membership = hashlib.blake2b(secret, digest_size=32, person=b"ictp2p member").digest()
        """32 bytes that every holder of the token knows and nobody else; they never travel."""

    @classmethod
    def from_token(cls, token: str) -> Mesh:
        """Derive the mesh's authority; takes about 0.1 s on purpose.

        Raises:
            ConfigError: the token is too short to be secret, or has white space around it, as one from a file may.
        """
        try:
            secret(token)
        except ConfigError as error:  # which says neither of what, nor its value, for that is not for a screen
            raise ConfigError(f"the join token is not valid: {error}") from None
        seed = Scrypt(salt=_SCRYPT_SALT, length=32, n=_SCRYPT_COST, r=8, p=1).derive(token.encode())
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    def issue(self, identity: Identity) -> Credential:
        """Certify a peer's key."""
        name = _name("ictp2p mesh " + self.fingerprint.hex())
        public = self._authority.public_key()
        authority = _certificate(self._authority, issuer=name, subject=name, public=public, is_authority=True)
        leaf = _certificate(
            self._authority,
            issuer=name,
            subject=_name(identity.peer_id),
            public=Ed25519PublicKey.from_public_bytes(identity.public_key),
            is_authority=False,
        )
        return Credential(authority=authority, certificate=leaf)

    def vouch(self, message: bytes) -> bytes:
        """Sign a message as one who knows the token: 64 bytes. What it is about belongs in the message."""
        return self._authority.sign(message)

    def vouched(self, message: bytes, signature: bytes) -> bool:
        """Say whether somebody who knows the token has signed the message."""
        return verify(self._authority.public_key().public_bytes_raw(), message, signature)

    def __repr__(self) -> str:
        return f"<Mesh {self.fingerprint.hex()}>"


def certified_peer(certificate: bytes) -> PeerId:
    """Return the id of the peer that a certificate (DER) is for. TLS has verified it; this only reads the key.

    Raises:
        RemoteProtocolError: the certificate is not one that a mesh issues.
    """
    try:
        public = x509.load_der_x509_certificate(certificate).public_key()
    except ValueError as error:
        raise RemoteProtocolError(f"cannot read the peer's certificate: {error}") from error
    if not isinstance(public, Ed25519PublicKey):
        raise RemoteProtocolError("the peer's certificate is not for an Ed25519 key")
    return peer_id_of(public.public_bytes_raw())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(
    signer: Ed25519PrivateKey, *, issuer: x509.Name, subject: x509.Name, public: Ed25519PublicKey, is_authority: bool
) -> bytes:
    """A version 3 certificate (RFC 5280), the same bytes for the same arguments."""
    serial = int.from_bytes(hashlib.blake2b(public.public_bytes_raw(), digest_size=16).digest()) | 1
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(serial)
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(_key_usage(is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if not is_authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(signer, None).public_bytes(Encoding.PEM)


def _key_usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
