"""Which news rides on the next message.

Dissemination by infection (Das, Gupta, Motivala: SWIM, DSN 2002, section 4.1): each member repeats a piece of news
O(log n) times on whatever it sends, and the piece that was repeated least goes first, so that a burst of old news
cannot starve a new one. As in hashicorp/memberlist, newer news about a member takes the place of older: of each
member at most one record and one verdict wait, so the queue is bounded by the group, and a group at rest has an
empty queue, and no gossip timer at all.

A rumour that each member passes on m times misses about a share e^-m of a large group (Demers et al., "Epidemic
algorithms for replicated database maintenance", 1987, section 1.4), which the exchange of digests makes up for. News
that nobody waits for (`Record.detail`: what links measure, all the time and everywhere) is passed on half as often: in
a mesh of 64 it then misses one in fifty, for the seconds until that one compares digests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter

from ictp2p.gossip.messages import News, Record

_OVERHEAD = 160
"""Upper estimate, in bytes, of a piece of news besides its payload: two names, two numbers, headers."""

_LEAST = 4
"""Times that news is sent at least, if others are sent as often: fewer would miss many."""


def transmit_limit(members: int, multiplier: int) -> int:
    """Return how often a piece of news is sent by each member: multiplier * ceil(log10(members + 1))."""
    return multiplier * math.ceil(math.log10(members + 1))


def detail_limit(limit: int) -> int:
    """Return how often news that can wait is sent where other news is sent `limit` times; small groups save nothing."""
    return max(min(limit, _LEAST), limit // 2)


@dataclass(slots=True)
class _Waiting:
    news: News
    which: tuple[str, bool]
    """Under which it waits: the member, and whether it is a record."""
    cost: int
    """Bytes on a message, about."""
    transmits: int = 0


_transmits = attrgetter("transmits")


class BroadcastQueue:
    """News that waits to be passed on, least transmitted first, then newest first."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, bool], _Waiting] = {}
        """The oldest first."""
        self._pressing: set[tuple[str, bool]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def presses(self) -> bool:
        """Whether there is more than details."""
        return bool(self._pressing)

    def put(self, news: News) -> None:
        """Queue `news` instead of any earlier news of its kind about its member; it presses if that did."""
        which = news.member, isinstance(news, Record)
        self._waiting.pop(which, None)  # what is new goes behind all others
        self._waiting[which] = _Waiting(news, which, _cost(news))
        if isinstance(news, Record):
            self._drop_refuted(news)
        if not isinstance(news, Record) or not news.detail:
            self._pressing.add(which)

    def take(self, size: int, limit: int) -> tuple[News, ...]:
        """Return what fits in about `size` bytes (at least one piece), counting one transmit of `limit` for each."""
        if not self._waiting:
            return ()
        taken: list[News] = []
        details = detail_limit(limit)
        newest_first = list(reversed(self._waiting.values()))
        newest_first.sort(key=_transmits)
        for waiting in newest_first:
            if taken and waiting.cost > size:
                continue
            size -= waiting.cost
            taken.append(waiting.news)
            waiting.transmits += 1
            if waiting.transmits >= (limit if waiting.which in self._pressing else details):
                self._drop(waiting.which)
        return tuple(taken)

    def clear(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self._pressing.clear()

    def _drop_refuted(self, record: News) -> None:
        verdict = self._waiting.get((record.member, False))
        if verdict is not None and verdict.news.incarnation < record.incarnation:
            self._drop((record.member, False))

    def _drop(self, which: tuple[str, bool]) -> None:
        self._waiting.pop(which, None)
        self._pressing.discard(which)


def _cost(news: News) -> int:
    return _OVERHEAD + (len(news.payload) + len(news.signature) + len(news.key) if isinstance(news, Record) else 0)
