"""The reading half by itself, fed with bytes cut anywhere."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk import kernel
from ictp2p.bulk.frames import MAX_BODY, NO_TAG, SEAL_BYTES, Header, Hello, Kind
from ictp2p.bulk.inbound import Inbound
from ictp2p.bulk.users import Frame, User
from ictp2p.bulk.wakeups import Wakeups
from ictp2p.errors import IctError, RemoteProtocolError, VersionMismatch
from ictp2p.wire import WIRE_VERSION
from tests.bulk.conftest import MemoryTransport

TAGS = (b"a" * 16, b"b" * 16)


class Taker:
    """Keeps what it takes; what is as long as its room lands there, in pieces if the room is `cut` somewhere."""

    def __init__(self, room: int = 0, cut: tuple[int, ...] = ()) -> None:
        self.room = memoryview(bytearray(room))
        self.pieces = [self.room[a:b] for a, b in pairwise((0, *cut, room))]
        self.taken: list[tuple[int, bytes]] = []

    def next_frame(self) -> Frame | None:
        return None

    def place(self, header: Header) -> memoryview | list[memoryview] | None:
        if header.length != len(self.room):
            return None
        return self.pieces if len(self.pieces) > 1 else self.room

    def take(self, header: Header, body: memoryview) -> None:
        if header.length == len(self.room):
            assert body is self.room or (not body and len(self.pieces) > 1)
            body = self.room
        self.taken.append((header.second, bytes(body)))

    def expecting(self) -> bool:
        return False

    def lost(self, error: IctError) -> None: ...


class Reader(Inbound):
    """Past its handshake, in clear."""

    def __init__(self, users: dict[bytes, Taker]) -> None:
        super().__init__()
        self.users = users
        self._wakeups = Wakeups(MemoryTransport())
        self._greeted = self._confirmed = True
        self._seal_bodies = False

    def fail(self, error: IctError) -> None:
        raise error

    def _hello_came(self, hello: Hello) -> None: ...

    def _confirmation_came(self, proof: bytes) -> None: ...

    def _taker(self, header: Header) -> User | None:
        return self.users.get(header.tag)

    def _uses(self, user: User) -> bool:
        return True

    def feed(self, data: bytes) -> None:
        while data:
            room = self.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self.buffer_updated(size)
            data = data[size:]


def frame(tag: bytes, number: int, body: bytes, kind: Kind = Kind.RESULT) -> bytes:
    return Header(kind, tag, 0, number, len(body)).pack() + body


@given(
    st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from((Kind.RESULT, Kind.REPLY)), st.binary(max_size=9))),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_frames_cut_anywhere_arrive_whole_and_in_order(
    frames: list[tuple[bytes, Kind, bytes]], sizes: list[int]
) -> None:
    users = {TAGS[0]: Taker(room=5), TAGS[1]: Taker(room=5, cut=(1, 3))}
    reader = Reader(users)
    data = b"".join(frame(tag, number, body, kind) for number, (tag, kind, body) in enumerate(frames))
    while data:
        for size in sizes:
            reader.feed(data[:size])
            data = data[size:]
    for tag, user in users.items():
        assert user.taken == [(n, body) for n, (each, _, body) in enumerate(frames) if each == tag]


@given(st.sampled_from(Kind), st.integers(0, MAX_BODY))
def test_whoever_has_not_shown_its_key_makes_nobody_take_memory(kind: Kind, length: int) -> None:
    reader = Reader({})
    reader._confirmed = False
    header = Header(kind, NO_TAG, 0, 0, length).pack()
    if kind is Kind.CONFIRM and length <= kernel.JUMBO:
        reader.feed(header)
        assert len(reader._buffer) <= kernel.JUMBO + SEAL_BYTES
        return
    with pytest.raises(RemoteProtocolError, match="before the keys were confirmed"):
        reader.feed(header)
    assert not reader._buffer


@pytest.mark.parametrize("pieces", [(), (3, 6)])
@pytest.mark.parametrize("cut", [0, 20, 36, 38, 40, 43])
def test_who_has_left_is_given_nothing_more_of_its_tag(cut: int, pieces: tuple[int, ...]) -> None:
    """Not even the rest of a chunk whose first bytes lie in its memory already."""
    user = Taker(8, pieces)
    reader = Reader({TAGS[0]: user})
    reader.feed(frame(TAGS[0], 0, b"first   "))
    late = frame(TAGS[0], 1, b"the late")
    reader.feed(late[:cut])
    reader.users.clear()
    reader._forget(user, TAGS[0])
    user.room[:] = b"mine now"
    reader.feed(late[cut:])
    reader.feed(frame(TAGS[0], 2, b"and more"))
    assert user.taken == [(0, b"first   ")]
    assert bytes(user.room) == b"mine now"


@pytest.mark.parametrize(
    ("start", "error", "message"),
    [
        (b"ICTB\x03", VersionMismatch, f"bulk hello of version 3, this is version {WIRE_VERSION}"),
        (b"ICTB\xff", VersionMismatch, "version 255"),
        (b"GET /", RemoteProtocolError, "begins with b'GET '"),
    ],
)
def test_a_hello_of_another_version_is_known_by_its_beginning(
    start: bytes, error: type[Exception], message: str
) -> None:
    """Regression: one that was shorter was waited for to its end, and was too late."""
    reader = Reader({})
    reader._greeted = False
    reader.feed(start[:4])
    with pytest.raises(error, match=re.escape(message)):
        reader.feed(start[4:])
