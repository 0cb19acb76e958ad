import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.disk import MemoryDisk
from ictp2p.errors import HandshakeFailed, LocalProtocolError, RemoteProtocolError, StateError
from ictp2p.identity import Identity, check_bulk_proof, peer_id_of, verify

seeds = st.binary(min_size=32, max_size=32)


def test_keys_and_signatures_are_those_of_rfc_8032():
    # Section 7.1, TEST 1: the empty message.
    identity = Identity.from_bytes(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
    assert identity.public_key.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert identity.sign(b"").hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b"
    )


def test_the_id_is_32_hex_digits_of_the_key_and_never_changes():
    identity = Identity.from_bytes(bytes(32))
    assert identity.peer_id == peer_id_of(identity.public_key) == "11feae8d647d22256a7db07fe46292c2"


@given(seeds, st.binary(max_size=64), st.integers(0, 511))
def test_a_signature_holds_for_its_message_and_key_only(seed: bytes, message: bytes, bit: int):
    identity, other = Identity.from_bytes(seed), Identity.generate()
    signature = identity.sign(message)
    assert verify(identity.public_key, message, signature)
    assert not verify(identity.public_key, message + b"!", signature)
    assert not verify(other.public_key, message, signature)
    forged = bytearray(signature)
    forged[bit // 8] ^= 1 << bit % 8
    assert not verify(identity.public_key, message, bytes(forged))


@given(st.binary(max_size=40), st.binary(max_size=70))
def test_nonsense_keys_and_signatures_are_simply_not_valid(key: bytes, signature: bytes):
    assert not verify(key, b"message", signature)


def test_a_peer_comes_back_from_its_disk_with_the_same_id_and_a_new_bulk_key():
    disk = MemoryDisk()
    first, second = Identity.load(disk), Identity.load(disk)
    assert first.peer_id == second.peer_id
    assert first.bulk_public != second.bulk_public
    assert Identity.from_bytes(first.to_bytes()).public_key == first.public_key
    assert Identity.load(MemoryDisk()).peer_id != first.peer_id


def test_a_stored_key_of_another_length_is_refused():
    disk = MemoryDisk()
    disk.save("identity", bytes(31))
    with pytest.raises(StateError, match="not 31"):
        Identity.load(disk)
    with pytest.raises(StateError, match="bulk key"):
        Identity.from_bytes(bytes(32), bytes(3))


@given(seeds, seeds, st.binary(max_size=40))
def test_both_sides_agree_on_two_different_keys_one_for_each_direction(a: bytes, b: bytes, context: bytes):
    left, right = Identity.from_bytes(a, bulk_seed=a), Identity.from_bytes(b, bulk_seed=b)
    if left.bulk_public == right.bulk_public:
        return
    ours, theirs = left.bulk_key(right.bulk_public, context), right.bulk_key(left.bulk_public, context)
    assert ours.sending == theirs.receiving
    assert ours.receiving == theirs.sending
    assert ours.sending != ours.receiving
    assert len(ours.sending) == len(ours.receiving) == 16
    assert not set(ours) & set(left.bulk_key(right.bulk_public, context + b"!"))


@pytest.mark.parametrize(
    "point",
    [bytes(32), (1).to_bytes(32, "little"), b"short"],
    ids=["zero", "one", "length"],
)
def test_a_key_that_would_agree_a_secret_that_anybody_knows_is_refused(point: bytes):
    with pytest.raises(RemoteProtocolError, match="not a usable"):
        Identity.generate().bulk_key(point, b"")


def test_a_process_agrees_no_key_with_itself():
    identity = Identity.generate()
    with pytest.raises(LocalProtocolError, match="itself"):
        identity.bulk_key(identity.bulk_public, b"")


def test_the_secret_is_in_no_repr():
    identity = Identity.from_bytes(bytes(range(32)))
    assert repr(identity) == f"<Identity {identity.peer_id}>"


@given(seeds, seeds, st.integers(0, 95), st.binary(max_size=9))
def test_a_bulk_key_is_proven_by_whose_it_is_and_by_nobody_else(a: bytes, b: bytes, at: int, padding: bytes):
    one, other = Identity.from_bytes(a, bulk_seed=a), Identity.from_bytes(b, bulk_seed=b)
    check_bulk_proof(one.peer_id, one.bulk_public, one.bulk_proof + padding)
    forged = bytearray(one.bulk_proof)
    forged[at] ^= 1
    wrong = [
        (one.peer_id, one.bulk_public, bytes(forged)),
        (one.peer_id, one.bulk_public, one.bulk_proof[:at]),
        (one.peer_id, one.bulk_public, one.public_key + one.sign(one.bulk_public)),
    ]
    if a != b:
        wrong += [
            (one.peer_id, other.bulk_public, one.bulk_proof),  # what a forged card leads to
            (one.peer_id, other.bulk_public, other.bulk_proof),
            (one.peer_id, one.bulk_public, other.bulk_proof),
        ]
    for given_ in wrong:
        with pytest.raises(HandshakeFailed, match="does not prove"):
            check_bulk_proof(*given_)
