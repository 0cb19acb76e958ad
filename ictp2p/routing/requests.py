"""Requests for fresher sequence numbers: ours, and those that we carry for others.

The feasibility condition can starve a router: it has offers, but none that it may trust. Only the destination
can help, with a fresh sequence number, and the request for it travels hop by hop towards the destination
(RFC 8966 §3.8.1.2, §3.8.2.1). Requests may die on the way, so whoever needs one repeats it, for as long as it
needs it; those who carry it keep no timers, hand a repeat to their next best neighbour, and hand on what is
still waited for when their own next hop changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ictp2p.machine import Send
from ictp2p.routing.messages import Key, SeqnoRequest, Wanted, runs
from ictp2p.routing.profile import RoutingProfile
from ictp2p.routing.sources import SourceTable
from ictp2p.routing.table import RouteTable


@dataclass(slots=True)
class _Need:
    urgent: bool
    due: float
    asked: int = 0


@dataclass(slots=True)
class _Waiter:
    seqno: int
    hops: int
    """That the request may still travel from here."""
    until: float
    repeats: int = 0


class Requests:
    """The table of pending requests (RFC 8966 §3.2.7)."""

    def __init__(self, table: RouteTable, sources: SourceTable, profile: RoutingProfile) -> None:
        self._table = table
        self._sources = sources
        self._profile = profile
        self._patience = sum(profile.retries) + profile.retries[-1]
        self._needs: dict[Key, _Need] = {}
        self._ask_at = inf
        """Before this nothing is due in `_needs`; the first may turn out to be due later."""
        self._waiting: dict[Key, dict[str, _Waiter]] = {}
        self._outbox: dict[str, dict[Key, tuple[int, int]]] = {}

    # Ours

    def review(self, key: Key, now: float) -> None:
        """Begin to ask for a route, at once if there is none, once things have settled if one is only worse."""
        if not self._table.lacks_freshness(key):
            self._needs.pop(key, None)
            return
        choice = self._table.chosen.get(key)
        urgent = choice is None or choice.stale
        known = self._needs.get(key)
        if known is None or (urgent and not known.urgent):
            due = now if urgent else now + self._profile.settle
            self._needs[key] = _Need(urgent, due)
            self._ask_at = min(self._ask_at, due)

    def ask(self, now: float) -> None:
        """Put what is due, and still needed, in the outbox: to the nearest few at first, then to all.

        What would be due soon goes along: one message asks for many routes.
        """
        if now < self._ask_at:
            return
        soon = now + self._profile.settle / 4
        for key in sorted(key for key, need in self._needs.items() if need.due <= (now if need.urgent else soon)):
            need, distance = self._needs[key], self._sources.distance(key)
            if distance is None or not self._table.lacks_freshness(key):
                del self._needs[key]
                continue
            fanout = None if need.asked else self._profile.fanout
            need.asked += 1
            need.due = now + self._profile.repeat_after(need.asked)
            for neighbour in self._table.nearest(key)[:fanout]:
                self._put(neighbour, key, distance.seqno + 1, self._profile.hop_limit)
        self._ask_at = min((need.due for need in self._needs.values()), default=inf)

    def next_timeout(self) -> float | None:
        """When `ask` next has something, or may have."""
        return self._ask_at if self._needs else None

    # Others'

    def carry(self, sender: str, key: Key, seqno: int, hops: int, now: float) -> None:
        """Pass a request on to one neighbour, unless an equal one is already on its way for somebody else.

        Where nobody offers a way there is nobody to ask, and nothing to remember; the first way is told to all anyway.
        """
        if not self._table.knows(key):
            return
        repeats = self._wait(key, sender, seqno, hops - 1, now)
        if repeats is None:
            return
        helpers = [neighbour for neighbour in self._helpers(key) if neighbour != sender]
        if helpers:
            self._put(helpers[repeats % len(helpers)], key, seqno, hops - 1)

    def follow(self, key: Key, now: float) -> None:
        """The next hop changed: hand the freshest request that is still waited for to the new one.

        The answer comes back on the way that the request went, and counts here only if it is of the route in use
        (`answered`). If that has moved on meanwhile, whoever asked would wait for its own repeat.
        """
        choice = self._table.chosen.get(key)
        waiting = {name: waiter for name, waiter in self._waiting.get(key, {}).items() if waiter.until > now}
        if choice is None or not waiting or choice.neighbour in waiting:
            return
        freshest = max(waiting.values(), key=lambda waiter: (waiter.seqno, waiter.hops))
        self._put(choice.neighbour, key, freshest.seqno, freshest.hops)

    def answered(self, key: Key, seqno: int) -> list[str]:
        """Take out the neighbours that this sequence number satisfies, in order."""
        waiting = self._waiting.get(key)
        if not waiting:
            return []
        satisfied = sorted(neighbour for neighbour, waiter in waiting.items() if waiter.seqno <= seqno)
        for neighbour in satisfied:
            del waiting[neighbour]
        return satisfied

    def gone(self, neighbour: str) -> None:
        """Nobody needs to be answered there any more."""
        for waiting in self._waiting.values():
            waiting.pop(neighbour, None)

    def expire(self, now: float) -> None:
        """Forget those who stopped asking."""
        for key, waiting in list(self._waiting.items()):
            self._waiting[key] = {name: waiter for name, waiter in waiting.items() if waiter.until > now}
            if not self._waiting[key]:
                del self._waiting[key]

    # Both

    def collect(self) -> list[Send]:
        """Empty the outbox: one message per neighbour."""
        outbox, self._outbox = self._outbox, {}
        return [
            Send(neighbour, SeqnoRequest(tuple(Wanted(*run) for run in runs(sorted(outbox[neighbour].items())))))
            for neighbour in sorted(outbox)
        ]

    def _put(self, neighbour: str, key: Key, seqno: int, hops: int) -> None:
        self._outbox.setdefault(neighbour, {})[key] = (seqno, hops)

    def _wait(self, key: Key, neighbour: str, seqno: int, hops: int, now: float) -> int | None:
        """Remember who waits for what; return how often it asked before, or None if another's request covers it."""
        waiting = self._waiting.setdefault(key, {})
        known = waiting.get(neighbour)
        if known is not None and known.until > now and known.seqno >= seqno:
            known.until, known.repeats = now + self._patience, known.repeats + 1
            return known.repeats
        covered = any(other.until > now and other.seqno >= seqno for other in waiting.values())
        waiting[neighbour] = _Waiter(seqno, hops, now + self._patience)
        return None if covered else 0

    def _helpers(self, key: Key) -> list[str]:
        """Whom to hand a request to: the next hop, then feasible offers, then the rest, nearest first."""
        choice = self._table.chosen.get(key)
        hop = None if choice is None else choice.neighbour
        return sorted(self._table.nearest(key), key=lambda n: (n != hop, not self._table.is_feasible(key, n)))
