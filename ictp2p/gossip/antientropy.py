"""Repairing what gossip missed: two views are compared by digest, and only the difference travels.

Gossip stops repeating a piece of news after O(log n) transmits, so a partition leaves views apart for good; raw SWIM
never heals one (swift-cluster-membership issue 37). hashicorp/memberlist exchanges whole states with one member at a
time; since records carry payloads here, a digest goes first. A sends its lines, B answers with the records that A
lacks, the verdicts that A does not share and the names that B lacks, A sends those: three messages, and none after
the first if the views agree.

A remote "dead" is only evidence. It is merged as a suspicion, so that the accused can still refute it: two halves of
a healed partition would otherwise bury each other (memberlist, `mergeState`). For the same reason the absent are not
spread to whoever never knew them: nobody needs to learn of a member only to bury it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ictp2p.gossip.messages import Entry, Record, Status
from ictp2p.gossip.table import Member

_CALM = 32
"""Up to this many members the exchange interval stays as configured."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What one side owes the other, and what it learned, from a digest."""

    records: tuple[Record, ...]
    """Records that the other side lacks, or has in an older version."""
    verdicts: tuple[Entry, ...]
    """Our suspicions and deaths that the other side does not hold."""
    wanted: tuple[str, ...]
    """Members whose newer record the other side has."""
    accused: tuple[Entry, ...]
    """Their suspicions and deaths of members that we hold present, in the same incarnation."""


def digest(members: Mapping[str, Member]) -> tuple[Entry, ...]:
    """Return the lines of a view, sorted by member."""
    return tuple(entry(members[name]) for name in sorted(members))


def entry(member: Member) -> Entry:
    """Return one member's line."""
    record = member.record
    return Entry(record.member, record.incarnation, record.sequence, member.status)


def verdict(member: Member) -> bool:
    """Whether a member's line accuses it (a goodbye is no accusation)."""
    return member.status in (Status.SUSPECT, Status.DEAD)


def compare(members: Mapping[str, Member], entries: Sequence[Entry]) -> Difference:
    """Compare our view with the digest of another."""
    theirs = {line.member: line for line in entries}
    names = sorted(members)
    owed = {name: members[name].record for name in names if _lacks(theirs.get(name), members[name])}
    disputed = [
        name
        for name in names
        if verdict(members[name]) and (name in owed or _overrules(members[name], theirs.get(name)))
    ]
    return Difference(
        records=tuple(owed.values()),
        verdicts=tuple(entry(members[name]) for name in disputed),
        wanted=tuple(name for name in sorted(theirs) if _want(members.get(name), theirs[name])),
        accused=tuple(theirs[name] for name in sorted(theirs) if _accuses(theirs[name], members.get(name))),
    )


def batches(records: Sequence[Record], size: int) -> Iterator[tuple[Record, ...]]:
    """Split records into runs of at most `size` bytes of payload (or one record)."""
    batch: list[Record] = []
    total = 0
    for record in records:
        if batch and total + len(record.payload) > size:
            yield tuple(batch)
            batch, total = [], 0
        batch.append(record)
        total += len(record.payload)
    if batch:
        yield tuple(batch)


def interval(base: float, members: int) -> float:
    """Return the time between exchanges, in seconds: longer in a large group, so that its total load stays level."""
    return base if members <= _CALM else base * (math.ceil(math.log2(members) - math.log2(_CALM)) + 1)


def _lacks(their: Entry | None, mine: Member) -> bool:
    return mine.status.present if their is None else mine.record.version > their.version


def _overrules(mine: Member, their: Entry | None) -> bool:
    return their is not None and mine.record.incarnation == their.incarnation and mine.status > their.status


def _want(mine: Member | None, their: Entry) -> bool:
    return their.status.present if mine is None else their.version > mine.record.version


def _accuses(their: Entry, mine: Member | None) -> bool:
    accusing = their.status in (Status.SUSPECT, Status.DEAD)
    return mine is not None and mine.status.present and accusing and their.incarnation == mine.record.incarnation
