"""Who leaves hands the agreed state over, if nobody else holds it; see `custody`.

Whether others hold it is asked, and not concluded from who took part in its round: they may have died since, or leave
at the same moment. So one leader after the other is asked, those first that should hold it, until one answers that it
does. In an ordinary round that is the first, at once. A leader that fetches it takes as long as that takes; but who
leaves must not depend on anybody, and waits no longer than everybody else would for the version that is lost.

A state of which each cluster holds a content of its own (`sync.state.own`) is handed to nobody: all hold its name, and
its content was never anybody else's.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import msgspec

from ictp2p.bulk import Bulk
from ictp2p.config import Config
from ictp2p.core.stack import Core
from ictp2p.errors import IctError
from ictp2p.gossip.messages import Status
from ictp2p.runtime.custody import KEPT, KIND, Custody, Wish
from ictp2p.sync.state.manifest import digest_of
from ictp2p.sync.values import StateRef
from ictp2p.telemetry import Telemetry
from ictp2p.types import ClusterId

_LOOK = 1.0
"""Seconds between two looks at whether the state that is handed over has a successor."""
_STATE = 1 << 28
"""Bytes of the states that the way to a custodian is chosen for."""


class Handover:
    """One peer's handing over, as it leaves.

    Args:
        config: for how long it may take.
        core: says what is agreed, and who there is.
        bulk: carries the question.
        custody: what there is to hand over.
        telemetry: told of a state that nobody took.
        clock: monotonic seconds.
    """

    def __init__(
        self, config: Config, core: Core, bulk: Bulk, custody: Custody, telemetry: Telemetry, clock: Callable[[], float]
    ) -> None:
        self._patience = min(config.restore_after, config.global_timeouts.complete)
        self._core, self._bulk, self._custody = core, bulk, custody
        self._telemetry, self._clock = telemetry, clock
        self._tried = b""
        """The state that was handed over last, or in vain."""

    async def take(self) -> None:
        """Have the agreed state held by another cluster, if this peer answers for it; once for each state.

        That nobody takes it is told in a warning, and no error.
        """
        self._custody.leaving = True
        ref = await self._due()
        if ref is None or ref.digest == self._tried:
            return
        self._tried = ref.digest
        why = await self._within(self._patience, ref)
        if why and not self._is_superseded(ref):
            what = f"left with the only copy of version {ref.version} of the state"
            self._telemetry.event(
                "warning", text=f"{what}, so the others go back unless a checkpoint of it is loaded: {why}"
            )

    async def _due(self) -> StateRef | None:
        """The agreed state, if it is here, the same everywhere, and this peer answers for it."""
        tip = self._core.m.rounds.tip
        if tip is None or not tip[1].state.version or not (self._core.leading or self._custody.keeps):
            return None
        ref = tip[1].state
        try:
            async with asyncio.timeout(self._patience):  # a training program may be in the middle of something
                encoded = await self._custody.manifest(ref.digest)
        except (IctError, TimeoutError):
            return None
        return ref if digest_of(encoded) == ref.digest else None

    async def _within(self, seconds: float, ref: StateRef) -> str:
        """Find somebody who holds it, while it is the newest; why there is nobody, or nothing."""
        due = self._clock() + seconds
        giving = asyncio.get_running_loop().create_task(self._give(ref))
        try:
            while not (giving.done() or self._is_superseded(ref)) and self._clock() < due:
                await asyncio.wait([giving], timeout=min(_LOOK, due - self._clock()))
        finally:
            giving.cancel()
            await asyncio.gather(giving, return_exceptions=True)
        return f"nobody had taken it in {seconds:g} s" if giving.cancelled() else giving.result()

    async def _give(self, ref: StateRef) -> str:
        """Ask one leader after the other; why none of those who stay has it, or nothing."""
        wish, answer = msgspec.msgpack.encode(Wish(ref.version, ref.digest)), bytearray(1)
        failed: dict[ClusterId, str] = {}
        for cluster in self._custodians(ref):
            leader = self._core.directory.leader_of(cluster)
            if leader is None:
                continue
            try:
                await self._bulk.request(leader, KIND, wish, answer, timeout=self._patience)
            except IctError as error:
                failed[cluster] = f"{leader} of {cluster}: {error}"
            else:
                if answer == KEPT:
                    return ""
        stay = self._who_stay()
        failed.update((cluster, f"{cluster} is out of reach") for cluster in stay if not stay[cluster])
        return "; ".join(failed[cluster] for cluster in failed if cluster in stay)

    def _custodians(self, ref: StateRef) -> list[ClusterId]:
        """The other clusters: those first that should hold it, then those that train, the quickest to reach first."""
        core, stay = self._core, self._who_stay()
        holders = {core.directory.cluster_of(peer) for peer in ref.providers}
        cards = [card for card in core.directory.living() if stay.get(card.cluster)]
        cards.sort(key=lambda c: (c.cluster not in holders, not c.training, self._seconds(c.cluster), c.cluster))
        return [card.cluster for card in cards]

    def _who_stay(self) -> dict[ClusterId, bool]:
        """The other clusters that have not said goodbye, and whether they live as far as is known."""
        members = self._core.m.mesh.members.items()
        others = {ClusterId(name): each.status for name, each in members if name != self._core.card.cluster}
        return {cluster: status.present for cluster, status in others.items() if status is not Status.LEFT}

    def _seconds(self, cluster: ClusterId) -> float:
        """What a state takes to there, by the routes as they are."""
        route = self._core.m.routes.best(cluster, _STATE)
        return math.inf if route is None else route.delay + _STATE / route.bandwidth

    def _is_superseded(self, ref: StateRef) -> bool:
        """Whether a newer version is agreed on: so somebody else had this one."""
        tip = self._core.m.rounds.tip
        return tip is not None and tip[1].state.version > ref.version
