"""The life of one peer: the tables of `fsm`, run, and told to whoever listens.

One machine per table, side by side (orthogonal regions). The top level, REJOIN, RECEIVED_JOIN and DRAINING are fed by
both threads, from what happens in the mesh: what their present state does not answer is no error, since a second member
may die while the group is still being rebuilt, or while this peer drains (`happened`, `heard`). TRAINING, RECONFIG_PG
and ROLLBACK are what the training thread itself does, one thing after the other: there a trigger that is not in the
table is a bug (`did`). It is told as an `illegal_transition` and counted, and training goes on: a picture of the work
must not stop the work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ictp2p.errors import LocalProtocolError
from ictp2p.fsm import DRAINING, LIFE, OUTSIDE, TABLES, Fsm, Table

Tell = Callable[..., None]
"""Takes the kind of an event and its particulars."""

EVERY_STEP = frozenset({"gradients", "pg_same", "averaged", "committed"})
"""Triggers of TRAINING that come with every inner step: seen in the status, not told as events."""


class Life:
    """Where a peer is, at the top level and inside.

    Args:
        tell: told `life` with source, target and trigger for each step at the top level, `phase` with the table as
            well for those inside, and `illegal_transition` for those that the tables do not have. From either thread.
    """

    def __init__(self, tell: Tell) -> None:
        self._machines = {table.name: Fsm(table) for table in TABLES}
        self._tell = tell
        self._leaving = False
        self._lock = threading.RLock()  # reentrant: a signal handler may drain or close the peer within a step

    @property
    def state(self) -> str:
        """Where the peer is at the top level."""
        return self._machines[LIFE.name].state

    @property
    def inside(self) -> dict[str, str]:
        """Where it is inside, by the name of each table that it is in."""
        return {name: m.state for name, m in self._machines.items() if name != LIFE.name and m.state != OUTSIDE}

    def happened(self, *triggers: str) -> None:
        """Follow the first of `triggers` that the top level answers, if any."""
        self._follow(LIFE, triggers)

    def heard(self, table: Table, *triggers: str) -> bool:
        """Follow the first of `triggers` that a table fed by the mesh answers; whether there was any."""
        return self._follow(table, triggers)

    def noticed(self) -> None:
        """Another worker of this cluster leaves. A second one, or one while this peer leaves too, changes nothing."""
        if self.heard(DRAINING, "drain_noticed"):
            self.happened("drain_noticed")

    def grouped(self) -> None:
        """The process group inside the cluster works."""
        survived = self.heard(DRAINING, "survived")
        self.happened("first_quorum", "pg_ready", *(("drain_noticed",) if survived else ()))
        if self._leaving:  # it was asked to between the two: what it left then was not its own leaving
            self._leave()

    def draining(self) -> None:
        """This peer was asked to leave. It may be in the middle of noticing that another one does."""
        self._leaving = True
        self._leave()
        self.heard(DRAINING, "drain_self")

    def closing(self) -> None:
        """The program closes this peer, asked or not."""
        self.draining()
        self.heard(DRAINING, "closed")

    def closed(self) -> None:
        """It has left."""
        self.heard(DRAINING, "told")
        self.happened("drain_self", "pre_empted")

    def did(self, table: Table, trigger: str) -> None:
        """Follow what the training thread did.

        Never raises: what the table does not have is told.
        """
        try:
            self._fire(self._machines[table.name], trigger)
        except LocalProtocolError as error:
            self._tell("illegal_transition", table=table.name, trigger=trigger, text=str(error))

    def _leave(self) -> None:
        self._follow(LIFE, ("drain_self",), unless="DRAINING")

    def _follow(self, table: Table, triggers: tuple[str, ...], unless: str = "") -> bool:
        machine = self._machines[table.name]
        for trigger in triggers:
            with self._lock:
                step = machine.follow(trigger, unless)
            if step is not None:
                self._told(table, *step, trigger)
                return True
        return False

    def _fire(self, machine: Fsm, trigger: str) -> None:
        source, target = machine.state, machine.fire(trigger)
        self._told(machine.table, source, target, trigger)

    def _told(self, table: Table, source: str, target: str, trigger: str) -> None:
        if table is LIFE:
            self._tell("life", source=source, target=target, trigger=trigger)
        elif trigger not in EVERY_STEP:
            self._tell("phase", table=table.name, source=source, target=target, trigger=trigger)

    def __repr__(self) -> str:
        inside = "".join(f" {name}/{state}" for name, state in self.inside.items())
        return f"<Life {self.state}{inside}>"
