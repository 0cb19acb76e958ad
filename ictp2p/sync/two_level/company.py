"""A cluster whose model is sharded at the boundary of a round: no shard goes on before all have landed.

Each shard has a mesh of its own, and these do not know each other. What happens to one (a suspicion, a plan that
failed, a cluster that came late) may have it pair this cluster's phase with another's earlier one, while the next
shard's mesh pairs equal ones. From then on this cluster would wait for the others with one shard, and they for it with
another, phase after phase, each training half of the time. The way out is that a rank which has landed does not just
wait for its siblings: it attends the next round of its own mesh, with a contribution that is nothing and begins nothing
(`values.ATTENDS`). So the others need not wait for us there, and once the sibling has landed everybody is at the same
boundary again.

It does so when a sibling waits for long. Phases may be too short for that; so all say how long their rounds took to
begin, and where that of shard 0 took longer than a rank's own by much of a phase, that rank attends at once at the next
boundary. Of two clusters that wait for each other with one shard each, one waits with shard 0: both must not give way.
"""

from __future__ import annotations

from collections.abc import Callable

from ictp2p.sync.cluster.siblings import Siblings, Standing

_OFTENEST, _RAREST = 0.01, 0.5
"""Seconds between two exchanges of the siblings while one of them waits."""
_PATIENCE = 0.5
"""Seconds that a sibling waits before a rank that has landed attends another round."""
_MUCH, _LITTLE, _LEAST = 0.5, 0.25, 0.0625
"""Parts of a phase: by which siblings are apart, that a round which was only attended is late to begin at most, and
between two exchanges."""


class Abandoned(Exception):
    """There is nobody left to keep company."""


class Company:
    """What one rank says to its siblings while it is at a boundary.

    Args:
        siblings: the ranks that hold the other shards.
        clock: monotonic seconds.
    """

    def __init__(self, siblings: Siblings, clock: Callable[[], float]) -> None:
        self._siblings, self._clock = siblings, clock
        self._moves = False
        """Whether an attempt with this rank's contribution has begun."""
        self._attends = self._apart = False
        self._needless: float | None = None
        """Since when nobody else waits."""
        self._left_at = self._launched_at = self._began_at = clock()

    def launched(self) -> None:
        """A round of this rank's is on its way."""
        self._moves = False
        if not self._attends:
            self._launched_at = self._began_at = self._clock()

    def begun(self) -> None:
        """Its attempt begins. From any thread."""
        self._moves = True
        if not self._attends:
            self._began_at = self._clock()

    @property
    def pause(self) -> float:
        """Seconds from one call of `wait` to the next."""
        return min(_RAREST, max(_OFTENEST, _LEAST * self._phase))

    def wait(self) -> None:
        """Called while this rank's own round takes its time.

        Raises:
            Abandoned: the round was only attended, has not begun, and all others have landed.
            SiblingLost: another rank stops, or cannot be reached.
        """
        waits = Standing.ATTENDS if self._attends else Standing.WAITS
        found = self._stand(Standing.MOVES if self._moves else waits)
        if not self._attends or Standing.WAITS in found or Standing.MOVES in found or self._moves:
            self._needless = None
        elif self._needless is None:
            self._needless = self._clock()
        elif self._clock() - self._needless > min(_PATIENCE, _LITTLE * self._phase):
            raise Abandoned

    def gather(self, attend: Callable[[], None] | None) -> None:
        """Wait until all ranks have landed.

        Args:
            attend: takes part in the next round of this rank's mesh until that is over, or `wait` raises; None where
                the next one is under way already.
        """
        if self._apart and attend is not None:
            self._attend(attend)
        began = self._clock()
        while True:
            found = self._siblings.stand(Standing.LANDED, self._waited)
            standings = [standing for standing, _ in found]
            if all(standing is Standing.LANDED for standing in standings):
                return self._leave(found[0][1])
            if attend is not None and Standing.WAITS in standings and self._clock() - began > _PATIENCE:
                self._attend(attend)
                began = self._clock()

    def stop(self) -> None:
        """Tell the others that this rank cannot go on."""
        self._stand(Standing.STOPS)

    @property
    def _phase(self) -> float:
        """Seconds from the last boundary to this one."""
        return self._launched_at - self._left_at

    @property
    def _waited(self) -> float:
        return self._began_at - self._launched_at

    def _leave(self, first: float) -> None:
        """All have landed; the round of shard 0 took so long to begin."""
        self._apart = first - self._waited > _MUCH * self._phase
        self._left_at = self._clock()

    def _stand(self, standing: Standing) -> list[Standing]:
        return [each for each, _ in self._siblings.stand(standing)]

    def _attend(self, attend: Callable[[], None]) -> None:
        self._attends, self._needless = True, None
        try:
            attend()
        finally:
            self._attends = False
