"""Whether this worker's training thread can be counted on for a group: is it there, and can it build its part?

A peer cannot see what its training thread does between two calls, and need not as long as groups hold. It matters once
one broke: a thread that stands still (a debugger, a device that hangs) wants into the group as firmly as ever, and each
group that counts on it holds up the others to the deadline of their meeting. So the thread says when it waits for a
roster and when it goes to a meeting. Who is told that others waited for it in vain takes its thread for standing still
until it says something again, and wants into no group until then. A thread that waits for a roster hears of each that
comes, and says so: one that stands still just there does not.

A thread that has just come, and is at another call than all its mates, leaves them to theirs for a while. It is in no
group then, and in no office either: its mates, who cannot call without a leader, would miss their round for it.

A thread that is there but cannot build its part (no descriptors, no threads) stands aside for a while, longer each time
in a row: each attempt costs the others the group they train in.
"""

from __future__ import annotations

from typing import Literal

from ictp2p.sync.rosters.roster import Generation

Stage = Literal["waits", "meets", "met", "yields"]
"""What a training thread says: it waits for a roster; it goes to a meeting; the members have met there; it leaves group
and office to the others for a while."""


class Presence:
    """What a peer knows of its own training thread.

    Args:
        first: seconds for which it stands aside when it first could not build its part; doubled each time in a row.
        most: seconds that this never exceeds.
    """

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most = first, most
        self._tried: Generation = (0, 0)
        self._still = False
        self.yields = False
        """Whether it leaves group and office to the others, until it comes up again or says something else."""
        self.times = 0
        """How often in a row it could not build its part."""
        self.aside_until: float | None = None

    @property
    def counted_on(self) -> bool:
        """Whether a group may count on it."""
        return not (self._still or self.yields) and self.aside_until is None

    @property
    def attended(self) -> Generation:
        """The newest generation that it went to."""
        return self._tried

    def begin(self) -> None:
        """Another training thread comes up, of which nothing is known."""
        self._tried, self._still, self.yields, self.times, self.aside_until = (0, 0), False, False, 0, None

    def says(self, stage: Stage, generation: Generation) -> None:
        """Take what the thread says, by which it shows that it does not stand still."""
        self._still, self.yields = False, stage == "yields"
        if stage == "meets":
            self._tried = generation
        elif stage == "met":
            self.times = 0

    def missed(self) -> None:
        """Others have waited for it in vain."""
        self._still = True

    def step_aside(self, now: float) -> None:
        """It could not build its part."""
        self.times += 1
        self.aside_until = now + min(self._first * 2.0 ** min(self.times - 1, 30), self._most)

    def comes_back(self, now: float) -> bool:
        """Whether it has stood aside long enough just now."""
        if self.aside_until is None or now < self.aside_until:
            return False
        self.aside_until = None
        return True
