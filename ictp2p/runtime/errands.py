"""What the stack of a peer asks of the rest of it: its status, a measurement, a connection, a store for its cluster.

The stack waits for none of them. Each has an answer of its own that is an input again, or a limit on how long it is
waited for; one that fails is told, and asked for again if it is still wanted.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from ictp2p.concurrency.tasks import Tasks
from ictp2p.core import commands
from ictp2p.core.packets import Channel
from ictp2p.gossip.links import ProbeWanted
from ictp2p.machine import Notice
from ictp2p.rows import StatusDocument
from ictp2p.runtime.control_plane import ControlPlane
from ictp2p.runtime.data_plane import DataPlane
from ictp2p.runtime.group_store import GroupStore
from ictp2p.sync.rosters.roster import StoreWanted
from ictp2p.telemetry import Telemetry


class Errands:
    """The errands of one peer.

    Args:
        control: the control plane, which asks.
        data: the data connections.
        store: the store of the process group, if this peer can open any.
        tasks: where they run.
        telemetry: told of what failed.
        status: everything that this peer believes, as plain data.
    """

    def __init__(
        self,
        control: ControlPlane,
        data: DataPlane,
        store: GroupStore | None,
        tasks: Tasks,
        telemetry: Telemetry,
        status: Callable[[], StatusDocument],
    ) -> None:
        self._control = control
        self._data = data
        self._store = store
        self._tasks = tasks
        self._telemetry = telemetry
        self._status = status
        self._storeless = ""
        """Why there was no store when one was last wanted: told once."""

    def notice(self, notice: Notice) -> None:
        """Begin what a notice asks for, if it asks for anything."""
        match notice:
            case commands.StatusAsked(observer=observer):
                self._control.tell_status(observer, json.dumps(self._status()).encode())
            case commands.BulkInvited(peer=peer, ticket=ticket):
                self._tasks.spawn(self._told(f"dialing {peer}", lambda: self._data.answer(peer, ticket)))
            case ProbeWanted(neighbour=neighbour):
                self._tasks.spawn(self._told(f"a probe of {neighbour}", lambda: self._data.probe(notice)))
            case StoreWanted(number=number) if self._store is not None:
                self._tasks.spawn(self._give_store(self._store, number))
            case _:
                pass

    async def _told(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do an errand; what it could not foresee (no threads, no memory) is told, or it would end in silence."""
        try:
            await work()
        except Exception as error:
            self._telemetry.event("warning", text=f"{what} failed: {type(error).__name__}: {error}")

    async def _give_store(self, store: GroupStore, number: int) -> None:
        control, why = self._control, ""
        try:
            address = await store.renew(control.host)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        if why != self._storeless:
            self._storeless = why
            if why:
                text = f"no store for the process group of {control.core.card.cluster}: {why}"
                self._telemetry.event("warning", text=text)
        if why:
            control.call(Channel.ROSTER, lambda now: control.core.m.rosters.store_refused(number, now))
            return
        control.call(Channel.ROSTER, lambda now: control.core.m.rosters.store_opened(address, number, now))
