"""What a peer tells of what its stack noticed: notices as events, for programs, displays and logs.

A notice is a value between two parts of the program and may change with them; an event is read outside of it, so its
name and its fields are kept. What rounds do is told where they are joined with tensors (`participation`), which knows
how many bytes they took.
"""

from __future__ import annotations

from ictp2p.core import commands
from ictp2p.core.directory import Directory
from ictp2p.gossip.election import LeaderChanged
from ictp2p.machine import Notice
from ictp2p.routing.babel import RouteChanged
from ictp2p.runtime.alarms import announce
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.rosters.roster import RosterChanged
from ictp2p.sync.values import Open
from ictp2p.telemetry import Telemetry
from ictp2p.types import ClusterId


def tell(telemetry: Telemetry, directory: Directory, notice: Notice) -> None:
    """Tell of a notice, if it is one that people or programs want to hear of; `directory` is that of its peer."""
    cluster = directory.me.cluster
    match notice:
        case LeaderChanged(leader=leader, term=term):
            telemetry.event("leader", cluster=cluster, leader=leader, term=term)
        case commands.MemberChanged(scope=scope, member=member, status=status):
            telemetry.event("member", scope=scope, member=member, status=status)
        case commands.Violated():
            telemetry.event("warning", text=_violation(notice))
        case commands.Crowded(workers=workers, listed=listed):
            text = f"{cluster} has {workers} workers, of which the mesh knows {listed}: the others have no vote"
            telemetry.event("warning", text=f"{text}; split the cluster")
        case RosterChanged(roster=roster):
            telemetry.event("roster", members=list(roster.members), generation=list(roster.generation))
        case RouteChanged(destination=destination, next_hop=hop, traffic_class=traffic_class):
            telemetry.event("route", destination=destination, next_hop=hop, traffic_class=traffic_class)
        case Decided(value=Open(misfits=misfits) as opened) if misfits:
            _go_on_without(telemetry, cluster, opened)
        case _:
            announce(telemetry, directory, notice)


def _go_on_without(telemetry: Telemetry, cluster: ClusterId, opened: Open) -> None:
    """Who was turned away gets an error; those who take part would only see a result, of fewer than they think."""
    names = [part.cluster for part in opened.participants]
    if cluster in names:
        text = f"round {opened.round} goes on with {', '.join(names)} only: {opened.misfits}"
        telemetry.event("warning", text=text, round=opened.round)


def _violation(notice: commands.Violated) -> str:
    """Who broke the protocol is known only of what came over its own connection."""
    if notice.source == notice.bearer:
        return f"{notice.bearer} broke the protocol: {notice.text}"
    what = f"a packet in the name of {notice.source}, passed on by {notice.bearer}, breaks the protocol"
    return f"{what} (whose it is, is not proven): {notice.text}"
