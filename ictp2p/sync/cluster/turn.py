"""Whose turn it is after an inner step: the policy's first, then the program's, which moves its learning-rate schedule.

An outer round is the policy's turn, so in it nobody has moved yet what the program moves with each step and newcomers
take over (`carry`). If the group breaks there, the next one may be of workers in a round and of others, who are before
a step: newcomers, and those for whom the break came earlier. All become like one of them (`heal`); but those in a round
have a turn of their programs to come, and the others have not. What one gives to a worker of the other kind is off by a
turn from then on: behind, or ahead.

Each worker knows by whom it became like how far off that is. So they are compared once more before the next step, when
all programs have had their turn, and all become like one whose schedule is where it should be.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

_SAID = struct.Struct("<?i")
SAID = _SAID.size
"""Bytes of what is said of a turn."""


@dataclass(slots=True)
class Turn:
    """Where one worker's program is, and what it moves."""

    programs: bool = False
    """Whether a step was taken that the program has still to follow."""
    off: int = 0
    """How many turns further what the program moves will be before the next step than it should be."""
    again: bool = False
    """Whether all of the group compare once more before that."""

    def pack(self) -> bytes:
        """What the others have to know."""
        return _SAID.pack(self.programs, self.off)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Read what `pack` wrote."""
        return cls(*_SAID.unpack(data))

    def healed(self, said: Sequence[Turn], source: int, rank: int) -> None:
        """All have become like `source`. Where all are equally far off, there is nobody else to become like."""
        theirs = said[source]
        off = [theirs.off - theirs.programs + each.programs for each in said]
        self.again = len(set(off)) > 1
        self.off = off[rank] if self.again else 0
