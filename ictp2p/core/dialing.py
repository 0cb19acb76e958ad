"""Which control connections ought to exist, and when to try again.

The stack says which peers it wants to be connected to (its cluster-mates; the other leaders, if it leads); the
dialer compares that with what is open. The first attempt and the first one after a loss are immediate: a redial
that is refused is the quickest proof that a process is gone. After that the pause doubles, with jitter so that
many peers that lost the same one do not return in step (exponential backoff, RFC 8085 §3.1.1 argues why).

A connection that ends soon after another one did is as good as a failure: where the other end, or a middlebox, hangs up
on whatever we say, every redial succeeds, and the next would be due at once. The first such end is still followed up at
once, for it may be a death.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from ictp2p.machine import earliest
from ictp2p.types import Address, PeerId


@dataclass(slots=True)
class _Attempt:
    """What is known about dialing one peer. `due` is None while an attempt is under way."""

    failures: int = 0
    due: float | None = 0.0
    opened_at: float = 0.0
    """Of the connection that there is, or was last, if it was wanted by then."""
    brief: int = 0
    """Connections in a row that ended soon."""


class Dialer:
    """Backoff bookkeeping for the connections that this peer wants and does not have.

    Args:
        rng: source of the jitter.
        first_pause: seconds after the first failure; each further one doubles it.
        longest_pause: seconds at which doubling ends.
    """

    def __init__(self, rng: random.Random, first_pause: float = 0.1, longest_pause: float = 5.0) -> None:
        self._rng = rng
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._wanted: dict[PeerId, Address] = {}
        self._attempts: dict[PeerId, _Attempt] = {}
        self._open: set[PeerId] = set()
        self._soonest: float | None = None
        self._stale = True
        """Whether `_soonest` has to be found anew: it is asked for after each input, and few inputs move it."""

    def want(self, wanted: Mapping[PeerId, Address], now: float) -> None:
        """Replace the set of wanted peers; one that is new, or whose address changed, is due at once."""
        for peer, address in wanted.items():
            if self._wanted.get(peer) != address:
                self._attempts[peer] = _Attempt(due=now)
        for peer in self._wanted.keys() - wanted.keys():
            self._attempts.pop(peer, None)
        self._wanted = dict(wanted)
        self._stale = True

    def opened(self, peer: PeerId, now: float) -> None:
        """A connection to the peer is open, whoever dialed it."""
        self._open.add(peer)
        self._stale = True
        if peer in self._attempts:
            self._attempts[peer].opened_at = now

    def lost(self, peer: PeerId, now: float) -> None:
        """The connection ended: try again at once, unless those before it ended soon, too."""
        self._open.discard(peer)
        self._stale = True
        attempt = self._attempts.get(peer)
        if attempt is None:
            return
        brief = attempt.brief if now - attempt.opened_at < self._longest_pause else 0
        attempt.brief, attempt.failures, attempt.due = brief + 1, max(0, brief - 1), now
        if brief:
            self._put_off(attempt, now)

    def failed(self, peer: PeerId, now: float) -> None:
        """An attempt failed: try again after a longer pause."""
        attempt = self._attempts.get(peer)
        if attempt is None:
            return
        self._stale = True
        self._put_off(attempt, now)

    def dial(self, now: float) -> list[tuple[PeerId, Address]]:
        """The peers to dial now, in id order; each is then under way until `opened` or `failed`."""
        soonest = self.next_timeout()
        if soonest is None or soonest > now:
            return []
        ready = [p for p in sorted(self._attempts) if p not in self._open and self._is_due(self._attempts[p], now)]
        for peer in ready:
            self._attempts[peer].due = None
        self._stale = True
        return [(peer, self._wanted[peer]) for peer in ready]

    def next_timeout(self) -> float | None:
        """When `dial` will next have something to do."""
        if self._stale:
            self._stale = False
            self._soonest = earliest([a.due for p, a in self._attempts.items() if p not in self._open])
        return self._soonest

    def _put_off(self, attempt: _Attempt, now: float) -> None:
        pause = min(self._longest_pause, self._first_pause * 2.0 ** min(attempt.failures, 16))
        attempt.failures += 1
        attempt.due = now + pause * self._rng.uniform(0.75, 1.25)

    @staticmethod
    def _is_due(attempt: _Attempt, now: float) -> bool:
        return attempt.due is not None and attempt.due <= now
