"""How a peer leaves for good, so that those who stay lose nothing by it: its vote first, then its place.

Before that comes what it alone holds of the state (`handover`): while it is handed over, its cluster is still led.

Who just ends takes its vote along. Its mesh counts it for dead, but a quorum is one of decided voters, and two of three
that ended one after the other would leave a mesh in which nothing can be decided any more. So a peer that leaves asks
to be released, and votes on until the others have decided that they do without it. Somebody may have died a moment
before, and be asked in vain until that is noticed: as long as a quorum seems to be there it waits for that as well.
Where none answers in time, it cannot know whether they need it, and says so: then its disk may be what lets them go on.

A leader then lets a mate take over: one that is busy would find its place empty only once it is suspected. Both have a
deadline, since who leaves must not depend on anybody; what comes of it is told in a notice, and so is set from outside.
"""

from __future__ import annotations

import asyncio
import contextlib

from ictp2p.config import Config
from ictp2p.core.packets import Channel
from ictp2p.gossip.election import ElectionProfile
from ictp2p.gossip.profile import SwimProfile
from ictp2p.runtime.control_plane import ControlPlane
from ictp2p.telemetry import Telemetry

_UNNOTICED = 3
"""Intervals of probes within which somebody who falls silent is suspected, and another one coordinates."""
_UNRELEASED = "left without being released from voting, for no quorum answered in time: whoever stays may need its vote"


class Departure:
    """One peer's leaving.

    Args:
        config: for its deadlines, and where its disk is.
        telemetry: told of a vote that could not be given up.
    """

    def __init__(self, config: Config, telemetry: Telemetry) -> None:
        self._config = config
        self._telemetry = telemetry
        self._unnoticed: float = _UNNOTICED * getattr(SwimProfile, config.global_profile)().probe_interval
        self._election: float = getattr(ElectionProfile, config.local_profile)().settle
        self.released = asyncio.Event()
        """Set once this peer's vote is given up."""
        self.resigned = asyncio.Event()
        """Set once somebody else leads its cluster, or nobody is left of it."""

    async def take(self, control: ControlPlane) -> None:
        """Give up the vote, and the lead, and say goodbye; each within its deadline."""
        await self._be_released(control)
        await self._resign(control)
        control.leave()

    async def _be_released(self, control: ControlPlane) -> None:
        self.released.clear()
        control.driver.call(Channel.ROUNDS, control.core.m.rounds.drop_out)
        await _within(self._patience(control), self.released)
        if not self.released.is_set() and control.core.m.rounds.attended:
            await _within(self._unnoticed, self.released)
        if not self.released.is_set() and control.core.newcomers():  # they have come meanwhile
            await _within(self._patience(control), self.released)
        if not self.released.is_set():
            self._telemetry.event("warning", text=f"{_UNRELEASED}. {_kept(self._config.data_dir)}")

    def _patience(self, control: ControlPlane) -> float:
        """Seconds for a quorum to answer: newcomers are part of one once they lead their clusters."""
        return self._config.global_timeouts.connect + (self._election if control.core.newcomers() else 0.0)

    async def _resign(self, control: ControlPlane) -> None:
        """Let a mate take this peer's place, if it leads: one that is busy finds it empty later."""
        control.resign()
        await _within(self._config.local_timeouts.connect, self.resigned)


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for it, no longer than that."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _kept(data_dir: str | None) -> str:
    """Say what becomes of the vote of a peer that was not released, with its folder or without one."""
    if data_dir is None:
        return "It had no data_dir to come back with: if the others report that they have no quorum, they have lost it"
    return (
        f"Keep data_dir {data_dir!r}, and start it again if the others report that they have no quorum; "
        "if nobody stays, it is of no more use"
    )
