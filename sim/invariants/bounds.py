"""By when what must follow a fault has followed: deadlines made of the peers' own timers.

Each is the sum of the steps that lead there, each step at its worst. They are promises about real peers with the
numbers of their profiles, so they grow and shrink with these, and nothing here is tuned to what a run happened to need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ictp2p.config.values import PRESETS
from ictp2p.core.machines import Profiles
from ictp2p.gossip import antientropy, suspicion
from ictp2p.gossip.profile import SwimProfile
from sim.patience import KEEPALIVE

if TYPE_CHECKING:
    from sim.view import View

_REDIAL = 7.5
"""Seconds between two dials at most: the longest pause of `ictp2p.core.dialing` with all of its jitter."""
_WARMUP = 10.0
"""Seconds in which a state is fetched and a first transfer made, in worlds whose states are small."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds from the end of the last fault."""

    led: float
    """Every cluster has one leader, in whom all its peers believe (E5)."""
    known: float
    """All views of who is alive are equal, and right (G4)."""
    routed: float
    """Everybody has a route to everybody, of the right length, and to nobody else (R6 to R9)."""
    committed: float
    """Another round has committed (A7)."""
    complete: float
    """A round has committed in which every cluster takes part, joiners included (A11)."""
    crash: float
    """From a silent death to its being known by all (G1): twice what the protocol takes at its worst."""


def bounds(world: View) -> Bounds:
    """The deadlines of a world, for the worst of the profiles in it."""
    profiles = {cluster.profile for cluster in world.clusters.values()}
    every = [_bounds(world, profile) for profile in sorted(profiles)]
    return max(every, key=lambda bound: bound.complete)


def _bounds(world: View, profile: str) -> Bounds:
    preset = PRESETS[profile]
    numbers = Profiles.named(preset["local_profile"], preset["global_profile"], preset["restore_after"])
    clusters = max(2, len(world.clusters))
    workers = max(2, *(cluster.workers for cluster in world.clusters.values()))
    travel = 2 * max((link.delay + 5 * link.jitter for link in world.topology.every_link()), default=0.1)
    # A connection that was dead while nobody noticed ends by TCP's own timers; then it is dialed again.
    contact = KEEPALIVE + preset["global_timeouts"].connect + _REDIAL + 3 * travel
    elect = _detected(numbers.members, workers) + numbers.election.settle + 2 * numbers.election.repeat
    led = max(10 * numbers.members.probe_interval, contact + elect)
    known = led + 3 * antientropy.interval(numbers.mesh.push_pull_interval, clusters) + _refuted(numbers.mesh, clusters)
    exchanges = 3 * clusters * (travel + numbers.routing.trigger_most)
    lost = numbers.links.hold * numbers.links.hello_interval
    routed = led + lost + exchanges + sum(numbers.routing.retries) + numbers.routing.update_interval
    compute = max((c.workload.compute for c in world.clusters.values() if c.workload is not None), default=0.0)
    slices = preset["global_timeouts"].stall + numbers.rounds.suspect_grace + numbers.rounds.pause_max
    attempt = numbers.rounds.straggler(compute) + slices + 6 * travel + _WARMUP
    quorum = numbers.rounds.voter_grace + numbers.rounds.anti_entropy + numbers.rounds.backoff_max
    committed = led + _detected(numbers.mesh, clusters) + quorum + compute + 2 * attempt + numbers.rounds.restore_after
    complete = max(committed, known) + 2 * (compute + attempt)
    return Bounds(led, known, routed, committed, complete, 2 * _detected(numbers.mesh, clusters))


def _detected(profile: SwimProfile, members: int) -> float:
    """Seconds until everybody knows of a silent death: a probe's turn, its failure, the suspicion, the news."""
    turn = (2 * members - 1) * profile.probe_interval
    news = profile.gossip_interval * math.ceil(math.log(members, 1 + profile.gossip_fanout))
    return turn + profile.probe_interval + suspicion.limits(members, profile)[1] + news


def _refuted(profile: SwimProfile, members: int) -> float:
    """Seconds until somebody who is wrongly suspected has been heard by all."""
    return suspicion.limits(members, profile)[1] + profile.gossip_interval * members
