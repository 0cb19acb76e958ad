"""What a training program says to its peer: requests, notes, shared memory, and answers to the peer's questions."""

from __future__ import annotations

from typing import Any

import msgspec

from ictp2p.config import Config
from ictp2p.handle.messages import Failure, Number, TensorRef, Words, decoded
from ictp2p.sync.rosters.devices import Device
from ictp2p.sync.rosters.presence import Stage
from ictp2p.sync.rosters.roster import Breach, Generation
from ictp2p.sync.values import Close, Open, Spec, StateRef
from ictp2p.types import ClusterId


class Begin(Words, tag=1, frozen=True, array_like=True):
    """The first message: make the peer. Answered by its id."""

    config: Config


class Start(Words, tag=2, frozen=True, array_like=True):
    """Join the mesh."""


class Leave(Words, tag=3, frozen=True, array_like=True):
    """Leave it."""


class HandOver(Words, tag=29, frozen=True, array_like=True):
    """Before that: have others hold the agreed state."""


class View(Words, tag=4, frozen=True, array_like=True):
    """See something; answered by plain data."""

    name: str


class Note(Words, tag=5, frozen=True, array_like=True):
    """Note an event. Not answered."""

    kind: str
    fields: dict[str, Any]


class Where(Words, tag=6, frozen=True, array_like=True):
    """Where the worker is in its life. Not answered."""

    state: str
    inside: dict[str, str]


class Equip(Words, tag=7, frozen=True, array_like=True):
    """What training computes on."""

    device: Device


class Wants(Words, tag=8, frozen=True, array_like=True):
    """Whether a training thread wants into the group."""

    ready: bool
    device: Device
    calls: bool


class Boundary(Words, tag=9, frozen=True, array_like=True):
    """Everybody stands before this step."""

    step: int


class GroupFailed(Words, tag=10, frozen=True, array_like=True):
    """The group of that generation broke here."""

    generation: Generation
    breach: Breach


class Attends(Words, tag=28, frozen=True, array_like=True):
    """What the training thread is at. Not answered."""

    stage: Stage
    generation: Generation


class SetTraining(Words, tag=11, frozen=True, array_like=True):
    """Whether rounds should wait for this cluster."""

    training: bool


class Offer(Words, tag=12, frozen=True, array_like=True):
    """Offer a state."""

    digest: bytes


class Holds(Words, tag=13, frozen=True, array_like=True):
    """What others can have here (`restore.Stock`). Not answered; the first serves it from now on."""

    version: int
    digest: bytes
    sealed: bytes


class FetchState(Words, tag=14, frozen=True, array_like=True):
    """Receive a state; the request's number names the receiver in the peer's questions."""

    ref: StateRef
    own: bool


class Reduce(Words, tag=15, frozen=True, array_like=True):
    """Bring a contribution; the request's number names it in what is told of its attempts."""

    spec: Spec
    base: StateRef
    weight: float
    inputs: tuple[TensorRef, ...]
    outputs: tuple[TensorRef, ...]
    patient: bool
    slack: float
    newcomer: bool
    note: bytes
    among: tuple[ClusterId, ...]


class GiveUp(Words, tag=16, frozen=True, array_like=True):
    """Fail the contribution that stands."""


class Waiting(Words, tag=17, frozen=True, array_like=True):
    """What is waited for."""


class TakingPart(Words, tag=18, frozen=True, array_like=True):
    """Which clusters rounds wait for."""


class HoldAnswer(Words, tag=19, frozen=True, array_like=True):
    """Keep a result for whoever asks. Not answered."""

    digest: bytes
    result: TensorRef


class FetchAnswer(Words, tag=20, frozen=True, array_like=True):
    """Have the result of a committed round."""

    opened: Open
    close: Close
    result: TensorRef


class Post(Words, tag=21, frozen=True, array_like=True):
    """Offer a message to another cluster."""

    body: TensorRef
    shapes: bytes
    target: ClusterId
    tag: int
    timeout: float


class Receive(Words, tag=22, frozen=True, array_like=True):
    """Ask another cluster for a message."""

    room: TensorRef
    shapes: bytes
    source: ClusterId
    tag: int
    timeout: float


class Cancel(Words, tag=23, frozen=True, array_like=True):
    """The request of this number is not waited for any more. Not answered."""


class Map(Words, tag=24, frozen=True, array_like=True):
    """Shared memory, whose descriptor comes along. Not answered."""

    region: Number
    size: Number


class Unmap(Words, tag=25, frozen=True, array_like=True):
    """It is not needed any more. Not answered."""

    region: Number


class Answered(Words, tag=26, frozen=True, array_like=True):
    """The answer to the question of this number."""

    value: msgspec.Raw


class Refused(Words, tag=27, frozen=True, array_like=True):
    """The question of this number has no answer."""

    failure: Failure


ToPeer = (
    Begin
    | Start
    | Leave
    | HandOver
    | View
    | Note
    | Where
    | Equip
    | Wants
    | Boundary
    | GroupFailed
    | Attends
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

_decoder: msgspec.msgpack.Decoder[ToPeer] = msgspec.msgpack.Decoder(ToPeer)


def decode(body: bytes | memoryview) -> ToPeer:
    """Read what a training program says.

    Raises:
        LocalProtocolError: it does not decode.
    """
    return decoded(_decoder, body)
