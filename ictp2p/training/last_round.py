"""How long a worker that was asked to leave waits for the round after which it does.

That round makes what it trained part of the agreed state, so it is worth a wait; but none can come without a quorum,
which may be gone for good. Whoever asks, as a scheduler does by SIGTERM, kills after a while what has not left by then,
and a death costs those who stay more than a goodbye. So it waits for a lost quorum no longer than for anybody else who
makes no progress: for `global_timeouts.stall`. Nor does it wait longer where it has no state yet, and trained nothing.
"""

from __future__ import annotations

from ictp2p.errors import PeerClosed, RoundTimeout
from ictp2p.handle import Handle


class LastRound:
    """The last round of one worker.

    Args:
        peer: says whether a quorum is in sight.
    """

    def __init__(self, peer: Handle) -> None:
        self._peer = peer
        self.asked = False
        """Whether this worker was asked to leave after it."""
        self._vain_since: float | None = None
        """Since when none can come, as far as was looked."""

    def check(self, *, trains: bool) -> None:
        """Look, while this worker waits, whether that round can come.

        Args:
            trains: whether this worker has a state to train from.

        Raises:
            PeerClosed: it was asked to leave, and none can for so long.
        """
        if not self.asked:
            return
        comes, why = self._sight()
        if comes and trains:
            self._vain_since = None
            return
        now, patience = self._peer.clock(), self._peer.config.global_timeouts.stall
        if self._vain_since is None:
            self._vain_since = now
        if now - self._vain_since >= patience:
            raise PeerClosed(
                f"this worker was asked to leave after its next round, and leaves without it, for none came within "
                f"{patience:g} s: {why}"
            )

    def _sight(self) -> tuple[bool, str]:
        """Whether a quorum is in sight, and what is waited for; a peer that stands still sees none."""
        try:
            return self._peer.waiting()
        except RoundTimeout as error:
            return False, str(error)
