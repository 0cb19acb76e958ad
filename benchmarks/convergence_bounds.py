"""What the times of `convergence.py` are held against: formulas of the protocol and its profile, with their argument.

Those of membership and election are quantiles (when the first of n - 1 shuffled probe lists reaches the dead one, the
interval in which a probe fails, the shortest suspicion, the spread of the news), so that a run may exceed them. Those
of routing are the worst case of a mesh in which everybody has a connection to everybody. Each takes the number of
clusters and a quantile, and gives seconds.
"""

from __future__ import annotations

import math

from ictp2p.bulk.pacing import Watch
from ictp2p.config import Config
from ictp2p.gossip.link_profile import LinkProfile
from ictp2p.gossip.profile import SwimProfile
from ictp2p.gossip.suspicion import limits
from ictp2p.routing.profile import RoutingProfile
from ictp2p.sync.profile import RoundProfile

NEAREST, FARTHEST = 0.01, 0.08
"""Seconds one way between clusters, at least and at most."""
COMPUTE = 5.0
"""Seconds of an inner phase."""


def first_probe(members: int, profile: SwimProfile, quantile: float) -> float:
    """Seconds until somebody probes a given member.

    Turns come once per interval P. Every second one of the member's guard is for the member, at a moment that is
    uniform over 2 P. In every second turn each of the n - 2 others walks through its own shuffled list of n - 1, so it
    reaches the member at a moment that is uniform over 2 (n - 1) P. What counts is the first of these moments. Of two
    each asks the other in every turn.
    """
    turns, others = 2 * profile.probe_interval, members - 1
    if others == 1:
        return quantile * profile.probe_interval
    early, late = 0.0, turns
    while late - early > 1e-6:
        middle = (early + late) / 2
        unasked = (1 - middle / turns) * (1 - middle / (turns * others)) ** (others - 1)
        early, late = (middle, late) if unasked > 1 - quantile else (early, middle)
    return late


def spread(members: int, profile: SwimProfile) -> float:
    """Seconds for news to reach all: each round of gossip multiplies those who know by 1 + fan-out."""
    return profile.gossip_interval * math.ceil(math.log(members, 1 + profile.gossip_fanout))


def suspected(members: int, profile: SwimProfile, quantile: float) -> float:
    """Seconds from a silent death to its suspicion by all: a probe, the interval in which it fails, and the news."""
    return first_probe(members, profile, quantile) + profile.probe_interval + spread(members, profile)


def crash_known(clusters: int, quantile: float) -> float:
    """Seconds until all leaders know of a cluster's death.

    Suspicion, and then its shortest duration: the two confirmations that bring it down to that come from other
    probers meanwhile. With these formulas the pure protocol's simulated quantiles come out to within a second.
    """
    profile = SwimProfile.wan()
    return suspected(clusters, profile, quantile) + limits(clusters, profile)[0]


def leader_known(clusters: int, quantile: float) -> float:
    """Seconds until all know a cluster's new leader.

    The follower is alone with the dead one: its next probe, the interval in which that fails, and the shortest
    suspicion, which a group of two uses at once. It claims in the same instant, dials whom it is not connected to (two
    round trips with the handshake), and its record spreads.
    """
    inside = SwimProfile.lan()
    claimed = first_probe(2, inside, quantile) + inside.probe_interval + limits(2, inside)[0]
    return claimed + 4 * FARTHEST + spread(clusters, SwimProfile.wan()) + FARTHEST


def routed(clusters: int, quantile: float) -> float:
    """Seconds until every pair has a working route.

    The dead link is noticed by its missing hellos, of which the last was still on its way. Its ends tell all who went
    over it that this way is lost; these find another, and tell that. It is longer than the one before, so it may not be
    used yet (feasibility): a request for a fresh sequence number goes to the destination, and its answer comes back.
    Both are passed on at once, over two relays at most: in a full mesh a router that still waits to tell of its own new
    way may lead another's, but each leads to the destination by no more than one that it took to be nearer.
    """
    links, routing = LinkProfile.wan(), RoutingProfile.wan()
    del clusters, quantile  # the worst case of every mesh that stays fully connected but for one link
    noticed = links.hold * links.hello_interval + NEAREST
    return noticed + FARTHEST + routing.trigger_delay + FARTHEST + 2 * 3 * FARTHEST


def unrouted(clusters: int, quantile: float) -> float:
    """Seconds until nobody has a route to a cluster that died.

    Its neighbours miss its hellos and take their routes back; whoever loses one looks for another, which is of the same
    past and goes as well. A retraction passes every node once, at most.
    """
    routing = RoutingProfile.wan()
    return routed(clusters, quantile) + clusters * (FARTHEST + routing.trigger_delay)


def at_rest(clusters: int, quantile: float) -> float:
    """Seconds until no table changes any more.

    Noticing, and at most 3 N exchanges (a retraction, a request and its answer each pass every node once) with the
    first three repeats of a request; then one dump, whose metrics may still move a choice among equals, and the time
    for which a slightly better route must stay better.
    """
    routing = RoutingProfile.wan()
    exchange = FARTHEST + routing.trigger_delay
    return routed(clusters, quantile) + 3 * clusters * exchange + sum(routing.retries) + (
        routing.update_interval + routing.settle
    )  # fmt: skip


def committed(clusters: int, quantile: float) -> float:
    """Seconds to the next commit after the leader of a cluster of two died in a round that was just opened.

    All know the heir. By then whoever waits for bytes of the dead one has seen nothing of it for long enough, and finds
    that at its next look at the connection; the attempt is aborted, and the next one opens with the heir. Three slots,
    a vote, and one repeat of a message. Where all of its bytes had come the attempt itself commits, which is sooner.
    """
    look = Config.wan(cluster="a", token="t" * 32).global_timeouts.stall / Watch.CHECKS
    return leader_known(clusters, quantile) + look + RoundProfile.wan().retry + 8 * 2 * FARTHEST


def committed_after_crash(clusters: int, quantile: float) -> float:
    """Seconds to the next commit after a whole cluster died at any moment.

    An inner phase may have to end first. All suspect the dead one; the others get the grace to finish; the attempt is
    aborted, and the next one opens once those who were in it are READY, or after the straggler timeout. Three slots, a
    vote, and one repeat of a message.
    """
    rounds = RoundProfile.wan()
    waits = rounds.suspect_grace + rounds.straggler(COMPUTE) + rounds.retry
    return COMPUTE + suspected(clusters, SwimProfile.wan(), quantile) + waits + 8 * 2 * FARTHEST


def given_up(profile: str) -> float:
    """Seconds until an attempt is given up over a line that was cut.

    Its link counts as lost after `hold` hello intervals in which nothing was heard, or in which the other end heard
    nothing: that one is told in echoes, which may be one more interval old. Who has something under way looks a few
    times per stall deadline whether that is so.
    """
    links, config = getattr(LinkProfile, profile)(), getattr(Config, profile)(cluster="a", token="t" * 32)
    return (links.hold + 1) * links.hello_interval + config.global_timeouts.stall / Watch.CHECKS
