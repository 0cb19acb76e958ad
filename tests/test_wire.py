import contextlib
import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.errors import LocalProtocolError, ProtocolError, RemoteProtocolError, VersionMismatch
from ictp2p.machine import Message
from ictp2p.wire import HEADER_SIZE, MAX_CONTROL_BODY, WIRE_VERSION, Codec, Frame, FrameKind, FrameReader, frame


class Ping(Message, tag=1, frozen=True, array_like=True):
    sequence: int
    note: bytes = b""


class Record(Message, tag=2, frozen=True, array_like=True):
    member: str
    weights: tuple[float, ...]
    seen: dict[str, int]


CODEC = Codec(Ping, Record)
frames = st.builds(Frame, st.sampled_from(FrameKind), st.binary(max_size=300))
u63 = st.integers(-(2**63), 2**64 - 1)
messages = st.builds(Ping, u63, st.binary(max_size=50)) | st.builds(
    Record,
    st.text(max_size=20),
    st.lists(st.floats(allow_nan=False), max_size=5).map(tuple),
    st.dictionaries(st.text(max_size=5), u63, max_size=4),
)


def header(magic: int = 0x1C7B, version: int = WIRE_VERSION, kind: int = 1, length: int = 0) -> bytes:
    return struct.pack("!HBBI", magic, version, kind, length)


@given(st.lists(frames, max_size=8), st.data())
def test_a_stream_cut_anywhere_gives_the_same_frames(sent: list[Frame], data: st.DataObject):
    stream = b"".join(frame(kind, body) for kind, body in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    reader = FrameReader()
    got = [f for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) for f in reader.feed(stream[a:b])]
    assert got == sent


@given(st.binary(max_size=400), st.binary(max_size=40))
def test_garbage_gives_a_typed_error_or_nothing(start: bytes, rest: bytes):
    reader = FrameReader()
    for piece in (start, rest):
        try:
            reader.feed(piece)
        except RemoteProtocolError:
            with pytest.raises(ProtocolError):
                reader.feed(frame(FrameKind.MESSAGE, b"good"))
            return


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (header(magic=0x4745), RemoteProtocolError, "expected a frame"),
        (header(version=2), VersionMismatch, "version 2"),
        (header(kind=200), RemoteProtocolError, "kind 200"),
        (header(length=MAX_CONTROL_BODY + 1), RemoteProtocolError, "over the limit"),
        (header(length=2**32 - 1), RemoteProtocolError, "over the limit"),
    ],
)
def test_a_bad_header_is_refused_before_any_of_its_body(bad: bytes, error: type[Exception], words: str):
    reader = FrameReader()
    with pytest.raises(error, match=words):
        reader.feed(bad)


def test_frames_before_a_bad_one_do_not_hide_it_and_a_broken_reader_stays_broken():
    reader = FrameReader()
    with pytest.raises(RemoteProtocolError):
        reader.feed(frame(FrameKind.MESSAGE, b"fine") + header(magic=0))
    with pytest.raises(RemoteProtocolError, match="expected a frame"):
        reader.feed(frame(FrameKind.MESSAGE, b"fine"))


def test_the_largest_body_passes_and_one_more_byte_is_our_own_error():
    largest = bytes(MAX_CONTROL_BODY)
    assert FrameReader().feed(frame(FrameKind.MESSAGE, largest)) == [Frame(FrameKind.MESSAGE, largest)]
    with pytest.raises(LocalProtocolError, match="over the limit"):
        frame(FrameKind.MESSAGE, largest + b"!")
    assert HEADER_SIZE == 8


@given(messages)
def test_messages_survive_the_wire(message: Message):
    assert CODEC.decode(CODEC.encode(message)) == message


@given(messages)
def test_an_independent_reader_sees_a_positional_array(message: Message):
    fields = msgpack.unpackb(CODEC.encode(message), strict_map_key=False)
    assert fields[0] == {Ping: 1, Record: 2}[type(message)]


@given(st.binary(max_size=200))
def test_arbitrary_bytes_decode_to_a_message_or_to_a_typed_error(body: bytes):
    _decodes_or_refuses(body)


@given(messages, st.data())
def test_damaged_messages_decode_to_a_message_or_to_a_typed_error(message: Message, data: st.DataObject):
    body = bytearray(CODEC.encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    _decodes_or_refuses(bytes(body[: data.draw(st.integers(0, len(body)))]))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x92\x03\x00",  # a tag that nobody has
        b"\x92\x01\xa1x",  # text for a number
        b"\x92\x01\x00\x00",  # something after the end
        b"\x94\x02\xa0\xdd\xff\xff\xff\xff\x80",  # an array that claims four thousand million floats
        b"\x92\x02\xc6\xff\xff\xff\xff",
        b"\x94\x02\xa1\x80\x90\x80",
        b"\x94\x01\x00\xc4\x00" + b"\x91" * 200_000 + b"\xc0",  # a surplus field, nested beyond any stack
    ],
    ids=["empty", "reserved", "tag", "type", "trailing", "huge array", "huge bytes", "not UTF-8", "deep"],
)
def test_hostile_bodies_are_the_other_sides_error(body: bytes):
    with pytest.raises(RemoteProtocolError):
        CODEC.decode(body)


def test_a_newer_peers_surplus_fields_are_ignored_and_an_older_peers_missing_ones_have_defaults():
    assert CODEC.decode(msgpack.packb([1, 7, b"x", "new field", {"more": 1}])) == Ping(7, b"x")
    assert CODEC.decode(msgpack.packb([1, 7])) == Ping(7)


def test_a_value_that_does_not_fit_the_wire_is_our_own_error():
    with pytest.raises(LocalProtocolError, match="Ping"):
        CODEC.encode(Ping(2**64))


def _decodes_or_refuses(body: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        assert isinstance(CODEC.decode(body), Ping | Record)
