"""A connected socket to one of a host's addresses, of which some may lead nowhere (RFC 8305).

A name may stand for several addresses: IPv6 where only IPv4 works, a second line that is down. To try one after the
other means to wait for each that is silent. So every next attempt begins a quarter of a second after the one before, or
at once when one has failed, families in turns (section 4); the first connection that there is wins and all else is
ended (section 5). What races are bare sockets. Nothing is said on a connection before it has won, so the host at the
other end sees of the others at most that they came and went.

asyncio has the same behind `create_connection(happy_eyeballs_delay=)`, but uvloop has not.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import itertools
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from ictp2p.concurrency.forks import made_alone
from ictp2p.errors import lacking
from ictp2p.types import Address

T = TypeVar("T")
Place = tuple[int, str]
"""An address family, and a numeric host of it."""

_PAUSE = 0.25
"""Seconds from one attempt to the next, as section 5 recommends, unless so many addresses need a shorter one."""


async def reach(
    address: Address, timeout: float, prepare: Callable[[socket.socket, str], None] = lambda sock, host: None
) -> socket.socket:
    """Connect to the first address of a host that takes it; the caller ends it all after `timeout` seconds.

    `prepare` is given each socket before it says anything, with the numeric host that it is for.

    Raises:
        OSError: no address took it. One that was silent tells more than one that refused, and that more than any
            other: it may be the host that is meant.
    """
    found = await places(address)
    attempts = [functools.partial(_connect, place, address.port, prepare) for place in in_turns(found)]
    try:
        return await first_of(attempts, min(_PAUSE, timeout / (2 * len(attempts))), discard=socket.socket.close)
    except ExceptionGroup as failed:
        weightiest = max(failed.exceptions, key=_weight)
    try:
        raise weightiest  # out here: what is raised in there would know the group, and the group knows it
    finally:
        del weightiest


def _weight(error: Exception) -> tuple[bool, bool, bool]:
    return isinstance(error, TimeoutError), isinstance(error, ConnectionRefusedError), isinstance(error, OSError)


async def first_of(
    attempts: Iterable[Callable[[], Coroutine[Any, Any, T]]], pause: float, discard: Callable[[T], Any]
) -> T:
    """The result of the attempt that succeeds first; all others are ended, whatever ends this one.

    Args:
        attempts: at least one, the best first.
        pause: seconds from one to the next, if none fails before.
        discard: given each result that came too late.

    Raises:
        ExceptionGroup: of an `Exception` for each attempt, in the order in which they failed: none succeeded.
    """
    running: dict[asyncio.Task[T], None] = {}
    try:
        return await _race(deque(attempts), pause, running)
    finally:
        for task in running:
            task.cancel()
            task.add_done_callback(functools.partial(_dispose, discard))


async def _race(
    waiting: deque[Callable[[], Coroutine[Any, Any, T]]], pause: float, running: dict[asyncio.Task[T], None]
) -> T:
    errors: list[Exception] = []
    while waiting or running:
        if waiting:
            running[asyncio.get_running_loop().create_task(waiting.popleft()())] = None
        await asyncio.wait(running, timeout=pause if waiting else None, return_when=asyncio.FIRST_COMPLETED)
        for task in [task for task in running if task.done()]:
            del running[task]
            error = task.exception()
            if error is None:
                return task.result()
            if not isinstance(error, Exception):
                raise error
            errors.append(error)
    raise ExceptionGroup("every attempt failed", errors)


def _dispose(discard: Callable[[T], Any], task: asyncio.Task[T]) -> None:
    if not task.cancelled() and task.exception() is None:
        discard(task.result())


async def _connect(place: Place, port: int, prepare: Callable[[socket.socket, str], None]) -> socket.socket:
    family, host = place
    sock = made_alone(lambda: socket.socket(family, socket.SOCK_STREAM))
    try:
        sock.setblocking(False)
        prepare(sock, host)
        await asyncio.get_running_loop().sock_connect(sock, (host, port))
    except BaseException:
        sock.close()
        raise
    return sock


def in_turns(found: Iterable[Place]) -> list[Place]:
    """Both families in turns, each in its order, the first one's first."""
    families: dict[int, list[Place]] = {}
    for place in found:
        families.setdefault(place[0], []).append(place)
    rounds = itertools.zip_longest(*families.values())
    return [place for turn in rounds for place in turn if place is not None]


async def places(address: Address) -> list[Place]:
    """The addresses of a host, with their families, the best first (RFC 6724); its own if that is what it is called."""
    try:
        return [_written(ipaddress.ip_address(address.host))]
    except ValueError:
        return list(dict.fromkeys((family, _numeric(where)) for family, where in await look_up(address)))


async def look_up(address: Address, flags: int = 0) -> list[tuple[int, tuple[Any, ...]]]:
    """The addresses of a host as sockets take them, each with its family.

    Raises:
        OSError: there is no such host, or no thread to look it up in: asyncio's loop needs one, and passes on what
            `threading` says when a process may have no more of them.
        ValueError: what cannot even be looked up, as in "a..b".
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=flags)
    except RuntimeError as error:
        if lacking(error):
            raise OSError(str(error)) from error
        raise
    return [(family, where) for family, _, _, _, where in found]


def _written(host: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Place:
    """An address as connections show it (RFC 5952), in whichever of its ways it was written."""
    host = getattr(host, "ipv4_mapped", None) or host
    return (socket.AF_INET6 if host.version == 6 else socket.AF_INET), str(host)


def _numeric(where: tuple[Any, ...]) -> str:
    """The address, with its link if it means something on that alone (RFC 4007)."""
    scope = where[3] if len(where) > 3 else 0
    return f"{where[0]}%{scope}" if scope else str(where[0])
