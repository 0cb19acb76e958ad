"""What the machines decided, between the peer's thread that hears it and the training thread that waits for it.

Whatever makes waiting useless (a newer roster, a death, the end of the peer) ends it at once instead of at a timeout:
the waits here by waking them, and whatever the process group waits for by breaking that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ictp2p.concurrency.threads import Condition
from ictp2p.errors import PeerClosed
from ictp2p.sync.mesh import Group
from ictp2p.sync.rosters.roster import Generation, Roster


class Heard:
    """The newest that was heard.

    Args:
        changed: guards it, and wakes who waits.
    """

    def __init__(self, changed: Condition) -> None:
        self._changed = changed
        self._roster: Roster | None = None
        """The newest with this worker in it."""
        self.newest: Generation = (0, 0)
        """Of all rosters, also those without it."""
        self._pending = False
        """Whether a newcomer waits."""
        self._closed: PeerClosed | None = None
        self._group: Group | None = None
        """What the training thread works in."""

    # ------------------------------------------------------------ on the peer's thread

    def asked_anew(self) -> None:
        """What is heard from now on is for another user of the group: an older roster is not."""
        self._roster = None

    def regrouped(self, roster: Roster, *, mine: bool) -> None:
        """There is another roster, with this worker in it or without."""
        with self._changed:
            self.newest = max(self.newest, roster.generation)
            # Here, in the order of the machine: a newcomer that it tells of next is none of this roster's, though the
            # training thread may not have seen that one yet, and it is told of once.
            self._pending = False
            if mine:
                self._roster = roster
            self._changed.notify_all()
        if self._group is not None and self._group.generation < roster.generation:
            self._break_group(f"roster {roster.generation} replaces it")

    def newcomer(self) -> None:
        """Somebody wants into the group."""
        with self._changed:
            self._pending = True

    def advanced(self) -> None:
        """There is another state."""
        with self._changed:
            self._changed.notify_all()

    def gone(self, worker: str, status: str) -> None:
        """A worker of this cluster is."""
        if self._group is not None and worker in self._group.members:
            self._break_group(f"worker {worker} is {status}")

    def ended(self, error: PeerClosed) -> None:
        """The peer is gone."""
        with self._changed:
            self._closed = error
            self._changed.notify_all()
        self._break_group(str(error))

    def drained(self, roster: Roster, well: Collection[str]) -> bool:
        """Whether a roster comes because somebody left who is well."""
        gone = set(self._group.members if self._group is not None else ()) - set(roster.members)
        return bool(gone) and gone.issubset(well)

    # ------------------------------------------------------------ on the training thread

    def close(self) -> None:
        """End every wait with `PeerClosed`."""
        with self._changed:
            self._closed = self._closed or PeerClosed("the peer is closed")
            self._changed.notify_all()
        self._break_group("the peer was closed")

    def check(self) -> None:
        """Raise `PeerClosed` if the peer is gone; another one each time, for what is kept keeps the frames of all."""
        if self._closed is not None:
            raise type(self._closed)(*self._closed.args)

    def roster(self, newer_than: Generation, known: Generation, left: Callable[[], float]) -> Roster | None:
        """Wait for a roster with this worker in it.

        Args:
            newer_than: of which generation it must not be.
            known: what `newest` was. Any other roster that comes ends the wait as well.
            left: seconds until it is given up.

        Returns:
            The newest such roster; None if another one came.

        Raises:
            TimeoutError: none came in time.
            PeerClosed: the peer is gone.
        """
        with self._changed:
            while self.newest == known and (self._roster is None or self._roster.generation <= newer_than):
                self.check()
                if not self._changed.wait(max(0.0, left())):
                    raise TimeoutError
            if self._roster is not None and self._roster.generation > newer_than:
                return self._roster
            return None

    def moves(self, generation: Generation) -> bool:
        """Whether the group of that generation must change at the next step."""
        with self._changed:
            return self._pending or self.newest > generation

    def keep(self, group: Group) -> None:
        """Have a group broken from now on by what makes it useless, which may be known already."""
        with self._changed:
            self.check()
            self._group = group
            stale = self.newest > group.generation
        if stale:
            group.abort("a newer roster is known")

    def pause(self, seconds: float, unless: Callable[[], bool]) -> None:
        """Wait for anything that is heard, but not if that is here already which is waited for.

        Raises:
            PeerClosed: it is not, and the peer is gone.
        """
        with self._changed:
            if not unless():
                self.check()
                self._changed.wait(seconds)

    def _break_group(self, reason: str) -> None:
        if self._group is not None:
            self._group.abort(reason)
