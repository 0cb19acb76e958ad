"""Where the workers of a cluster stand in their sequence of calls, exchanged before each call, and what follows.

Every worker makes the same calls in the same order, so a number says where it is, in one sequence of calls: who starts
again takes its place from who is there, or begins another sequence. A group that breaks in the middle of a call leaves
some with the answer and some without; then the numbers differ by one, and who is ahead hands its answer over. All
conclusions here are functions of the exchanged heads, and of the group, alone, so all workers draw the same ones.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ictp2p.sync.mesh import Group
from ictp2p.sync.rosters.roster import Generation

_HEAD = struct.Struct("<QQQQ32sdBQQ")


class Place(NamedTuple):
    """A call: the group in which its sequence of calls began (see `roster.Generation`), and its number in it, from 1.

    A cluster's groups only grow. So newcomers among themselves begin a sequence above all earlier ones, also where
    their first call is in no round. Else who slept meanwhile, and counts on, would be at their call, or one behind or
    ahead of it, by chance.
    """

    term: int = 0
    roster: int = 0
    call: int = 0

    @property
    def next(self) -> Place:
        """The call after it."""
        return self._replace(call=self.call + 1)


class Flag(enum.IntFlag):
    """What a head says in a bit."""

    NONE = 0
    MOVES = 1
    """The group is to be left now, for a newcomer."""
    FRESH = 2
    """No call of this cluster has ended here yet, or it slept through some: it takes its place from the others."""
    STATE = 4
    """The call asks for the shared state."""
    ENDED = 8
    """The call has its answer, and is only seeing to it that everybody else gets it."""
    SAW = 16
    """It has seen both decisions of the newest round that is to be accounted for."""
    TOLD = 32
    """It knows as well whose tensors are in that one."""


@dataclass(frozen=True, slots=True)
class Head:
    """One worker."""

    place: Place
    """Of the last call that ended here."""
    version: int
    """Of the agreed state that it holds; 0 if none."""
    fingerprint: bytes
    """32 bytes: which call this is."""
    weight: float
    flags: Flag
    settled: int = 0
    """The newest round that it has accounted for; 0 if it was in none yet."""
    known: int = 0
    """The newest that it knows to be accounted for; 0 likewise."""

    def pack(self) -> bytes:
        """Its bytes, always equally many."""
        rounds = (self.settled, self.known)
        return _HEAD.pack(*self.place, self.version, self.fingerprint, self.weight, self.flags, *rounds)


def exchange(group: Group, head: Head) -> Heads:
    """Learn everybody's head.

    Raises:
        LocalGroupError: the group broke.
    """
    found = (_HEAD.unpack(data) for data in group.all_gather(head.pack()))
    heads = (Head(Place(t, r, c), v, f, w, Flag(flags), *rounds) for t, r, c, v, f, w, flags, *rounds in found)
    return Heads(tuple(heads), group.rank)


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of a group, in rank order, and what they mean."""

    all: Sequence[Head]
    rank: int

    @property
    def mine(self) -> Head:
        """This worker's."""
        return self.all[self.rank]

    @property
    def moves(self) -> bool:
        """Whether everybody leaves the group."""
        return any(head.flags & Flag.MOVES for head in self.all)

    @property
    def ended(self) -> bool:
        """Whether somebody is here only to hand over, so that the next call does not begin yet."""
        return any(head.flags & Flag.ENDED for head in self.all)

    @property
    def newest(self) -> Place:
        """The last call that the cluster has ended."""
        return max(head.place for head in self.all)

    def here(self, generation: Generation) -> Place:
        """The call that they are at, in the group of this generation."""
        anew = all(head.flags & Flag.FRESH for head in self.all)
        return (max(self.newest, Place(*generation)) if anew else self.newest).next

    @property
    def strange(self) -> tuple[int, ...]:
        """Ranks of newcomers that are at another call than all the others, who agree."""
        calls = {h.fingerprint for h in self.all if not h.flags & Flag.FRESH}
        fresh = [r for r, h in enumerate(self.all) if h.flags & Flag.FRESH]
        return tuple(r for r in fresh if self.all[r].fingerprint not in calls) if len(calls) == 1 else ()

    @property
    def settled(self) -> int:
        """The newest round that the cluster has accounted for; 0 if all are newcomers."""
        return max(head.settled for head in self.all)

    @property
    def known(self) -> int:
        """The newest round that any of them knows to be accounted for; 0 if all are newcomers."""
        return max(head.known for head in self.all)

    @property
    def witness(self) -> int | None:
        """Who shows the others the newest round to be accounted for: one that saw it, and whose tensors are in it."""
        saw = [r for r, h in enumerate(self.all) if h.known == self.known > self.settled and h.flags & Flag.SAW]
        return max(saw, key=lambda rank: (self.all[rank].flags & Flag.TOLD, -rank), default=None)

    @property
    def behind(self) -> tuple[int, ...]:
        """Ranks that wait for the answer to a call that others have ended."""
        settled = Flag.FRESH | Flag.ENDED
        return tuple(r for r, h in enumerate(self.all) if not h.flags & settled and h.place < self.newest)

    @property
    def lost(self) -> bool:
        """Whether this worker is so far behind that nobody has its answer any more."""
        return self.rank in self.behind and self.mine.place.next < self.newest

    @property
    def needs(self) -> bool:
        """Whether this worker wants the answer that the others still have."""
        return self.rank in self.behind and self.mine.place.next == self.newest

    @property
    def giver(self) -> int | None:
        """Who hands the last answer over, if somebody waits for it."""
        if any(self.all[r].place.next == self.newest for r in self.behind):
            return next(r for r, h in enumerate(self.all) if h.place == self.newest)
        return None

    @property
    def teacher(self) -> int | None:
        """Who shows a newcomer the state, if one asks for it while the others are at something else."""
        asking = [h for h in self.all if h.flags & Flag.STATE]
        if len(asking) == len(self.all) or not any(h.flags & Flag.FRESH for h in asking):
            return None
        return next((r for r, h in enumerate(self.all) if h.version and not h.flags & Flag.FRESH), None)

    @property
    def taught(self) -> bool:
        """Whether this worker is such a newcomer."""
        return self.mine.flags & (Flag.FRESH | Flag.STATE) == Flag.FRESH | Flag.STATE
