import datetime

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from ictp2p.config.checks import MIN_TOKEN_LENGTH
from ictp2p.edge.credential import Credential, Mesh, certified_peer
from ictp2p.errors import ConfigError, RemoteProtocolError
from ictp2p.identity import Identity

IDENTITY = Identity.from_bytes(bytes(range(32)))


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh.from_token("correct horse battery staple")


@pytest.fixture(scope="module")
def credential(mesh: Mesh) -> Credential:
    return mesh.issue(IDENTITY)


def test_the_same_token_makes_the_same_mesh_and_another_token_another(mesh: Mesh, credential: Credential):
    again = Mesh.from_token("correct horse battery staple")
    assert again.fingerprint == mesh.fingerprint
    assert again.issue(IDENTITY) == credential
    assert Mesh.from_token("correct horse battery stapler").fingerprint != mesh.fingerprint


def test_what_a_token_derives_does_not_change_between_releases(mesh: Mesh):
    assert repr(mesh) == "<Mesh b2e45613f6343e7b>"
    assert len(mesh.fingerprint) == 8


def test_a_certificate_carries_the_peers_own_key_under_the_meshs_signature(mesh: Mesh, credential: Credential):
    leaf, authority = _read(credential.certificate), _read(credential.authority)
    leaf.verify_directly_issued_by(authority)
    assert certified_peer(leaf.public_bytes(Encoding.DER)) == IDENTITY.peer_id
    stranger = _read(Mesh.from_token("another token entirely").issue(IDENTITY).authority)
    with pytest.raises((InvalidSignature, ValueError)):
        leaf.verify_directly_issued_by(stranger)


def test_every_peer_of_a_mesh_shows_the_same_authority(mesh: Mesh, credential: Credential):
    other = mesh.issue(Identity.generate())
    assert other.authority == credential.authority
    assert other.certificate != credential.certificate


def test_no_clock_is_wrong_enough_to_lock_a_peer_out(credential: Credential):
    for pem in (credential.certificate, credential.authority):
        certificate = _read(pem)
        assert certificate.not_valid_before_utc == datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        assert certificate.not_valid_after_utc.year == 9999


def test_only_the_authority_can_sign(credential: Credential):
    for pem, signs in ((credential.certificate, False), (credential.authority, True)):
        extensions = _read(pem).extensions
        assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is signs
        assert extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is signs


@pytest.mark.parametrize("token", [" " * 32, "a token of a file\n", "\ta token of a file"])
def test_a_token_with_white_space_around_it_is_refused_for_it_would_make_another_mesh(token: str) -> None:
    with pytest.raises(ConfigError, match="begins or ends with white space"):
        Mesh.from_token(token)


@pytest.mark.parametrize("token", ["", "short", "x" * (MIN_TOKEN_LENGTH - 1)])
def test_a_token_that_can_be_guessed_is_refused_without_repeating_it(token: str):
    with pytest.raises(ConfigError, match=f"has {len(token)} characters") as caught:
        Mesh.from_token(token)
    assert not token or token not in str(caught.value)


def test_what_is_no_certificate_of_ours_names_no_peer():
    with pytest.raises(RemoteProtocolError, match="cannot read"):
        certified_peer(b"not a certificate")
    with pytest.raises(RemoteProtocolError, match="Ed25519"):
        certified_peer(_elliptic_certificate())


def _elliptic_certificate() -> bytes:
    key = generate_private_key(SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "stranger")])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)


def _read(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)
