"""Meshes as gossip tells of them, and rounds to plan on them."""

from __future__ import annotations

from ictp2p.collectives import plan as plans
from ictp2p.core.cards import ClusterCard, LinkCard, PeerCard
from ictp2p.core.directory import Directory
from ictp2p.sync.rounds.opening import PlanQuestion
from ictp2p.sync.values import Participant, Spec
from ictp2p.types import ClusterId, PeerId

MB = 1e6


def directory(links: dict[tuple[str, str], float], limits: dict[str, float] | None = None) -> Directory:
    """Clusters a, b, ... each led by peer of the same name in capitals, with symmetric links in bytes/s."""
    names = sorted({name for pair in links for name in pair})
    found = Directory(PeerCard(PeerId("me"), ClusterId("none"), "", bytes(32)))
    for name in names:
        cards = tuple(
            LinkCard(ClusterId(other), rate, rate, 0.02, 0.0)
            for (a, b), rate in sorted(links.items())
            for mine, other in ((a, b), (b, a))
            if mine == name
        )
        leader = PeerId(name.upper())
        worker = PeerCard(leader, ClusterId(name), "", bytes(32))
        up = (limits or {}).get(name, 0.0)
        found.learn_cluster(ClusterCard(ClusterId(name), leader, 1, (worker,), links=cards, up=up))
    return found


def request(
    *names: str, failures: tuple[tuple[str, str], ...] = (), kind: str = "reduce", name: str = "x"
) -> PlanQuestion:
    spec = Spec(kind, name, "float32", 1_000_000, "avg", "none")  # type: ignore[arg-type]
    participants = tuple(Participant(ClusterId(n), PeerId(n.upper()), 1, 1.0) for n in names)
    pairs = tuple((PeerId(a), PeerId(b)) for a, b in failures)
    return PlanQuestion(1, 1, spec, participants, pairs)


def edges(plan: plans.Plan) -> set[frozenset[str]]:
    """Which pairs exchange anything."""
    used = set()
    for share in plan.shares:
        if share.stop > share.start:
            for parents in (share.reduce_parents, share.broadcast_parents):
                used |= {
                    frozenset((plan.participants[i], plan.participants[p])) for i, p in enumerate(parents) if p >= 0
                }
    return used


ALL = {("a", "b"): 10 * MB, ("a", "c"): 10 * MB, ("b", "c"): 10 * MB}
