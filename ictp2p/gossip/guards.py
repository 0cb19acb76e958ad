"""Who watches whom: every member has the same guard all the time, by its place on a ring.

Members that probe at random reach a dead one after an interval on average, but once in a hundred crashes only after
4.6 (the wait has the tail of an exponential distribution), and the death is known that much later. A fixed neighbour
asks again after a fixed time. Alone it would have to be trusted: it may be sick itself, or die with its charge. So a
member's turns alternate, between whom it guards and the shuffled list that holds everybody:

- the *charge* of a member is the next one on the ring that is not under suspicion. Thus everybody is asked every
  second interval, and whoever follows a suspect has another guard from the moment of the suspicion;
- a *suspect* is asked next by those guards that have not said yet what they hear of it: either it learns of the
  accusation and answers it, or the confirmations that a verdict waits for (`suspicion`) come soon, from who did ask.

All stand on the ring in the order of a hash of their names, since neighbours by name often share a rack. It is the
ring by which a sparse mesh chooses its connections (`core.overlay`), so a charge is a neighbour there, whose answers
need no relay.
"""

from __future__ import annotations

import functools
import hashlib
from bisect import bisect

from ictp2p.gossip.messages import Status
from ictp2p.gossip.table import Table

GUARDS = 4
"""Members that ask a suspect next: two confirm a suspicion beside its accuser, who often is the first of them, and one
is to spare. If all of a large group did, it would be a burst."""


class Guards:
    """The ring as the member `me` sees it."""

    def __init__(self, me: str, table: Table) -> None:
        self._me = me
        self._table = table
        self._ring: tuple[int, list[str]] = (-1, [])

    def charge(self) -> str | None:
        """Return whom this member watches; None if there is nobody without suspicion."""
        ring = self._trusted()
        if not ring:
            return None
        return ring[bisect(ring, place(self._me), key=place) % len(ring)]

    def doubted(self) -> str | None:
        """Return a suspect whose guard this member is, and of whom others wait to hear what it finds; the first."""
        waiting = (name for name, suspicion in self._table.suspicions.items() if suspicion.wants(self._me))
        return min((name for name in waiting if self._guards(name)), default=None)

    def _guards(self, suspect: str) -> bool:
        """Whether, from this member on, fewer than `GUARDS` others stand on the ring before the suspect."""
        ring = self._trusted()
        here, there = (bisect(ring, place(name), key=place) for name in (self._me, suspect))
        around = len(ring) if place(suspect) < place(self._me) else 0
        return there - here + around < GUARDS

    def _trusted(self) -> list[str]:
        """Return the others that are under no suspicion, in the order of the ring."""
        revision, members = self._table.revision, self._table.members
        if self._ring[0] != revision:
            trusted = [n for n, m in members.items() if m.status is Status.ALIVE and n != self._me]
            self._ring = revision, sorted(trusted, key=place)
        return self._ring[1]


@functools.lru_cache(4096)
def place(member: str) -> bytes:
    """Return where a member stands on the ring."""
    return hashlib.blake2b(member.encode(), digest_size=16, person=b"ictp2p overlay").digest()
