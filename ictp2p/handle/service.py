"""What a peer does for its training program: the loop's end of a `Handle`.

Each method is called on the event loop and takes and gives plain values, so whoever carries them between a training
thread and the loop, in one process or between two, adds nothing of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ictp2p.async_peer import AsyncPeer
from ictp2p.calls.answers import Answers
from ictp2p.calls.messages import Messages
from ictp2p.core import commands
from ictp2p.core.packets import Channel
from ictp2p.handle import Asking, Ended, LeftOut, NewcomerWaits, News, Regrouped, Subscriber, WorkerGone
from ictp2p.machine import Notice
from ictp2p.runtime.health import quantile
from ictp2p.runtime.reporting import clusters_of, links_of, members_of, routes_of
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.rosters.devices import Device
from ictp2p.sync.rosters.presence import Stage
from ictp2p.sync.rosters.roster import Breach, Generation, RosterChanged, RosterMissed, RosterPending
from ictp2p.sync.rounds.notices import StateAdvanced
from ictp2p.types import ClusterId


class PeerService:
    """One peer, as a training program uses it.

    Args:
        peer: not started.
    """

    def __init__(self, peer: AsyncPeer) -> None:
        self.peer = peer
        self._subscribers: list[Subscriber] = []
        self._serves = False
        peer.subscribe(self._notice)

    async def start(self) -> None:
        """Join the mesh; see `AsyncPeer.start`."""
        await self.peer.start()
        self.serve()

    def serve(self) -> None:
        """The peer is started: answer for results and messages."""
        self.answers = Answers(self.peer)
        self.messages = Messages(self.peer)
        self._serves = True

    def end(self) -> None:
        """The peer has ended; a program may know it for long after that."""
        if self._serves:
            self.answers.let_go()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have all later news given to `subscriber`."""
        self._subscribers.append(subscriber)

    def view(self, name: str) -> Any:
        """Plain data for people: one of `VIEWS`."""
        self.peer.check_assembled()
        return VIEWS[name](self.peer)

    # ------------------------------------------------------------ rosters and state

    def wants(self, ready: bool, device: Device, calls: bool) -> None:
        """Say whether a training thread wants into the cluster's group."""
        self._tell(Asking(ready))
        rosters = self.peer.core.m.rosters
        self.peer.call(Channel.ROSTER, lambda now: rosters.wants(ready, now, device, calls))

    def boundary(self, step: int) -> None:
        """Everybody stands at a step boundary."""
        rosters = self.peer.core.m.rosters
        self.peer.call(Channel.ROSTER, lambda now: rosters.boundary(step, now))

    def attends(self, stage: Stage, generation: Generation) -> None:
        """What the training thread is at."""
        rosters = self.peer.core.m.rosters
        self.peer.call(Channel.ROSTER, lambda now: rosters.attends(stage, generation, now))

    def failed(self, generation: Generation, breach: Breach) -> None:
        """The group of that generation broke here."""
        rosters = self.peer.core.m.rosters
        self.peer.call(Channel.ROSTER, lambda now: rosters.failed(generation, now, breach))

    async def offer(self, digest: bytes) -> None:
        """Offer a state to begin with, once it is known what the others have agreed on."""
        await self.peer.informed()
        rounds = self.peer.core.m.rounds
        self.peer.call(Channel.ROUNDS, lambda now: rounds.offer(digest, now))

    # ------------------------------------------------------------ rounds

    def waiting(self) -> tuple[bool, str]:
        """Whether a quorum is in sight, and what is waited for."""
        rounds = self.peer.core.m.rounds
        return rounds.agreement.quorum_in_sight, rounds.explain()

    def taking_part(self) -> list[ClusterId]:
        """The clusters that rounds wait for."""
        core = self.peer.core
        own, alive = core.own_view(), core.m.mesh.alive()
        others = [c for name, c in core.directory.clusters.items() if name in alive and name != self.peer.cluster]
        return sorted(c.cluster for c in [*others, *([own] if own else [])] if c.training)

    # ------------------------------------------------------------ news

    def _notice(self, notice: Notice) -> None:
        match notice:
            case RosterChanged(roster=roster):
                members = self.peer.core.m.members
                self._tell(Regrouped(roster, tuple(sorted(set(members.alive()) - members.suspects()))))
            case RosterMissed(roster=roster):
                self._tell(LeftOut(roster))
            case RosterPending():
                self._tell(NewcomerWaits())
            case commands.MemberChanged(scope="members", member=member, status="dead" | "left" as status):
                self._tell(WorkerGone(member, status))
            case commands.Failed(error=error):
                self._tell(Ended(error))
            case StateAdvanced() | Decided():
                self._tell(notice)

    def _tell(self, news: News) -> None:
        for subscriber in self._subscribers:
            subscriber(news)


def _stats(peer: AsyncPeer) -> dict[str, Any]:
    """Counters and latencies; times in seconds."""
    counters = peer.telemetry.counters()
    trips = peer.core.m.links.round_trips
    return {
        **counters,
        "control_round_trip_p50": quantile(trips, 0.5),
        "control_round_trip_p99": quantile(trips, 0.99),
        "loop_lag_p50": quantile(peer.health.lags, 0.5),
        "loop_lag_p99": quantile(peer.health.lags, 0.99),
        "false_suspicions": peer.health.false_suspicions,
        "illegal_transitions": counters.get("illegal_transition", 0),
        "control_connections": len(peer.core.connected()),
        "data_connections": peer.bulk.connections,
    }


VIEWS: Mapping[str, Callable[[AsyncPeer], Any]] = {
    "members": lambda peer: members_of(peer.core, peer.clock()),
    "clusters": lambda peer: clusters_of(peer.core, peer.clock()),
    "links": lambda peer: links_of(peer.core),
    "routes": lambda peer: routes_of(peer.core),
    "status": lambda peer: peer.status(),
    "stats": _stats,
}
"""What can be seen of a peer, by name."""
