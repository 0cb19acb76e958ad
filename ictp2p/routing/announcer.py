"""What the neighbours were told, and what they must be told next.

One memory per route serves all neighbours, because all are told the same, but for two: a route is not
advertised to its own next hop (split horizon, RFC 8966 §3.7.4). When the next hop changes, the new one gets a
retraction, if it ever heard of the route, and the old one gets the route, which is now a way around for it.

Urgency follows from what a late message would cost. A lost route sends packets into the void: told at once. A
found one, a new next hop or a metric that moved a lot: told soon, together with whatever else comes up. A
metric that moved a little: told with the next periodic update, which is all that this one has to say. A sequence
number that grew is no news at all (RFC 8966 §3.7.2 leaves it to the sender): whoever needs a fresh one asks for it,
and where one router asked, all routers would tell all others of a number that changes nobody's choice.

Before any finite distance leaves, it is entered in the source table. There is no other way out of this module.

A periodic update says which routes the neighbour should hold by now, as a checksum, and who holds others asks for
everything. So no mistake, here or there, outlives it, which the RFC has by repeating everything in each. It must not:
what was taken back, and is held nevertheless, is a loop as soon as feasibility distances are forgotten. What others
made of it meanwhile ends with the stale choice in each loop (`table`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from types import MappingProxyType
from typing import Final, NamedTuple

from ictp2p.machine import Send
from ictp2p.routing.algebra import INFINITY, Distance, significant
from ictp2p.routing.messages import CHECKSUM, Advert, Key, Update, mark, runs
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
        self._drifted: set[Key] = set()  # moved a little from what was told
        self._whispered: dict[Key, set[str]] = {}
        """Routes of which somebody was told something else than all, to be set right by the next refresh; and who was
        told by itself. Such a one hears of a route's end even if it was the next hop when all others were told."""
        self._numbers: dict[str, int] = {}
        """Of the last update to each neighbour."""
        self._highest = -1
        """Of the updates to all that are none any more. One that is again goes on above it, as one that is new does: it
        may not have noticed, and goes on counting."""

    def note(self, key: Key) -> Urgency:
        """A route may have changed: say how soon `changes` should be sent because of it."""
        told, current = self._told.get(key), self._current(key)
        urgency = self._urgency(key, told, current)
        self._dirty.discard(key)
        self._drifted.discard(key)
        if urgency:
            self._dirty.add(key)
        elif told and current and told.distance.metric != current.distance.metric:
            self._drifted.add(key)
        return urgency

    def changes(self, neighbours: Sequence[str], now: float) -> list[Send]:
        """Tell every neighbour what changed."""
        lines = [self._change(key, now) for key in sorted(self._dirty)]
        self._dirty.clear()
        return self._send(lines, neighbours, now)

    def refresh(self, neighbours: Sequence[str], now: float) -> list[Send]:
        """Tell every neighbour whatever differs from what it was told, however little; if nothing does, just that."""
        lines = [
            self._change(key, now, exactly=True) for key in sorted(self._dirty | self._drifted | self._whispered.keys())
        ]
        self._dirty.clear()
        self._drifted.clear()
        return self._send(lines, neighbours, now, held=self._held(neighbours))

    def stands(self, key: Key) -> bool:
        """Whether somebody was told of a route, and not of its end."""
        return key in self._told or key in self._whispered

    def greet(self, neighbour: str, routes: Iterable[Key], now: float) -> list[Send]:
        """Tell one neighbour everything."""
        return self._send(self._whisper(neighbour, routes), [neighbour], now, full=True)

    def part(self, neighbour: str) -> None:
        """Take it that one is no neighbour any more."""
        self._highest = max(self._highest, self._numbers.pop(neighbour, -1))

    def answer(self, neighbour: str, routes: Iterable[Key], now: float) -> list[Send]:
        """Tell one neighbour some routes that it asked for."""
        return self._send(self._whisper(neighbour, routes), [neighbour], now)

    def _urgency(self, key: Key, told: Told | None, current: Told | None) -> Urgency:
        if current is None:
            return Urgency.LATER if told is None and key not in self._whispered else Urgency.NOW
        if told is None or told.next_hop != current.next_hop:
            return Urgency.SOON
        moved = significant(told.distance.metric, current.distance.metric, self._significance)
        return Urgency.SOON if moved else Urgency.LATER

    def _change(self, key: Key, now: float, *, exactly: bool = False) -> _Line:
        """One dirty route's news, entered as told; `exactly`: also a little one."""
        told, current = self._told.get(key), self._current(key)
        apart = self._whispered.pop(key, set())
        if current is None:
            self._told.pop(key, None)
            self._sources.retract(key, now)
            unaware = None if told is None or told.next_hop in apart else told.next_hop
            return _Line(key, _RETRACTION, {} if unaware is None else {unaware: None})
        if told is None or exactly or significant(told.distance.metric, current.distance.metric, self._significance):
            self._told[key] = current
            everyone: Distance | None = current.distance
        else:
            self._told[key] = Told(told.distance, current.next_hop)
            self._whispered[key] = apart  # what the next hop of before hears now, the others do not
            everyone = None
        return _Line(key, everyone, _exceptions(told, current, apart))

    def _whisper(self, neighbour: str, routes: Iterable[Key]) -> list[_Line]:
        """What one neighbour is told, and note it where the others were told something else."""
        lines = self._lines(routes)
        for line in lines:
            told, metric = self._told.get(line.key), None if line.everyone is None else line.everyone.metric
            alike = told is not None and told.next_hop != neighbour and told.distance.metric == metric
            if not alike and neighbour not in line.exceptions:
                self._whispered.setdefault(line.key, set()).add(neighbour)
        return lines

    def _held(self, neighbours: Iterable[str]) -> dict[str, int]:
        """Checksums of what each neighbour holds: what all were told, but for ways through itself, and to itself."""
        everything, but = 0, dict.fromkeys(neighbours, 0)
        for key, told in self._told.items():
            part = mark(key)
            everything += part
            for neighbour in {key[0], told.next_hop or ""}:
                if neighbour in but:
                    but[neighbour] += part
        return {neighbour: (everything - part) & CHECKSUM for neighbour, part in but.items()}

    def _lines(self, routes: Iterable[Key]) -> list[_Line]:
        current = ((key, self._current(key)) for key in sorted(routes))
        return [
            _Line(key, told.distance, {} if told.next_hop is None else {told.next_hop: None})
            for key, told in current
            if told is not None
        ]

    def _send(
        self,
        lines: list[_Line],
        neighbours: Sequence[str],
        now: float,
        *,
        full: bool = False,
        held: Mapping[str, int] = MappingProxyType({}),
    ) -> list[Send]:
        for line in lines:
            for distance in (line.everyone, *line.exceptions.values()):
                if distance is not None and distance.metric < INFINITY:
                    self._sources.advertise(line.key, distance, now)
        few = len(neighbours) == 1
        blocks = [] if few else [_block(list(group)) for _, group in groupby(lines, key=lambda line: line.key[0])]
        sends = []
        for neighbour in neighbours:
            if few:
                adverts = _adverts((line.key, line.exceptions.get(neighbour, line.everyone)) for line in lines)
            else:
                adverts = [advert for b in blocks for advert in b.exceptions.get(neighbour, b.everyone)]
            if adverts or full or neighbour in held:
                number = self._numbers[neighbour] = self._numbers.get(neighbour, self._highest) + 1
                sends.append(Send(neighbour, Update(tuple(adverts), full, number, held.get(neighbour))))
        return sends


def _exceptions(told: Told | None, current: Told, apart: set[str]) -> dict[str, Distance | None]:
    """Who hears something else than everyone: the next hop of today and, if it changed, that of before.

    The next hop of today hears that we have no way for it, if it was told of one: with all others, or `apart`.
    """
    exceptions: dict[str, Distance | None] = {}
    if told is not None and told.next_hop is not None:
        exceptions[told.next_hop] = current.distance
    if current.next_hop is not None:
        poison = current.next_hop in apart or (told is not None and told.next_hop != current.next_hop)
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
