from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.messages import (
    LAST_SEQUENCE,
    MAX_INCARNATION,
    MAX_PAYLOAD,
    Ack,
    Dead,
    Delta,
    Digest,
    Entry,
    Gossip,
    Nack,
    Ping,
    PingRequest,
    Record,
    Sight,
    Status,
    Suspect,
    SwimMessage,
    SwimState,
)

decode = msgspec.msgpack.Decoder(SwimMessage).decode
encode = msgspec.msgpack.encode

RECORD = Record("a", 1, 2, b"payload", b"key", b"signature")
NEWS = (RECORD, Suspect("a", 1, "b"), Dead("c", 2, "b"))
ENTRY = Entry("a", 1, 2, Status.DEAD)


@pytest.mark.parametrize(
    "message",
    [
        Ping(1, NEWS),
        Ack(2, NEWS),
        Nack(3),
        PingRequest(4, "t", NEWS),
        Gossip(NEWS),
        Digest((ENTRY,)),
        Delta((RECORD,), (ENTRY,), ("w",)),
        SwimState((Sight(RECORD, Status.ALIVE),)),
    ],
)
def test_messages_survive_the_wire(message: SwimMessage) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "bad",
    [
        Nack(-1),
        PingRequest(1, ""),
        PingRequest(1, "x" * 129),
        Gossip((Suspect("a", -1, "b"),)),
        Gossip((Suspect("a", MAX_INCARNATION + 1, "b"),)),
        Gossip((Record("a", MAX_INCARNATION + 1, 0, b""),)),
        Gossip((Record("a", 0, LAST_SEQUENCE + 1, b""),)),
        Gossip((Record("a", 0, 0, b"x" * (MAX_PAYLOAD + 1)),)),
        Gossip((Record("a", 0, 0, b"", b"k" * 65),)),
        Gossip((Nack(1),)),  # type: ignore[arg-type]
        Gossip((Suspect("a", 1, "b"),) * 4097),
        Digest((Entry("a", 1, 1, 4),)),  # type: ignore[arg-type]
        Delta(wanted=("x",) * 4097),
        RECORD,
    ],
)
def test_what_is_out_of_range_does_not_decode(bad: msgspec.Struct) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(encode(bad))


@given(st.binary(max_size=200))
def test_garbage_never_decodes_to_a_surprise(data: bytes) -> None:
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        decode(data)


def test_a_goodbye_is_the_last_record_of_its_incarnation() -> None:
    goodbye = msgspec.structs.replace(RECORD, sequence=LAST_SEQUENCE)
    assert goodbye.left
    assert not RECORD.left
    assert RECORD.version < goodbye.version < msgspec.structs.replace(RECORD, incarnation=2, sequence=0).version


FIELDS = st.tuples(
    st.text(max_size=4), st.text(max_size=4), st.integers(0, 9), st.integers(0, 9), st.binary(max_size=4)
)


@given(FIELDS, FIELDS)
def test_a_statement_binds_every_field_and_the_scope(
    one: tuple[str, str, int, int, bytes], two: tuple[str, str, int, int, bytes]
) -> None:
    same = Record(*one[1:]).statement(one[0]) == Record(*two[1:]).statement(two[0])
    assert same == (one == two)
