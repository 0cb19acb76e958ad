"""The groups that a worker trains in, one after the other: into the next one, and out of one that broke.

A process group lives for one set of workers. So whatever is done in a group is done in as many as it takes: when one
breaks under it, or everybody leaves it at a step boundary for the sake of a newcomer, the worker waits for the next
roster, meets the others there, is made equal to them, and does it again. What is done must therefore bear to be begun
anew, and must say by `LocalGroupError` that the group is at fault; every other error is the caller's.

Each turn is told as a transition of RECONFIG_PG and ROLLBACK, the tables that people see it by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from ictp2p.errors import LocalGroupError
from ictp2p.fsm import RECONFIG_PG, ROLLBACK, TRAINING, Table
from ictp2p.sync.mesh import Group, Mesh

T = TypeVar("T")


class Moved(Exception):
    """Everybody leaves the group before inner step `step`."""

    def __init__(self, step: int) -> None:
        super().__init__(f"the group is left before step {step}")
        self.step = step


class Groups:
    """This worker's place in its cluster.

    Args:
        peer: the connection to the mesh.
        joined: makes this worker equal to the others of a new group, before it counts, and gives the inner step before
            which they stand; raises `LocalGroupError` if the group breaks meanwhile.
    """

    def __init__(self, peer: Mesh, joined: Callable[[Group], int]) -> None:
        self._peer = peer
        self._joined = joined
        self._present: Group | None = None
        self._seen: tuple[int, int] | None = None
        """Generation of the newest roster that was tried."""
        self._within: Table = RECONFIG_PG
        """What this thread is at, and why it last left a group."""
        self._why = "first_quorum"

    @property
    def first(self) -> bool:
        """Whether this worker speaks for those of its group, or is in none."""
        return self._present is None or self._present.rank == 0

    def enter(self, device: torch.device) -> None:
        """Let the others know that this worker wants into the group, and what it computes on."""
        self._peer.roster_ready(True, device)

    def leave(self) -> None:
        """Leave for good; the others go on."""
        self._peer.phase(self._within, "left")
        self._within, self._why = RECONFIG_PG, "first_quorum"
        self._drop()
        self._peer.roster_ready(False)

    def run(self, action: Callable[[Group], T]) -> T:
        """Do `action` in the present group or the next one, in as many as it takes.

        Raises:
            Exception: whatever `action` raises but `Moved` and `LocalGroupError`; so does waiting for a group.
        """
        while True:
            try:
                group = self._present or self._regroup()
                return action(group)
            except Moved as moved:
                self._why = "pg_diff"
                self._drop()
                if group.rank == 0:
                    self._peer.roster_boundary(moved.step)
            except LocalGroupError as error:
                self._roll_back(str(error))

    def _regroup(self) -> Group:
        self._within = RECONFIG_PG
        self._peer.phase(RECONFIG_PG, self._why)
        roster = self._peer.wait_roster(self._seen)
        self._seen = roster.generation
        self._peer.phase(RECONFIG_PG, "quorum")
        self._present = group = self._peer.open_group(roster)
        self._peer.phase(RECONFIG_PG, "group_up")
        step = self._joined(group)
        self._within = TRAINING
        self._peer.phase(TRAINING, "group_ready")
        self._peer.event("group", generation=roster.generation, size=group.size, step=step)
        return group

    def _roll_back(self, reason: str) -> None:
        """Leave a broken group: tell the leader, end what still waits in it, and forget it."""
        self._peer.phase(self._within, "fault")
        self._peer.phase(ROLLBACK, "relevant_fault")
        if self._seen is not None:
            self._peer.roster_failed(self._seen, reason)
        self._peer.phase(ROLLBACK, "told")
        if self._present is not None:
            self._present.abort(reason)
        self._peer.phase(ROLLBACK, "cancelled")
        self._drop()
        self._peer.phase(ROLLBACK, "group_down")
        self._why = "rolled_back"

    def _drop(self) -> None:
        if self._present is not None:
            self._present.close()
            self._present = None
