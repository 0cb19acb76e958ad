from __future__ import annotations

import contextlib
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk import frames
from ictp2p.bulk.ciphers import MOST, Cipher
from ictp2p.bulk.frames import MAX_BODY, Header, Hello, Kind, Purpose, read_header, read_hello, transcript
from ictp2p.bulk.seal import Seal
from ictp2p.edge.preamble import Preamble
from ictp2p.errors import HandshakeFailed, RemoteProtocolError, VersionMismatch
from ictp2p.types import PeerId
from ictp2p.wire import WIRE_VERSION, FrameKind, frame

headers = st.builds(
    Header,
    kind=st.sampled_from(Kind),
    tag=st.binary(min_size=16, max_size=16),
    first=st.integers(0, 2**16 - 1),
    second=st.integers(0, 2**64 - 1),
    length=st.integers(0, MAX_BODY),
    starved=st.booleans(),
)
peers = st.binary(min_size=16, max_size=16).map(lambda raw: PeerId(raw.hex()))
hellos = st.builds(
    Hello,
    purpose=st.sampled_from(Purpose),
    source=peers,
    target=peers,
    nonce=st.binary(min_size=32, max_size=32),
    ticket=st.binary(min_size=16, max_size=16),
    sealed=st.booleans(),
    hops=st.integers(0, frames.MAX_HOPS),
    costs=st.tuples(st.integers(0, MOST), st.integers(0, MOST)),
    beside=st.booleans(),
)
ciphers = st.sampled_from(Cipher)


@given(headers)
def test_a_header_survives_the_wire(header: Header) -> None:
    assert read_header(header.pack()) == header
    assert len(header.pack()) == frames.HEADER_BYTES


@given(hellos)
def test_a_hello_survives_the_wire(hello: Hello) -> None:
    assert read_hello(hello.pack()) == hello
    assert len(hello.pack()) == frames.HELLO_BYTES


@given(st.binary(min_size=frames.HEADER_BYTES, max_size=frames.HEADER_BYTES), st.booleans())
def test_a_garbled_header_is_a_typed_error_or_within_bounds(data: bytes, plausible: bool) -> None:
    data = (b"Bk%c" % WIRE_VERSION + data)[: len(data)] if plausible else data
    with contextlib.suppress(RemoteProtocolError):
        assert read_header(data).length <= MAX_BODY


@given(st.binary(min_size=frames.HELLO_BYTES, max_size=frames.HELLO_BYTES), st.booleans())
def test_a_garbled_hello_is_a_typed_error_or_within_bounds(data: bytes, plausible: bool) -> None:
    data = (b"ICTB%c" % WIRE_VERSION + data)[: len(data)] if plausible else data
    with contextlib.suppress(RemoteProtocolError):
        assert read_hello(data).hops <= frames.MAX_HOPS


def test_what_is_said_on_data_connections_is_of_the_version_that_is_compared_at_the_door() -> None:
    """Regression: it had a version of its own, which nobody compared.

    A peer of another release was let in, and each round that it took part in was tried four times, in vain.
    """
    said = Hello(Purpose.DIRECT, PeerId("0" * 32), PeerId("1" * 32), bytes(32))
    versions = {Header(Kind.BEGIN).pack()[2], said.pack()[4], frame(FrameKind.MESSAGE, b"")[2]}
    assert versions == {Preamble(b"mesh-one").newest} == {WIRE_VERSION}


def test_what_is_wrong_with_a_header_is_named() -> None:
    good = bytearray(Header(Kind.BEGIN).pack())
    with pytest.raises(VersionMismatch, match=f"version {WIRE_VERSION + 1}"):
        read_header(good[:2] + bytes([WIRE_VERSION + 1]) + good[3:])
    with pytest.raises(RemoteProtocolError, match="unknown kind 200"):
        read_header(good[:3] + b"\xc8" + good[4:])
    with pytest.raises(RemoteProtocolError, match=f"{MAX_BODY + 1} bytes exceeds"):
        read_header(Header(Kind.REPLY, length=MAX_BODY + 1).pack())


@given(hellos, hellos, st.sampled_from(["source", "target", "nonce", "ticket"]))
def test_keys_depend_on_all_of_both_hellos_except_what_a_relay_changes(one: Hello, two: Hello, field: str) -> None:
    passed_on = replace(one, purpose=Purpose.RELAY, hops=3).relayed()
    assert transcript(passed_on, two) == transcript(replace(one, purpose=Purpose.DIRECT), two)
    changed = replace(one, **{field: type(getattr(one, field))(_other(getattr(one, field)))})
    assert transcript(changed, two) != transcript(one, two)
    assert transcript(replace(one, sealed=not one.sealed), two) != transcript(one, two)
    assert transcript(replace(one, beside=not one.beside), two) != transcript(one, two)
    assert transcript(replace(one, costs=(one.costs[0], one.costs[1] ^ 1)), two) != transcript(one, two)


def _other(value: str | bytes) -> str | bytes:
    if isinstance(value, str):
        return ("1" if value[0] == "0" else "0") + value[1:]
    return bytes([value[0] ^ 1]) + value[1:]


@given(ciphers, st.binary(max_size=200), st.integers(0, 2**16), st.integers(0, 7))
def test_any_change_on_the_way_is_noticed(cipher: Cipher, body: bytes, place: int, bit: int) -> None:
    header = Header(Kind.PARTIAL, bytes(range(16)), 1, 2, len(body)).pack()
    sealed = bytearray(len(body) + 16)
    Seal(bytes(16), cipher).seal(header, body, memoryview(sealed))
    opened = bytearray(len(body))
    Seal(bytes(16), cipher).open(header, memoryview(sealed), memoryview(opened))
    assert opened == body
    both = bytearray(header + sealed)
    both[place % len(both)] ^= 1 << bit
    with pytest.raises(RemoteProtocolError, match="forged or torn"):
        Seal(bytes(16), cipher).open(both[: len(header)], memoryview(both)[len(header) :], memoryview(opened))


@given(ciphers, st.binary(max_size=3000))
def test_where_a_body_is_sealed_to_makes_no_difference(cipher: Cipher, body: bytes) -> None:
    apart, place = bytearray(len(body) + 16), bytearray(body + bytes(16))
    Seal(bytes(16), cipher).seal(b"h", body, memoryview(apart))
    Seal(bytes(16), cipher).seal(b"h", memoryview(place)[: len(body)], memoryview(place))
    assert place == apart
    assert Seal(bytes(16), cipher).sealed(b"h", body) == b"h" + apart


@given(ciphers, st.lists(st.binary(max_size=200), max_size=5), st.data(), st.integers(0, 2**16), st.integers(0, 7))
def test_a_body_in_pieces_is_sealed_and_opened_as_one(
    cipher: Cipher, pieces: list[bytes], data: st.DataObject, place: int, bit: int
) -> None:
    body = b"".join(pieces)
    apart, whole = bytearray(len(body) + 16), bytearray(len(body) + 16)
    Seal(bytes(16), cipher).seal_pieces(b"head", pieces, memoryview(apart))
    Seal(bytes(16), cipher).seal(b"head", body, memoryview(whole))
    assert apart == whole
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    opened = bytearray(len(body))
    rooms = [memoryview(opened)[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    receiver = Seal(bytes(16), cipher)
    receiver.open_pieces(b"head", memoryview(bytearray(whole)), rooms)
    assert opened == body
    with pytest.raises(RemoteProtocolError, match="forged or torn"):
        receiver.open_pieces(b"head", memoryview(bytearray(whole)), rooms)  # once more
    both = bytearray(b"head" + whole)
    both[place % len(both)] ^= 1 << bit
    with pytest.raises(RemoteProtocolError, match="forged or torn"):
        Seal(bytes(16), cipher).open_pieces(both[:4], memoryview(both)[4:], rooms)


@pytest.mark.parametrize("cipher", Cipher)
def test_frames_cannot_be_replayed_or_reordered(cipher: Cipher) -> None:
    sender, receiver = Seal(bytes(16), cipher), Seal(bytes(16), cipher)
    sealed = [bytearray(19) for _ in range(2)]
    for into in sealed:
        sender.seal(b"h", b"abc", memoryview(into))
    assert sealed[0] != sealed[1]
    with pytest.raises(RemoteProtocolError):
        receiver.open(b"h", memoryview(sealed[1]), memoryview(bytearray(3)))
    with pytest.raises(HandshakeFailed, match="key of 5 bytes"):
        Seal(b"short", cipher)


def test_measurements_are_checked() -> None:
    body = frames.pack_measured(10, 0.5, True)
    assert frames.read_measured(memoryview(body)) == (10, 0.5, True)
    for seconds in (0.0, -1.0, float("nan"), float("inf"), 5e-324, 1e-24):
        with pytest.raises(RemoteProtocolError, match="measurement of 10 bytes over"):
            frames.read_measured(memoryview(struct.pack("!Qd?", 10, seconds, False)))
    with pytest.raises(RemoteProtocolError, match="of 3 bytes"):
        frames.read_measured(memoryview(b"abc"))
