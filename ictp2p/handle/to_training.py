"""What a peer says to its training program: replies, news, how a contribution fares, and questions."""

from __future__ import annotations

from typing import Any

import msgspec

from ictp2p.handle.messages import Failure, Words, decoded
from ictp2p.sync.rosters.roster import Roster
from ictp2p.sync.values import Participant, StateRef, Value
from ictp2p.types import PeerId


class Reply(Words, tag=40, frozen=True, array_like=True):
    """The answer to the request of this number."""

    value: msgspec.Raw


class Failed(Words, tag=41, frozen=True, array_like=True):
    """The request of this number failed."""

    failure: Failure


class Facts(Words, tag=42, frozen=True, array_like=True):
    """What may be read without asking; sent whenever it has changed, ahead of what is said knowing it."""

    leader: PeerId | None = None
    clusters: int = 0
    address: str = ""
    agreed: StateRef | None = None
    lineage: bytes = b""


class Told(Words, tag=43, frozen=True, array_like=True):
    """An event of the peer's telemetry."""

    kind: str
    fields: dict[str, Any]


class Readiness(Words, tag=44, frozen=True, array_like=True):
    """News: see `handle.Asking`."""

    ready: bool


class Rostered(Words, tag=45, frozen=True, array_like=True):
    """News: see `handle.Regrouped`, and `handle.LeftOut` where nobody is said to be well."""

    roster: Roster
    well: tuple[str, ...] | None


class Newcomer(Words, tag=46, frozen=True, array_like=True):
    """News: see `handle.NewcomerWaits`."""


class Gone(Words, tag=47, frozen=True, array_like=True):
    """News: see `handle.WorkerGone`."""

    worker: str
    status: str


class Advanced(Words, tag=48, frozen=True, array_like=True):
    """News: see `sync.rounds.notices.StateAdvanced`."""

    ref: StateRef


class Decision(Words, tag=49, frozen=True, array_like=True):
    """News: see `sync.agreement.chain.Decided`."""

    slot: int
    value: Value


class Ending(Words, tag=50, frozen=True, array_like=True):
    """News: see `handle.Ended`."""

    failure: Failure


class Restarted(Words, tag=51, frozen=True, array_like=True):
    """An attempt at the contribution of this number begins."""

    attempt: int
    parts: tuple[Participant, ...]


class Progress(Words, tag=52, frozen=True, array_like=True):
    """Some of its elements hold their result."""

    start: int
    stop: int


class Over(Words, tag=53, frozen=True, array_like=True):
    """Nothing refers to its tensors any more."""


class Complete(Words, tag=54, frozen=True, array_like=True):
    """A question: all outputs of a contribution hold their result; what is the digest?"""

    request: int


class WantsModules(Words, tag=55, frozen=True, array_like=True):
    """A question: what is agreed of these modules, as tensors?"""

    request: int
    keys: tuple[bytes, ...]


class WantsManifest(Words, tag=56, frozen=True, array_like=True):
    """A question: the manifest of the state that is served."""

    digest: bytes


class WantsChunk(Words, tag=57, frozen=True, array_like=True):
    """A question: a chunk of it."""

    digest: bytes
    index: int


class Expect(Words, tag=58, frozen=True, array_like=True):
    """A question: which chunks are missing of the state that a receiver is to have? Answered with its manifest."""

    request: int
    encoded: bytes
    digest: bytes


class Take(Words, tag=59, frozen=True, array_like=True):
    """A chunk for a receiver. Not answered."""

    request: int
    index: int
    data: bytes


class Verify(Words, tag=60, frozen=True, array_like=True):
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

_decoder: msgspec.msgpack.Decoder[ToTraining] = msgspec.msgpack.Decoder(ToTraining)


def decode(body: bytes | memoryview) -> ToTraining:
    """Read what a peer says.

    Raises:
        LocalProtocolError: it does not decode.
    """
    return decoded(_decoder, body)
