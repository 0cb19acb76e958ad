"""One attempt at a collective, whatever it does: attach, let it work, and end it everywhere if it fails here.

What a caller may rely on:

- **All or an exception.** A participant that dies, stalls, or gives up ends the call everywhere within the stall
  deadline: whoever notices tells its neighbours, and each passes it on once. So do attempts that are parts of one call
  (`together`): who fails in one of them is to blame for what becomes of the others.
- When the call ends, in either way, nothing refers to the caller's tensors any more. When it returns, the kernel has
  all that others need from us: they can finish even if this process does nothing but compute from then on. What a
  connection takes with it that breaks once we need nothing from there is missed at its other end, whose call fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ictp2p.collectives.channel import (
    Attachment,
    CallsDiffer,
    CollectiveTimeout,
    Links,
    ParticipantLost,
    Receiver,
    RoundTag,
)
from ictp2p.types import PeerId

T = TypeVar("T")
_CHATTER = 4096
"""Bytes in the time to begin that say no more than that somebody is still there."""
_TIMES = 8
"""How often a neighbour that brings something else may have the time to begin."""
_BEFORE = 0.1
"""Of the time to begin: before it is counted what they bring. Most attempts have ended by then."""


@dataclass(frozen=True, slots=True)
class ExecuteProfile:
    """Deadlines of one collective, in seconds. The stall deadline belongs to the connections (`BulkProfile`)."""

    connect: float = 10.0
    """To reach all neighbours, dialing included. Longer tolerates slower dials and delays the next attempt."""
    start: float = 10.0
    """For all neighbours to begin the same attempt; they learn of it from the control plane."""
    total: float = 3600.0
    """For the whole collective, reaching the neighbours included. A safety net: a participant that makes no progress is
    found by its stall."""
    pace: bool = False
    """Pace each edge at the plan's own rate, so that parallel flows share a link as planned. Sharing without pacing
    cost up to 21 % in a fluid model; worth it where bandwidths were measured, harmful where they were guessed."""


class Part(Receiver, Protocol):
    """One participant's part in a collective."""

    ended: asyncio.Future[None]
    """Done when nothing is left to be sent or received; failed with whom the collective was lost on."""

    @property
    def peers(self) -> Sequence[PeerId]:
        """With whom it exchanges anything."""
        ...

    def rates(self) -> Sequence[float | None] | None:
        """Give each neighbour's planned rate in bytes/s; None: they have none."""
        ...

    def attached(self, attachment: Attachment) -> None:
        """All neighbours are connected: let what can leave leave."""
        ...

    def detached(self) -> None:
        """It is over. Forget the connections, which know us, and the error, whose frames do.

        In a cycle the tensors would stay until the garbage collector comes, which may be in hours.
        """
        ...

    async def work(self) -> None:
        """Do what nobody else is needed for, and wait for `ended`."""
        ...

    def silent(self) -> Sequence[PeerId]:
        """Name the neighbours that have not begun."""
        ...

    def owing(self) -> list[PeerId]:
        """Name whom is waited for: those that have not begun, or else those that owe something."""
        ...


class AnyPart:
    """What all parts have in common: how they end."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._attachment: Attachment | None = None

    def detached(self) -> None:
        """As `Part`."""
        self._attachment = None
        self.ended = self.ended.get_loop().create_future()
        self.ended.cancel()

    def broke(self, error: Exception) -> None:
        """As `channel.Receiver`."""
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # whoever waited may have gone: that is no news to the event loop


async def carry_out(
    part: Part, links: Links, tag: RoundTag, profile: ExecuteProfile, whole: bytes | None = None
) -> None:
    """Carry out an attempt.

    Args:
        part: what it is to us.
        links: the connections.
        tag: fences it.
        profile: deadlines.
        whole: what each neighbour gets from us, if that is all there is.

    Raises:
        ParticipantLost: a participant died, stalled or gave up; `suspects` names it.
        CollectiveTimeout: it did not end in time.
        CallsDiffer: a participant calls something else under this tag.
    """
    rates = part.rates() if profile.pace else None
    over = asyncio.get_running_loop().time() + profile.total
    try:
        attachment = await links.attach(
            tag.wire(),
            part,
            part.peers,
            timeout=profile.connect,
            rates=rates,
            whole=whole,
            call=tag.call,
            beside=tag.beside,
        )
    except asyncio.CancelledError as error:
        links.give_up(tag.wire(), *_why(_cause(error)))  # or whoever has begun would wait for us, and suspect us
        raise
    try:
        await _conclude(part, attachment, profile, over)
    except BaseException as error:
        await _abort(attachment, _cause(error))  # which no variable here knows: its frames know this one
        raise
    else:
        attachment.detach()
    finally:
        part.detached()


async def together(attempts: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Carry out several attempts at once, and give what they return; the first that fails ends the others.

    Their neighbours are told why, and of whom that one suspects: whoever ends an attempt for it is not to blame.

    Raises:
        BaseException: what the first raised.
    """
    tasks = [asyncio.ensure_future(each) for each in attempts]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for each in tasks:
            if each.done():
                each.result()
        return [each.result() for each in tasks]
    except BaseException as error:
        for each in tasks:
            each.cancel(error)
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    finally:
        del tasks  # an error knows its frames: they must not know who knows the error


def _cause(error: BaseException) -> BaseException:
    """Why an attempt ended with `error`: perhaps for what became of another that was a part of the same call."""
    given = error.args[0] if isinstance(error, asyncio.CancelledError) and error.args else error
    return given if isinstance(given, BaseException) else error


def _abort(attachment: Attachment, cause: BaseException) -> Coroutine[Any, Any, None]:
    """Tell the neighbours of an attempt why it ended, and whom we suspect."""
    return attachment.abort(*_why(cause), differ=isinstance(cause, CallsDiffer))


def _why(cause: BaseException) -> tuple[str, Sequence[PeerId]]:
    """What neighbours are told of a cause, and whom we suspect for it."""
    if isinstance(cause, ParticipantLost | CollectiveTimeout | CallsDiffer):
        return str(cause), cause.suspects
    return f"gave up: {type(cause).__name__}", ()


async def _conclude(part: Part, attachment: Attachment, profile: ExecuteProfile, over: float) -> None:
    loop = asyncio.get_running_loop()
    part.attached(attachment)
    starting = _Start(part, attachment, profile.start) if profile.start < profile.total else None
    ending = loop.call_at(over, _expire, part, profile.total)
    try:
        await part.work()
        await attachment.flushed(over - loop.time())
    except TimeoutError:
        raise CollectiveTimeout(f"not all had left within {profile.total:g} s", ()) from None
    finally:
        if starting is not None:
            starting.cancel()
        ending.cancel()


class _Start:
    """The time in which all neighbours have to begin.

    On a slow line their word may stand behind what was sent before, of attempts that failed or of probes. To give this
    one up would put more there. So who brings something else has that time again, so often and no more (`_TIMES`).
    """

    def __init__(self, part: Part, attachment: Attachment, seconds: float) -> None:
        self._part = part
        self._attachment = attachment
        self._seconds = seconds
        self._times = 1
        self._brought: dict[PeerId, int] = {}
        self._timer = asyncio.get_running_loop().call_later(_BEFORE * seconds, self._count)

    def cancel(self) -> None:
        """The attempt is over."""
        self._timer.cancel()

    def _count(self) -> None:
        self._brought = self._by_now()
        self._timer = asyncio.get_running_loop().call_later((1 - _BEFORE) * self._seconds, self._look)

    def _by_now(self) -> dict[PeerId, int]:
        return {peer: self._attachment.received(peer) for peer in self._part.silent()}

    def _look(self) -> None:
        if not self._part.silent():
            return
        before, self._brought = self._brought, self._by_now()
        if self._times < _TIMES and all(count > before[peer] + _CHATTER for peer, count in self._brought.items()):
            self._times += 1
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)
            return
        _check_start(self._part, self._seconds * self._times)


def _check_start(part: Part, seconds: float) -> None:
    if part.silent():
        _fail(part, f"{', '.join(part.owing())} did not begin within {seconds:g} s")


def _expire(part: Part, seconds: float) -> None:
    _check_start(part, seconds)
    _fail(part, f"not finished after {seconds:g} s, waiting for {', '.join(part.owing())}")


def _fail(part: Part, reason: str) -> None:
    part.broke(CollectiveTimeout(reason, part.owing()))
