"""What passes between a training program and its peer in another process, but for the messages themselves.

Both ends are one program in two processes of one user, connected by a socket pair that nobody else can reach. So a
frame (`framing`) carries no version, and one that does not decode ends the connection. Nothing is pickled: each message
(`to_peer`, `to_training`) is a MessagePack array of declared shape. Tensors do not pass here; their place in shared
memory does (`TensorRef`).
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from ictp2p.errors import LocalProtocolError
from ictp2p.handle.framing import HEADER, MOST
from ictp2p.wire import MALFORMED

T = TypeVar("T")
Number = Annotated[int, msgspec.Meta(ge=0)]


class Words(msgspec.Struct, frozen=True, array_like=True):
    """Base of what is said."""


class TensorRef(Words, frozen=True, array_like=True):
    """A flat tensor in shared memory."""

    region: Number
    """Which; 0 for a tensor of no elements."""
    offset: Number
    """Of its first byte."""
    elements: Number
    dtype: str


class Failure(Words, frozen=True, array_like=True):
    """An error on its way to the other side."""

    kind: str
    """Name of its class, in `errors` or among Python's own."""
    text: str
    trace: str = ""
    """Where it was raised, if it is none of ours."""


_encoder = msgspec.msgpack.Encoder(enc_hook=str)


def encode(number: int, message: Any) -> bytes:
    """One frame.

    Raises:
        LocalProtocolError: it would be longer than `framing.MOST`.
    """
    body = _encoder.encode(message)
    if len(body) > MOST:
        raise LocalProtocolError(f"a {type(message).__name__} of {len(body)} bytes is longer than {MOST}")
    return HEADER.pack(len(body), number) + body


def raw(value: Any) -> msgspec.Raw:
    """A value of any type, to be decoded by who knows which."""
    return msgspec.Raw(_encoder.encode(value))


def decoded(decoder: msgspec.msgpack.Decoder[T], body: bytes | memoryview) -> T:
    """Read what was said.

    Raises:
        LocalProtocolError: it does not decode.
    """
    try:
        return decoder.decode(body)
    except MALFORMED as error:
        text = f"a message between a peer and its training program does not decode: {error}"
        raise LocalProtocolError(text) from error
