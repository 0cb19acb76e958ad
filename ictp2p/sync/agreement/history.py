"""The last decisions, for those who are behind, and which of them each was sent a moment ago.

A peer that was away for a few rounds is told what it missed one by one, since each decision has consequences; one that
is further behind than `RoundProfile.history` jumps to the newest, as a newcomer does. So the history has no gaps: who
jumps forgets what it knew before.

Whoever is behind shows it with every word, and plans are long: a mesh of leaders that greet each other at once would
send each lesson many times. So it is kept what each was sent, for as long as an answer may take, and what it was sent
is sent again only if it turns out to know less than it did then: the connection is another one, or the process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ictp2p.sync.messages import Decision
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.values import Value
from ictp2p.types import PeerId


@dataclass(frozen=True, slots=True)
class _Lesson:
    """What a peer that was behind has been sent and may not have read yet."""

    until: float
    """After that it is taken for lost."""
    after: int
    """What the peer knew then."""
    upto: int


class History:
    """Of one peer.

    Args:
        profile: how many decisions are kept, and how long an answer may take.
    """

    def __init__(self, profile: RoundProfile) -> None:
        self._profile = profile
        self._log: dict[int, Value] = {}
        self._lessons: dict[PeerId, _Lesson] = {}

    @property
    def oldest(self) -> int:
        """Slot of the first decision that is kept; there must be one."""
        return min(self._log)

    def value(self, slot: int) -> Value | None:
        """What was decided in `slot`, if that is kept."""
        return self._log.get(slot)

    def add(self, slot: int, value: Value) -> None:
        """Keep a decision; if it does not follow the newest one, nothing from before."""
        if slot - 1 not in self._log:
            self._log.clear()
        self._log[slot] = value
        self._log.pop(slot - self._profile.history, None)

    def lesson(self, peer: PeerId, slot: int, now: float) -> list[Decision]:
        """Give what `peer` has to be sent, which knows `slot`: all after that, or the newest if it must jump anyway.

        Each decision is a message of its own: a value may be as long as a frame.
        """
        newest, oldest = max(self._log), self.oldest
        first = slot + 1 if slot + 1 >= max(oldest, 1) else newest
        self._lessons = {each: lesson for each, lesson in self._lessons.items() if now < lesson.until}
        before = self._lessons.get(peer)
        if before is None or not before.after <= slot < before.upto:  # nothing of it is under way, or all was lost
            self._lessons[peer] = _Lesson(now + self._profile.retry, slot, newest)
        else:
            first = max(first, before.upto + 1)
            self._lessons[peer] = replace(before, upto=newest)
        return [Decision(each, self._log[each], oldest) for each in range(first, newest + 1)]

    def lost(self, peer: PeerId) -> None:
        """What was on its way to `peer` did not arrive."""
        self._lessons.pop(peer, None)
