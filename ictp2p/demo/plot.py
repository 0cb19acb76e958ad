"""The picture at the end: losses over time with the events marked, and under it who took part in which round."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ictp2p.demo.report import cost

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKS = {"kill": "tab:red", "stop": "tab:red", "join": "tab:green", "drain": "tab:orange"}


def draw(report: dict[str, Any], path: Path) -> None:
    """Write the PNG of a report.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.5), layout="constrained")
    losses, rounds = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    clusters = sorted({name for row in report["rounds"] for name in row["participants"]})
    colours = {cluster: f"C{index}" for index, cluster in enumerate(clusters)}
    _draw_losses(losses, report, colours)
    _draw_rounds(rounds, report, colours)
    for axes in (losses, rounds):
        _draw_events(axes, report, labelled=axes is losses)
    figure.suptitle("One training run through a death, a join and a leave")
    figure.savefig(path, dpi=120, format="png")


def _draw_losses(axes: Axes, report: dict[str, Any], colours: dict[str, str]) -> None:
    start = report["started_at"]
    for cluster, colour in colours.items():
        points = sorted((x["time"] - start, x["loss"]) for x in report["losses"] if x["cluster"] == cluster)
        axes.plot(*_columns(points), color=colour, linewidth=0.8, alpha=0.7, label=f"training, {cluster}")
    points = sorted((x["time"] - start, x["loss"]) for x in report["validation"])
    axes.plot(*_columns(points), color="black", marker="o", markersize=3, label="validation, global parameters")
    axes.set_ylabel("loss (nats per byte)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center right")


def _draw_rounds(axes: Axes, report: dict[str, Any], colours: dict[str, str]) -> None:
    rows = {cluster: -index for index, cluster in enumerate(colours)}
    for row in report["rounds"]:
        if row["outcome"] == "open":
            continue
        when = row["time"] - report["started_at"]
        marker = "o" if row["outcome"] == "committed" else "x"
        for cluster in row["participants"]:
            axes.plot(when, rows[cluster], marker=marker, color=colours[cluster], markersize=5)
    axes.set_yticks(list(rows.values()), list(rows))
    axes.set_ylim(-len(rows) + 0.4, 0.6)
    axes.set_ylabel("rounds")
    axes.set_xlabel("seconds (o committed, x aborted)")
    axes.grid(alpha=0.3)


def _draw_events(axes: Axes, report: dict[str, Any], *, labelled: bool) -> None:
    for number, event in enumerate(report["events"]):
        begun = event["time"] + event.get("start_seconds", 0.0)  # of who joins once it is ready, as what it took is
        when = begun - report["started_at"]
        colour = _MARKS.get(event["kind"], "grey")
        axes.axvline(when, color=colour, linestyle="--", linewidth=1)
        if labelled:
            text = f"{event['kind']} {event['cluster']}\n{cost(event, digits=1)}"
            axes.annotate(text, (when, 1.0), xycoords=("data", "axes fraction"), xytext=(3, -4 - 30 * number),
                          textcoords="offset points", va="top", fontsize="small", color=colour)  # fmt: skip


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
