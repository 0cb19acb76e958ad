"""A view of the group: each member's newest record, what is thought of it, and since when.

The order of states is SWIM's (Das, Gupta, Motivala: DSN 2002, section 4.2), and this module is the only place that
applies it:

- a record wins by a greater (incarnation, sequence), but only a greater *incarnation* clears a suspicion or a death:
  a new payload in the accused incarnation may have been on its way since before the crash;
- a suspicion or a death holds for exactly the incarnation that it names, which must be one whose record we hold.
  SWIM lets an accusation raise the incarnation; here only the owner's signature can;
- a goodbye is the last record of its incarnation, so no accusation can follow it: who left has not failed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ictp2p.gossip.messages import (
    MemberCleared,
    MemberFailed,
    MemberJoined,
    MemberLeft,
    MemberSuspected,
    MemberUpdated,
    Record,
    Status,
)
from ictp2p.gossip.profile import SwimProfile
from ictp2p.gossip.suspicion import Suspicion
from ictp2p.machine import Effects


@dataclass(frozen=True, slots=True)
class Member:
    """What a view holds of one member."""

    record: Record
    status: Status
    since: float
    """When the status began, monotonic seconds of this process."""


class Table:
    """The members and the suspicions that run against them."""

    def __init__(self, profile: SwimProfile) -> None:
        self.members: dict[str, Member] = {}
        self.suspicions: dict[str, Suspicion] = {}
        self.revision = 0
        """Grows whenever somebody comes, goes, or is thought of differently; not for a new payload."""
        self._profile = profile
        self._present: tuple[int, tuple[str, ...]] = (-1, ())
        self._absent: tuple[int, tuple[str, ...]] = (-1, ())

    def present(self) -> tuple[str, ...]:
        """Return the members that are alive or only suspected, sorted."""
        if self._present[0] != self.revision:
            names = sorted(name for name, member in self.members.items() if member.status.present)
            self._present = (self.revision, tuple(names))
        return self._present[1]

    def absent(self) -> tuple[str, ...]:
        """Return the members that are known to be dead, or to have left; sorted."""
        if self._absent[0] != self.revision:
            names = sorted(name for name, member in self.members.items() if not member.status.present)
            self._absent = (self.revision, tuple(names))
        return self._absent[1]

    def drop(self, member: str) -> None:
        """Know nothing of a member any more."""
        if self.members.pop(member, None) is not None:
            self.revision += 1

    def is_newer(self, record: Record) -> bool:
        """Whether `record` is news: its member is unknown, or known by an older record."""
        known = self.members.get(record.member)
        if known is None:
            return True
        held = known.record  # not by `version`: most of what gossip brings is known already, and is asked for here
        if record.incarnation == held.incarnation:
            return record.sequence > held.sequence
        return record.incarnation > held.incarnation

    def accept(self, record: Record, now: float) -> Effects:
        """Take a newer record, whose signature was checked."""
        known = self.members.get(record.member)
        if record.left:
            status = Status.LEFT
        elif known is None or record.incarnation > known.record.incarnation:
            status = Status.ALIVE
        else:
            status = known.status
        return self.put(record, status, now)

    def suspect(self, member: str, incarnation: int, origin: str, now: float) -> Effects | None:
        """Take an accusation; None if it says nothing new, and so need not be passed on."""
        known = self.members.get(member)
        if known is None or known.record.incarnation != incarnation or not known.status.present:
            return None
        running = self.suspicions.get(member)
        if running is not None:
            return [] if running.confirm(origin, now) else None
        self.suspicions[member] = Suspicion(origin, len(self.present()), self._profile, now)
        return self.put(known.record, Status.SUSPECT, now)

    def bury(self, member: str, incarnation: int, now: float) -> Effects | None:
        """Take a verdict of death; None if it says nothing new."""
        known = self.members.get(member)
        if known is None or known.record.incarnation != incarnation or not known.status.present:
            return None
        return self.put(known.record, Status.DEAD, now)

    def put(self, record: Record, status: Status, now: float) -> Effects:
        """Set a member's state as it is, and tell what changed for the floor above."""
        known = self.members.get(record.member)
        since = now
        if known is not None and known.status is status:
            since = known.since
        else:
            self.revision += 1
        self.members[record.member] = Member(record, status, since)
        if status is not Status.SUSPECT:
            self.suspicions.pop(record.member, None)
        return _notices(known, record, status)

    def overdue(self, now: float) -> list[str]:
        """Return the suspects whose time is up, sorted."""
        return sorted(name for name, suspicion in self.suspicions.items() if suspicion.deadline <= now)

    def forget(self, now: float) -> None:
        """Drop those who died or left long ago, and of too many others the ones who did so first."""
        horizon = now - self._profile.forget_after
        gone = sorted(self.absent(), key=lambda name: self.members[name].since)
        surplus = len(gone) - self._profile.most_absent
        for name in [n for i, n in enumerate(gone) if i < surplus or self.members[n].since < horizon]:
            self.drop(name)


def _notices(known: Member | None, record: Record, status: Status) -> Effects:
    name = record.member
    before = None if known is None else known.status
    if not status.present:
        return _farewell(name, before, status)
    if known is None or before is None or not before.present:
        arrival: Effects = [MemberJoined(name, record)]
        return [*arrival, MemberSuspected(name)] if status is Status.SUSPECT else arrival
    effects: Effects = []
    if status is not before:
        effects.append(MemberSuspected(name) if status is Status.SUSPECT else MemberCleared(name))
    if record is not known.record:
        effects.append(MemberUpdated(name, record))
    return effects


def _farewell(name: str, before: Status | None, status: Status) -> Effects:
    """A death is told of the present only; a goodbye also of the dead, whom it tells apart after all."""
    if before is None or before is status:
        return []
    if status is Status.LEFT:
        return [MemberLeft(name)]
    return [MemberFailed(name)] if before.present else []
