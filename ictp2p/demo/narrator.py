"""What is worth a line: six workers report each happening, and it is told once."""

from __future__ import annotations

from collections.abc import Mapping

from ictp2p.demo.lines import Event
from ictp2p.demo.report import Record, clusters

MEGA = 1e6


class Narrator:
    """Turns events into lines, each happening once."""

    def __init__(self, started_at: float, names: Mapping[str, str]) -> None:
        self._started_at = started_at
        self._names = names
        self._said: set[tuple[object, ...]] = set()
        self._routes: dict[tuple[str, str], str | None] = {}

    def tell(self, worker: str, cluster: str, event: Event) -> str | None:
        """The line for an event, or None if it is not worth one, or was told already."""
        text = self._describe(worker, cluster, event)
        return None if text is None else f"{event['time'] - self._started_at:6.1f} s  {text}"

    def _describe(self, worker: str, cluster: str, event: Event) -> str | None:
        match event["kind"]:
            case "ready":
                return f"{worker} listens on {event['address']} as {event['peer'][:8]}"
            case "leader" if self._once("leader", event["cluster"], event["term"], event["leader"]):
                return f"{event['cluster']} is led by {self._name(event['leader'])}, term {event['term']}"
            case "route" if event.get("traffic_class", 0) == 0:
                return self._route(cluster, event["destination"], event["next_hop"])
            case "member" if self._once("member", event["member"], event["status"]):
                status = str(event["status"]).lower()
                verb = "has" if status == "left" else "is"
                return None if status == "alive" else f"{self._name(event['member'])} {verb} {status}"
            case "round_committed" if self._once("round", event["round"], event["attempt"]):
                return f"round {event['round']}{_attempt(event)} committed by {_by(event)}; {_cost(cluster, event)}"
            case "round_aborted" if self._once("round", event["round"], event["attempt"]):
                return f"round {event['round']}{_attempt(event)} aborted: {event['reason']}"
            case "state_fetched":
                providers = len(event["providers"])
                return (
                    f"{worker} fetched version {event['version']}: {event['bytes'] / MEGA:.1f} MB "
                    f"from {providers} peer{'s' * (providers != 1)} in {event['seconds']:.2f} s"
                )
            case "warning":
                return f"{worker} warns: {event['text']}"
            case "drained":
                return f"{worker} has drained"
            case _:
                return None

    def _route(self, cluster: str, destination: str, next_hop: str | None) -> str | None:
        if self._routes.get((cluster, destination), "") == next_hop:
            return None
        self._routes[cluster, destination] = next_hop
        way = {None: "none", destination: "direct"}.get(next_hop, f"through {next_hop}")
        return f"route {cluster} -> {destination}: {way}"

    def _once(self, *what: object) -> bool:
        fresh = what not in self._said
        self._said.add(what)
        return fresh

    def _name(self, member: str) -> str:
        return self._names.get(member, member)


def summary(record: Record) -> str:
    """The state of training on one line, for beside the bar."""
    newest = {loss["cluster"]: float(loss["loss"]) for loss in record.losses}
    parts = [
        f"loss {sum(newest.values()) / len(newest):.2f}" if newest else "",
        f"validation {record.validation[-1]['loss']:.2f}" if record.validation else "",
        f"version {record.version}",
        f"{sum(r.bytes for r in record.rounds.values()) / MEGA:.0f} MB sent",
    ]
    return "  ".join(part for part in parts if part)


def _attempt(event: Event) -> str:
    return f" (attempt {event['attempt']})" if event["attempt"] > 1 else ""


def _by(event: Event) -> str:
    return ", ".join(clusters(event))


def _cost(cluster: str, event: Event) -> str:
    sent, received = (event.get(name, 0) / MEGA for name in ("bytes_sent", "bytes_received"))
    return f"{event['seconds']:.2f} s, {sent:.1f} MB out and {received:.1f} MB in at {cluster}, {event['plan']}"
