"""What a peer shows of itself: the document behind `Peer.status()` and `ictp2p status`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ictp2p.core.stack import Core
from ictp2p.gossip.table import Member
from ictp2p.rows import ClusterRow, Decision, LinkRow, MemberRow, Presence, RouteRow, StatusDocument
from ictp2p.sync.rosters.wording import ailing, without
from ictp2p.sync.values import Value
from ictp2p.types import ClusterId, PeerId


def status_of(core: Core, life: str, inside: Mapping[str, str], now: float) -> StatusDocument:
    """Everything that one peer believes, as plain data: scalars, lists of rows, nothing nested deeper.

    Args:
        core: its control plane.
        life: its state in the table LIFE.
        inside: its state in each other table that it is in.
        now: its clock, monotonic seconds.
    """
    return {
        "peer": core.card.peer,
        "cluster": core.card.cluster,
        "address": core.card.address,
        "life": life,
        "phase": ", ".join(f"{table}/{state}" for table, state in inside.items()),
        "leading": core.leading,
        "leader": core.leader,
        "term": core.m.election.term,
        "group": _group(core),
        **_newest(core.m.rounds.tip),
        "missing_voters": [core.directory.in_words(voter) for voter in core.m.rounds.agreement.missing],
        "waiting": core.m.rounds.explain(),
        "members": members_of(core, now),
        "clusters": clusters_of(core, now),
        "links": links_of(core),
        "routes": routes_of(core),
    }


def _newest(tip: tuple[int, Value] | None) -> Decision:
    """The newest decision that is known."""
    if tip is None:
        return {
            "slot": None,
            "round": None,
            "attempt": None,
            "decision": None,
            "state_version": None,
            "state_digest": None,
            "voters": [],
        }
    slot, value = tip
    return {
        "slot": slot,
        "round": value.round,
        "attempt": value.attempt,
        "decision": type(value).__name__.lower(),
        "state_version": value.state.version,
        "state_digest": value.state.digest.hex(),
        "voters": list(value.voters),
    }


def _group(core: Core) -> str:
    """The process group of this cluster in words: how large it is, whom it goes on without, and what broke the last."""
    roster = core.m.rosters.roster
    if roster is None:
        return ""
    words = [f"{len(roster.members)} of {len(core.m.members.alive())} workers"]
    words += [without(PeerId(peer), core.directory.in_words) for peer in roster.absent]
    if roster.trouble is not None and roster.trouble.times > 1:  # one may be of a death, which the members show
        words.append(f"those before it {ailing(roster.trouble, core.directory.in_words)}")
    return "; ".join(words)


def members_of(core: Core, now: float) -> list[MemberRow]:
    """The workers of this peer's cluster."""
    rows: list[MemberRow] = []
    for name, member in sorted(core.m.members.members.items()):
        card = core.directory.peers.get(PeerId(name))
        rows.append(
            {
                "peer": name,
                "status": _presence(member),
                "status_for": _seconds(member, now),
                "address": card.address if card else "",
                "device": (card.device.model or card.device.kind) if card else "",
                "library": card.device.library if card else "",
                "leader": name == core.leader,
            }
        )
    return rows


def clusters_of(core: Core, now: float) -> list[ClusterRow]:
    """The clusters of the mesh. Which version each holds is known to leaders alone, who do not tell their followers."""
    own = core.own_view()
    rows = [
        _cluster(core, ClusterId(name), _presence(member), _seconds(member, now))
        for name, member in core.m.mesh.members.items()
    ]
    if own is not None and all(row["cluster"] != own.cluster for row in rows):
        rows.append(_cluster(core, own.cluster, "alive", None))
    return sorted(rows, key=lambda row: str(row["cluster"]))


def _seconds(member: Member, now: float) -> int:
    return max(0, round(now - member.since))


def _presence(member: Member) -> Presence:
    return cast("Presence", member.status.name.lower())


def _cluster(core: Core, name: ClusterId, status: Presence, seconds: int | None) -> ClusterRow:
    card = core.directory.clusters.get(name)
    leader = card.worker(PeerId(card.leader)) if card else None
    return {
        "cluster": name,
        "status": status,
        "status_for": seconds,
        "leader": card.leader if card else None,
        "address": leader.address if leader else "",
        "term": card.term if card else None,
        "workers": len(card.workers) if card else 0,
        "training": card.training if card else None,
        "state_version": card.version if card and core.leading else None,
    }


def links_of(core: Core) -> list[LinkRow]:
    """The links of all clusters, as their leaders measure them.

    A follower that plans no rounds has them as they were when its leader last had other news of the mesh.
    """
    return [
        {
            "from": card.cluster,
            "to": link.neighbour,
            "bandwidth_out": link.bandwidth_out or None,
            "bandwidth_in": link.bandwidth_in or None,
            "round_trip": link.round_trip or None,
            "loss": link.loss,
        }
        for card in sorted(core.directory.clusters.values(), key=lambda c: c.cluster)
        for link in card.links
    ]


def routes_of(core: Core) -> list[RouteRow]:
    """The routes in use from this peer's cluster, if it leads one."""
    return [
        {
            "destination": route.destination,
            "next_hop": route.next_hop,
            "traffic_class": route.traffic_class,
            "delay": route.delay,
            "bandwidth": route.bandwidth if route.traffic_class > 0 else None,
        }
        for route in core.m.routes.routes()
        if route.destination != core.card.cluster
    ]
