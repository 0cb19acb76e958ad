"""What a protocol is, here: a pure machine that is told things and answers with effects.

No machine knows asyncio, a clock, a socket, torch or the `random` module. Time arrives as `now` (monotonic
seconds), chance as an injected `random.Random`, and what a machine wants done leaves as values: `Send`,
`Persist`, or a `Notice` for the floor above. The same machine therefore runs under hypothesis, in the
simulator and on real sockets, and a schedule that broke it once can be replayed forever. The shape is
aioquic's (`receive_datagram(..., now)`, `get_timer()`, `handle_timer(now)`) and quinn's.

Three rules make effects safe to execute in order:

1. A `Persist` is on disk before any `Send` that follows it in the list leaves (an acceptor that forgets its
   promise breaks Paxos).
2. Effects are executed in list order, and a machine never assumes that one succeeded: sends may be lost,
   repeated, or reordered between different pairs.
3. `next_timeout()` may be asked at any time; calling `handle_timeout()` early or late is harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of what travels: a positional MessagePack array, `[tag, field, field, ...]`.

    Subclasses pass `tag=<int>`, unique within their room. Fields are append-only and a new one has a
    default, so that an older peer's message still decodes and a newer peer's surplus fields are ignored.
    """


class Send(msgspec.Struct, frozen=True):
    """Deliver `message` to a peer (or, in a mesh-wide machine, to the leader of a cluster), best effort."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Persist:
    """Have `value` on disk under `key` before any later `Send` leaves. The last write of a key wins.

    A machine says so with each answer that relies on it; what is there already costs no write (`runtime.driver`).
    """

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Notice:
    """Base of what a machine tells the floor above; subclasses are named in the past tense."""


Effect = Send | Persist | Notice
Effects = list[Effect]


class Machine(Protocol):
    """The inputs and outputs that the driver relies on; other inputs are named methods of each machine."""

    def receive(self, sender: str, message: Message, now: float) -> Effects:
        """Take a message that arrived from `sender` (authenticated) at `now`."""
        ...

    def handle_timeout(self, now: float) -> Effects:
        """Do whatever has become due by `now`."""
        ...

    def next_timeout(self) -> float | None:
        """Say when `handle_timeout` is next wanted: a time in seconds, or None."""
        ...


def earliest(times: Sequence[float | None]) -> float | None:
    """The soonest of several `next_timeout()` answers, or None if none wants to be called."""
    soonest = None
    for time in times:
        if time is not None and (soonest is None or time < soonest):
            soonest = time
    return soonest
