"""The types of what a peer shows: the rows of `Peer.members`, `clusters`, `links` and `routes`, and `Peer.status()`.

Every row of a kind has all of its keys, so a program may index them; what is not known is None, or empty where that is
said. Times are seconds, bandwidths bytes per second. All of it is plain data that JSON can hold.
"""

from __future__ import annotations

from typing import Literal, TypedDict

Presence = Literal["alive", "suspect", "dead", "left"]
"""What is believed of a worker or a cluster."""


class MemberRow(TypedDict):
    """A worker of this peer's cluster."""

    peer: str
    status: Presence
    status_for: int
    """Whole seconds since this peer saw the status change."""
    address: str
    """`host:port` where it can be dialed; empty if nobody can, or before it has said."""
    device: str
    """What it computes on, such as `cpu`, or the model of a GPU; empty before it has said."""
    library: str
    """The collective library that torch has for this device, such as `nccl`; empty if there is none."""
    leader: bool
    """Whether it leads the cluster, as far as this peer knows."""


class ClusterRow(TypedDict):
    """A cluster of the mesh."""

    cluster: str
    status: Presence
    status_for: int | None
    """As a member's; None of the own cluster at a follower."""
    leader: str | None
    address: str
    """Where its leader can be dialed; empty if nobody can, or before it has said."""
    term: int | None
    workers: int
    """How many it has; 0 before it has said."""
    training: bool | None
    """Whether rounds wait for it; None before it has said."""
    state_version: int | None
    """Which version of the state it holds; None at a follower, whose leader does not pass this on."""


# "from" is a keyword, so this one cannot be written as a class.
LinkRow = TypedDict(
    "LinkRow",
    {
        "from": str,
        "to": str,
        "bandwidth_out": float | None,
        "bandwidth_in": float | None,
        "round_trip": float | None,
        "loss": float,
    },
)
"""The direct link from one cluster to another, as the leader of the first one measures it.

`bandwidth_out` and `bandwidth_in` are bytes per second, `round_trip` is the shortest one of late in seconds, and `loss`
the share of Hellos that nobody answered, from 0 to 1. None: nobody has measured it yet.
"""


class RouteRow(TypedDict):
    """A route from this peer's cluster to another one, in one class of bandwidth."""

    destination: str
    next_hop: str
    """The cluster that it goes over first."""
    traffic_class: int
    """0 takes any link, also those that nobody has measured; each further class takes only faster ones."""
    delay: float
    """Seconds one way."""
    bandwidth: float | None
    """Bytes per second that every link on the way was measured to have at least; None in class 0."""


class Decision(TypedDict):
    """The newest decision that a peer knows in the chain of all; None, and no voters, if it knows none."""

    slot: int | None
    """Its place in the chain, from 0."""
    round: int | None
    attempt: int | None
    decision: str | None
    """What was decided: `voters`, `open`, `close` or `restore`."""
    state_version: int | None
    """Of the agreed state."""
    state_digest: str | None
    """Of the agreed state, in hexadecimal."""
    voters: list[str]
    """Who decides what comes next."""


class StatusDocument(Decision):
    """Everything that one peer believes."""

    peer: str
    cluster: str
    address: str
    """`host:port` where others can dial it; empty if nobody can."""
    life: str
    """`Peer.state`."""
    phase: str
    """Its state in each other table that it is in: `TABLE/STATE, TABLE/STATE`."""
    leading: bool
    """Whether it leads its cluster."""
    leader: str | None
    """Who leads its cluster, as far as it knows."""
    term: int
    """Of that leader."""
    group: str
    """The process group of its cluster, in words; empty if there is none."""
    missing_voters: list[str]
    """Those of the voters that are suspected, in words: the peer, its cluster, its address."""
    waiting: str
    """For whom or what it waits, in words."""
    members: list[MemberRow]
    clusters: list[ClusterRow]
    links: list[LinkRow]
    routes: list[RouteRow]
