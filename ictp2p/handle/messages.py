"""What passes between a training program and its peer in another process, and how it is framed.

Both ends are one program in two processes of one user, connected by a socket pair that nobody else can reach. So a
frame carries no version, and one that does not decode ends the connection. Nothing is pickled: each message is a
MessagePack array of declared shape. Tensors do not pass here; their place in shared memory does (`TensorRef`).

    length u32 | number u32 | body          (of the body, in bytes; which request or question it is about, or 0)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from ictp2p.config import Config
from ictp2p.errors import LocalProtocolError
from ictp2p.sync.devices import Device
from ictp2p.sync.roster import Roster
from ictp2p.sync.values import Close, Open, Participant, Spec, StateRef, Value
from ictp2p.types import ClusterId, PeerId
from ictp2p.wire import MALFORMED

HEADER = struct.Struct("<II")
MOST = 64 << 20
"""Largest body, bytes: a state's manifest is the longest thing that is sent."""

_Number = Annotated[int, msgspec.Meta(ge=0)]


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """One of them."""


class TensorRef(_Message, frozen=True, array_like=True):
    """A flat tensor in shared memory."""

    region: _Number
    """Which; 0 for a tensor of no elements."""
    offset: _Number
    """Of its first byte."""
    elements: _Number
    dtype: str


class Failure(_Message, frozen=True, array_like=True):
    """An error on its way to the other side."""

    kind: str
    """Name of its class, in `errors` or among Python's own."""
    text: str
    trace: str = ""
    """Where it was raised, if it is none of ours."""


# ------------------------------------------------------------ to the peer


class Begin(_Message, tag=1, frozen=True, array_like=True):
    """The first message: make the peer. Answered by its id."""

    config: Config
    threads: int
    """That torch may use."""


class Start(_Message, tag=2, frozen=True, array_like=True):
    """Join the mesh."""


class Leave(_Message, tag=3, frozen=True, array_like=True):
    """Leave it."""


class View(_Message, tag=4, frozen=True, array_like=True):
    """See something; answered by plain data."""

    name: str


class Note(_Message, tag=5, frozen=True, array_like=True):
    """Note an event. Not answered."""

    kind: str
    fields: dict[str, Any]


class Where(_Message, tag=6, frozen=True, array_like=True):
    """Where the worker is in its life. Not answered."""

    state: str
    inside: dict[str, str]


class Equip(_Message, tag=7, frozen=True, array_like=True):
    """What training computes on."""

    device: Device


class Wants(_Message, tag=8, frozen=True, array_like=True):
    """Whether a training thread wants into the group."""

    ready: bool
    device: Device


class Boundary(_Message, tag=9, frozen=True, array_like=True):
    """Everybody stands before this step."""

    step: int


class GroupFailed(_Message, tag=10, frozen=True, array_like=True):
    """A collective of that generation broke here."""

    generation: tuple[int, int]
    library: str


class SetTraining(_Message, tag=11, frozen=True, array_like=True):
    """Whether rounds should wait for this cluster."""

    training: bool
    config: bytes | None


class Offer(_Message, tag=12, frozen=True, array_like=True):
    """Offer a state."""

    digest: bytes


class Holds(_Message, tag=13, frozen=True, array_like=True):
    """Version and digest of the state that others can have here. Not answered; the first serves it from now on."""

    version: int
    digest: bytes


class FetchState(_Message, tag=14, frozen=True, array_like=True):
    """Receive a state; the request's number names the receiver in the peer's questions."""

    ref: StateRef
    own: bool


class Reduce(_Message, tag=15, frozen=True, array_like=True):
    """Bring a contribution; the request's number names it in what is told of its attempts."""

    spec: Spec
    base: StateRef
    weight: float
    inputs: tuple[TensorRef, ...]
    outputs: tuple[TensorRef, ...]
    patient: bool
    note: bytes


class GiveUp(_Message, tag=16, frozen=True, array_like=True):
    """Fail the contribution that stands."""


class Waiting(_Message, tag=17, frozen=True, array_like=True):
    """What is waited for."""


class TakingPart(_Message, tag=18, frozen=True, array_like=True):
    """Which clusters rounds wait for."""


class HoldAnswer(_Message, tag=19, frozen=True, array_like=True):
    """Keep a result for whoever asks. Not answered."""

    digest: bytes
    result: TensorRef


class FetchAnswer(_Message, tag=20, frozen=True, array_like=True):
    """Have the result of a committed round."""

    opened: Open
    close: Close
    result: TensorRef


class Post(_Message, tag=21, frozen=True, array_like=True):
    """Offer a message to another cluster."""

    body: TensorRef
    shapes: bytes
    target: ClusterId
    tag: int
    timeout: float


class Receive(_Message, tag=22, frozen=True, array_like=True):
    """Ask another cluster for a message."""

    room: TensorRef
    shapes: bytes
    source: ClusterId
    tag: int
    timeout: float


class Cancel(_Message, tag=23, frozen=True, array_like=True):
    """The request of this number is not waited for any more. Not answered."""


class Map(_Message, tag=24, frozen=True, array_like=True):
    """Shared memory, whose descriptor comes along. Not answered."""

    region: _Number
    size: _Number


class Unmap(_Message, tag=25, frozen=True, array_like=True):
    """It is not needed any more. Not answered."""

    region: _Number


class Answered(_Message, tag=26, frozen=True, array_like=True):
    """The answer to the question of this number."""

    value: msgspec.Raw


class Refused(_Message, tag=27, frozen=True, array_like=True):
    """The question of this number has no answer."""

    failure: Failure


ToPeer = (
    Begin
    | Start
    | Leave
    | View
    | Note
    | Where
    | Equip
    | Wants
    | Boundary
    | GroupFailed
    | SetTraining
    | Offer
    | Holds
    | FetchState
    | Reduce
    | GiveUp
    | Waiting
    | TakingPart
    | HoldAnswer
    | FetchAnswer
    | Post
    | Receive
    | Cancel
    | Map
    | Unmap
    | Answered
    | Refused
)


# ------------------------------------------------------------ to the training program


class Reply(_Message, tag=40, frozen=True, array_like=True):
    """The answer to the request of this number."""

    value: msgspec.Raw


class Failed(_Message, tag=41, frozen=True, array_like=True):
    """The request of this number failed."""

    failure: Failure


class Facts(_Message, tag=42, frozen=True, array_like=True):
    """What may be read without asking; sent whenever it has changed, ahead of what is said knowing it."""

    leader: PeerId | None = None
    clusters: int = 0
    host: str = ""
    address: str = ""
    agreed: StateRef | None = None


class Told(_Message, tag=43, frozen=True, array_like=True):
    """An event of the peer's telemetry."""

    kind: str
    fields: dict[str, Any]


class Readiness(_Message, tag=44, frozen=True, array_like=True):
    """News: see `handle.Asking`."""

    ready: bool


class Rostered(_Message, tag=45, frozen=True, array_like=True):
    """News: see `handle.Regrouped`, and `handle.LeftOut` where nobody is said to be well."""

    roster: Roster
    well: tuple[str, ...] | None


class Newcomer(_Message, tag=46, frozen=True, array_like=True):
    """News: see `handle.NewcomerWaits`."""


class Gone(_Message, tag=47, frozen=True, array_like=True):
    """News: see `handle.WorkerGone`."""

    worker: str
    status: str


class Advanced(_Message, tag=48, frozen=True, array_like=True):
    """News: see `sync.notices.StateAdvanced`."""

    ref: StateRef


class Decision(_Message, tag=49, frozen=True, array_like=True):
    """News: see `sync.agreement.Decided`."""

    slot: int
    value: Value


class Ending(_Message, tag=50, frozen=True, array_like=True):
    """News: see `handle.Ended`."""

    failure: Failure


class Restarted(_Message, tag=51, frozen=True, array_like=True):
    """An attempt at the contribution of this number begins."""

    attempt: int
    parts: tuple[Participant, ...]


class Progress(_Message, tag=52, frozen=True, array_like=True):
    """Some of its elements hold their result."""

    start: int
    stop: int


class Over(_Message, tag=53, frozen=True, array_like=True):
    """Nothing refers to its tensors any more."""


class Complete(_Message, tag=54, frozen=True, array_like=True):
    """A question: all outputs of a contribution hold their result; what is the digest?"""

    request: int


class WantsModules(_Message, tag=55, frozen=True, array_like=True):
    """A question: what is agreed of these modules, as tensors?"""

    request: int
    keys: tuple[bytes, ...]


class WantsManifest(_Message, tag=56, frozen=True, array_like=True):
    """A question: the manifest of the state that is served."""

    digest: bytes


class WantsChunk(_Message, tag=57, frozen=True, array_like=True):
    """A question: a chunk of it."""

    digest: bytes
    index: int


class Expect(_Message, tag=58, frozen=True, array_like=True):
    """A question: which chunks are missing of the state that a receiver is to have? Answered with its manifest."""

    request: int
    encoded: bytes
    digest: bytes


class Take(_Message, tag=59, frozen=True, array_like=True):
    """A chunk for a receiver. Not answered."""

    request: int
    index: int
    data: bytes


class Verify(_Message, tag=60, frozen=True, array_like=True):
    """A question: has the receiver all of it?"""

    request: int
    version: int


ToTraining = (
    Reply
    | Failed
    | Facts
    | Told
    | Readiness
    | Rostered
    | Newcomer
    | Gone
    | Advanced
    | Decision
    | Ending
    | Restarted
    | Progress
    | Over
    | Complete
    | WantsModules
    | WantsManifest
    | WantsChunk
    | Expect
    | Take
    | Verify
)

_encoder = msgspec.msgpack.Encoder(enc_hook=str)
_to_peer: msgspec.msgpack.Decoder[ToPeer] = msgspec.msgpack.Decoder(ToPeer)
_to_training: msgspec.msgpack.Decoder[ToTraining] = msgspec.msgpack.Decoder(ToTraining)


def encode(number: int, message: Any) -> bytes:
    """One frame.

    Raises:
        LocalProtocolError: it would be longer than `MOST`.
    """
    body = _encoder.encode(message)
    if len(body) > MOST:
        raise LocalProtocolError(f"a {type(message).__name__} of {len(body)} bytes is longer than {MOST}")
    return HEADER.pack(len(body), number) + body


def raw(value: Any) -> msgspec.Raw:
    """A value of any type, to be decoded by who knows which."""
    return msgspec.Raw(_encoder.encode(value))


def to_peer(body: bytes | memoryview) -> ToPeer:
    """Decode what a training program says.

    Raises:
        LocalProtocolError: it does not decode.
    """
    try:
        return _to_peer.decode(body)
    except MALFORMED as error:
        raise _garbled(error) from error


def to_training(body: bytes | memoryview) -> ToTraining:
    """Decode what a peer says.

    Raises:
        LocalProtocolError: it does not decode.
    """
    try:
        return _to_training.decode(body)
    except MALFORMED as error:
        raise _garbled(error) from error


def checked(header: bytes) -> tuple[int, int]:
    """Length of a body, and number.

    Raises:
        LocalProtocolError: the length cannot be.
    """
    length, number = HEADER.unpack(header)
    if length > MOST:
        raise LocalProtocolError(f"a frame of {length} bytes was announced between a peer and its training program")
    return length, number


class Frames:
    """Takes bytes as they come, and gives whole frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def take(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Numbers and bodies of the frames that are complete now.

        Raises:
            LocalProtocolError: a length cannot be.
        """
        self._held += data
        start = 0
        while len(self._held) - start >= HEADER.size:
            length, number = checked(bytes(self._held[start : start + HEADER.size]))
            first = start + HEADER.size
            if len(self._held) - first < length:
                break
            yield number, bytes(self._held[first : first + length])
            start = first + length
        del self._held[:start]


def _garbled(error: Exception) -> LocalProtocolError:
    return LocalProtocolError(f"a message between a peer and its training program does not decode: {error}")
