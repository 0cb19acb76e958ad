"""Whether a cluster waits while the mesh cannot decide."""

from __future__ import annotations

from typing import Literal

WithoutQuorum = Literal["wait", "continue", "stop"]
"""What to do while the mesh cannot decide: `wait` for it, `continue` with inner steps, or `stop` with an error.

`continue` skips so many rounds in a row as it was allowed to, then waits: the further a cluster walks alone, the less
its pseudo-gradient fits what the others have by then.
If a round that was in doubt turns out to be committed with this cluster's contribution, `continue` loses the inner
steps taken since; nothing is ever applied twice.
"""


class Patience:
    """How a cluster takes it, round after round.

    Args:
        without_quorum: what to do.
        most_skipped: rounds that `continue` may skip in a row.
    """

    def __init__(self, without_quorum: WithoutQuorum, most_skipped: int) -> None:
        self._without_quorum, self._most_skipped = without_quorum, most_skipped
        self.skipped = 0
        """Rounds that were skipped since the mesh decided one."""

    @property
    def stops(self) -> bool:
        """Whether it is an error that nothing is decided."""
        return self._without_quorum == "stop"

    @property
    def skips(self) -> bool:
        """Whether the round may be skipped."""
        return self._without_quorum == "continue" and self.skipped < self._most_skipped

    @property
    def waits(self) -> bool:
        """Whether it waits, however long that takes."""
        return not self.stops and not self.skips
