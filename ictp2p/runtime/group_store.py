"""The rendezvous store that a leader opens for the process group of its cluster.

A roster names the store where its members meet. Each wants a store of its own, since what a broken group left in its
store would be taken for the present one's; and the store that a roster names must stay open for as long as that roster
stands. So there is one store, and a new one takes its place. Whoever asks while one is being opened gets that one: a
leader asks again where opening takes long, and a second store would close the first, which the roster names by then.
Who asks for another interface meanwhile has seen this worker's address change: the members would not reach the store
that is being opened, so a second one is opened after it, and all who wait get that one.

Opening and closing block, so both run beside the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ictp2p.concurrency.blocking import blocking


class Store(Protocol):
    """An open store."""

    def close(self) -> None:
        """Close it; may block."""
        ...


OpenStore = Callable[[str], tuple[str, Store]]
"""Opens a store on an interface; gives its `host:port`, and the store."""


class GroupStore:
    """The one store of this peer, if it has opened any."""

    def __init__(self, open_store: OpenStore) -> None:
        self._open = open_store
        self._present: Store | None = None
        self._renewal: asyncio.Task[str] | None = None
        self._asked_for = ""
        """The interface of that renewal."""

    async def renew(self, host: str) -> str:
        """Have a store on the interface `host` that no roster names yet, in place of the last one.

        Returns:
            Its `host:port`.

        Raises:
            AddressNotOurs: `host` is not an address of this machine; the last store is still open then.
        """
        if self._renewal is None or self._renewal.done() or host != self._asked_for:
            self._asked_for = host
            self._renewal = asyncio.get_running_loop().create_task(self._renew(host, self._renewal))
            self._renewal.add_done_callback(_seen)
        while True:
            renewal = self._renewal
            await asyncio.wait([renewal])
            if renewal is self._renewal:
                return renewal.result()

    async def close(self) -> None:
        """Close the store, and first let one be opened that is about to be: no thread can be called back."""
        if self._renewal is not None:
            await asyncio.wait([self._renewal])
        await self._replace(None)

    async def _renew(self, host: str, before: asyncio.Task[str] | None) -> str:
        if before is not None:
            await asyncio.wait([before])
        address, store = await blocking(self._open, host)
        await self._replace(store)
        return address

    async def _replace(self, store: Store | None) -> None:
        old, self._present = self._present, store
        if old is not None:  # shielded: nobody else knows it, and what waits for a thread would be called back
            await asyncio.shield(blocking(old.close))


def _seen(renewal: asyncio.Task[str]) -> None:
    """Nobody asks how a renewal went that another one has taken the place of."""
    if not renewal.cancelled():
        renewal.exception()
