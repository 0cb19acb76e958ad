"""What the neighbours were told, and what they must be told next.

One memory per route serves all neighbours, because all are told the same, but for two: a route is not
advertised to its own next hop (split horizon, RFC 8966 §3.7.4). When the next hop changes, the new one gets a
retraction, if it ever heard of the route, and the old one gets the route, which is now a way around for it.

Urgency follows from what a late message would cost. A lost route sends packets into the void: told at once. A
found one, a new next hop or a metric that moved a lot: told soon, together with whatever else comes up. A
metric that moved a little: told with the next dump.

Before any finite distance leaves, it is entered in the source table. There is no other way out of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import Final, NamedTuple

from ictp2p.machine import Send
from ictp2p.routing.algebra import INFINITY, Distance, significant
from ictp2p.routing.messages import Advert, Key, Update, runs
from ictp2p.routing.sources import SourceTable

_RETRACTION: Final = Distance(0, INFINITY)


class Told(NamedTuple):
    """A route as it is advertised: its distance, and the neighbour that must not hear it."""

    distance: Distance
    next_hop: str | None


class Urgency(IntEnum):
    """When a change must be told."""

    LATER = 0
    SOON = 1
    NOW = 2


@dataclass(frozen=True, slots=True)
class _Line:
    """One route's news: for everyone, and for the few who hear something else (None: nothing)."""

    key: Key
    everyone: Distance | None
    exceptions: dict[str, Distance | None]


@dataclass(frozen=True, slots=True)
class _Block:
    """One destination's news, packed."""

    everyone: list[Advert]
    exceptions: dict[str, list[Advert]]


class Announcer:
    """Builds updates, and keeps the source table in step with them."""

    def __init__(self, current: Callable[[Key], Told | None], sources: SourceTable, significance: float) -> None:
        self._current = current
        self._sources = sources
        self._significance = significance
        self._told: dict[Key, Told] = {}
        self._dirty: set[Key] = set()
        self._whispered: set[Key] = set()  # told to somebody, not yet to all: to be retracted all the same

    def note(self, key: Key) -> Urgency:
        """A route may have changed: say how soon `changes` should be sent because of it."""
        urgency = self._urgency(key, self._told.get(key), self._current(key))
        if urgency:
            self._dirty.add(key)
        else:
            self._dirty.discard(key)
        return urgency

    def changes(self, neighbours: Sequence[str], now: float) -> list[Send]:
        """Tell every neighbour what changed."""
        lines = [self._change(key) for key in sorted(self._dirty)]
        self._dirty.clear()
        return self._send(lines, neighbours, now, full=False)

    def dump(self, routes: Iterable[Key], neighbours: Sequence[str], now: float) -> list[Send]:
        """Tell every neighbour everything."""
        current = ((key, self._current(key)) for key in routes)
        self._told = {key: told for key, told in current if told is not None}
        self._dirty.clear()
        self._whispered.clear()
        return self._send(self._lines(self._told), neighbours, now, full=True)

    def greet(self, neighbour: str, routes: Iterable[Key], now: float) -> list[Send]:
        """Tell one neighbour everything."""
        return self._send(self._whisper(routes), [neighbour], now, full=True)

    def answer(self, neighbour: str, routes: Iterable[Key], now: float) -> list[Send]:
        """Tell one neighbour some routes that it asked for."""
        return self._send(self._whisper(routes), [neighbour], now, full=False)

    def _urgency(self, key: Key, told: Told | None, current: Told | None) -> Urgency:
        if current is None:
            return Urgency.LATER if told is None and key not in self._whispered else Urgency.NOW
        if told is None or told.next_hop != current.next_hop:
            return Urgency.SOON
        moved = significant(told.distance.metric, current.distance.metric, self._significance)
        return Urgency.SOON if moved else Urgency.LATER

    def _change(self, key: Key) -> _Line:
        """One dirty route's news, entered as told."""
        told, current = self._told.get(key), self._current(key)
        self._whispered.discard(key)
        if current is None:
            self._told.pop(key, None)
            return _Line(key, _RETRACTION, {} if told is None or told.next_hop is None else {told.next_hop: None})
        if told is None or significant(told.distance.metric, current.distance.metric, self._significance):
            self._told[key] = current
            everyone: Distance | None = current.distance
        else:
            self._told[key] = Told(told.distance, current.next_hop)
            everyone = None
        return _Line(key, everyone, _exceptions(told, current))

    def _whisper(self, routes: Iterable[Key]) -> list[_Line]:
        lines = self._lines(routes)
        self._whispered.update(line.key for line in lines if line.key not in self._told)
        return lines

    def _lines(self, routes: Iterable[Key]) -> list[_Line]:
        current = ((key, self._current(key)) for key in sorted(routes))
        return [
            _Line(key, told.distance, {} if told.next_hop is None else {told.next_hop: None})
            for key, told in current
            if told is not None
        ]

    def _send(self, lines: list[_Line], neighbours: Sequence[str], now: float, *, full: bool) -> list[Send]:
        for line in lines:
            for distance in (line.everyone, *line.exceptions.values()):
                if distance is not None and distance.metric < INFINITY:
                    self._sources.advertise(line.key, distance, now)
        blocks = [_block(list(group)) for _, group in groupby(lines, key=lambda line: line.key[0])]
        sends = []
        for neighbour in neighbours:
            adverts = [advert for b in blocks for advert in b.exceptions.get(neighbour, b.everyone)]
            if adverts or full:
                sends.append(Send(neighbour, Update(tuple(adverts), full)))
        return sends


def _exceptions(told: Told | None, current: Told) -> dict[str, Distance | None]:
    """Who hears something else than everyone: the next hop of today and, if it changed, that of before."""
    exceptions: dict[str, Distance | None] = {}
    if told is not None and told.next_hop is not None:
        exceptions[told.next_hop] = current.distance
    if current.next_hop is not None:
        poison = told is not None and told.next_hop != current.next_hop
        exceptions[current.next_hop] = _RETRACTION if poison else None
    return exceptions


def _block(lines: list[_Line]) -> _Block:
    """Pack one destination's lines, once for everyone and once for each who hears something else."""
    special = sorted({neighbour for line in lines for neighbour in line.exceptions})
    return _Block(
        _adverts((line.key, line.everyone) for line in lines),
        {n: _adverts((line.key, line.exceptions.get(n, line.everyone)) for line in lines) for n in special},
    )


def _adverts(cells: Iterable[tuple[Key, Distance | None]]) -> list[Advert]:
    return [Advert(*run) for run in runs((key, distance) for key, distance in cells if distance is not None)]
