"""What routing machines say to each other: three messages, each of which carries many items.

A router in a mesh of N clusters knows up to N times the number of classes routes, and most classes of a
destination share one path, hence one distance. Items therefore name a range of classes: a whole table is
about N items, and a lost link is one message per neighbour.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from ictp2p.machine import Message
from ictp2p.routing.algebra import INFINITY

Key = tuple[str, int]
"""A destination (cluster id) and a bandwidth class: what one route leads to."""

CHECKSUM = 2**32 - 1
"""The largest checksum."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
Class = Annotated[int, msgspec.Meta(ge=0, le=31)]
HIGHEST = 2**62
"""The highest sequence number that is advertised: the next one may be asked for, and has to fit in MessagePack."""

Seqno = Annotated[int, msgspec.Meta(ge=0, le=HIGHEST)]
Metric = Annotated[int, msgspec.Meta(ge=0, le=INFINITY)]
Hops = Annotated[int, msgspec.Meta(ge=0, le=255)]


class Advert(msgspec.Struct, frozen=True, array_like=True):
    """One destination's distance in the classes `first` to `last`. `INFINITY` retracts."""

    destination: Name
    first: Class
    last: Class
    seqno: Seqno
    metric: Metric


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """Please have `destination` advertised with at least `seqno`, in the classes `first` to `last`."""

    destination: Name
    first: Class
    last: Class
    seqno: Annotated[int, msgspec.Meta(ge=0, le=HIGHEST + 1)]
    hops: Hops


class Update(Message, tag=1, frozen=True, array_like=True):
    """Routes of the sender (RFC 8966 §4.6.9). If `full`, it has no others: what is not listed is retracted."""

    adverts: Annotated[tuple[Advert, ...], msgspec.Meta(max_length=65536)]
    full: bool = False
    number: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] = 0
    """Updates to this neighbour before it: a gap shows that one was lost, and no full one counts after a later one."""
    held: Annotated[int, msgspec.Meta(ge=0, le=CHECKSUM)] | None = None
    """In a periodic one: `checksum` of the routes that the neighbour holds of ours once it has taken this in."""


class SeqnoRequest(Message, tag=2, frozen=True, array_like=True):
    """Requests for fresher sequence numbers (RFC 8966 §4.6.11), answered by updates, hop by hop."""

    wanted: Annotated[tuple[Wanted, ...], msgspec.Meta(max_length=65536)]


class RouteRequest(Message, tag=3, frozen=True, array_like=True):
    """Please send a full update (RFC 8966 §4.6.10, the wildcard request)."""


def runs(cells: Iterable[tuple[Key, tuple[int, int]]]) -> Iterator[tuple[str, int, int, int, int]]:
    """Join neighbouring classes that say the same, as (destination, first, last, *value).

    Args:
        cells: ((destination, class), value) sorted by key.
    """
    destination, first, last = "", 0, -2
    value = (0, 0)
    for (name, traffic_class), told in cells:
        if name == destination and traffic_class == last + 1 and told == value:
            last = traffic_class
            continue
        if last >= 0:
            yield destination, first, last, *value
        destination, first, last, value = name, traffic_class, traffic_class, told
    if last >= 0:
        yield destination, first, last, *value


def checksum(routes: Iterable[Key]) -> int:
    """A number that tells two sets of routes apart, but for one pair in four thousand millions; the sum of theirs."""
    return sum(map(mark, routes)) & CHECKSUM


@functools.lru_cache(16384)
def mark(route: Key) -> int:
    """One route's part of a checksum."""
    return zlib.crc32(f"{route[1]}{route[0]}".encode())


def keys(item: Advert | Wanted, classes: int) -> tuple[Key, ...]:
    """The routes that an item speaks of, as far as this router knows the classes."""
    return _keys(item.destination, item.first, min(item.last + 1, classes))


@functools.lru_cache(16384)  # most items say something new of what was spoken of before
def _keys(destination: str, first: int, stop: int) -> tuple[Key, ...]:
    return tuple((destination, k) for k in range(first, stop))
