"""Pictures of a run: the mesh and its routes before and after, and under them who lived, led and committed when.

They are drawn from the report alone, so that an old report can be drawn again. matplotlib is only needed here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ictp2p.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HOST_ROWS = 40  # with more hosts, a row stands for a cluster
_STATES = {"up": "#dbe9f6", "down": "#f4c7c3", "left": "#e8e8e8", "to come": "#ffffff"}
_BLUE, _ORANGE, _RED, _GREY = "#2b6cb0", "#dd6b20", "#c53030", "#b8c0c8"
_PNG = ".png"
_ARROWS = 16  # with more clusters, routes are lines
Places = Mapping[str, tuple[float, float]]


def require(path: Path) -> None:
    """Make sure that a picture can be drawn, of the kind that a file's name asks for.

    Raises:
        ConfigError: matplotlib is not installed, or does not know this kind of file.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("pictures need matplotlib: pip install 'ictp2p[demo]', or leave --plot out") from error
    kinds = sorted(Figure().canvas.get_supported_filetypes())
    if _kind(path) not in kinds:
        raise ConfigError(f"--plot {path}: {_kind(path)!r} is not supported: use one of {', '.join(kinds)}")


def _kind(path: Path) -> str:
    return (path.suffix or _PNG)[1:].lower()


def draw(told: Mapping[str, Any], path: Path) -> None:
    """Write the picture of a report, as PNG, SVG or PDF by the file's name.

    Raises:
        ConfigError: matplotlib is not installed, or does not know this kind of file.
    """
    require(path)
    from matplotlib.figure import Figure

    shots = _chosen(told.get("snapshots", []))
    rows = _rows(told.get("hosts", []))
    height = 1.5 + 0.19 * len(rows)
    above = 5.0 if shots else 0.0
    figure = Figure(figsize=(14, above + max(height, 2.5) + 0.8), layout="constrained")
    if shots:
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(above, max(height, 2.5)))[:, 0]
        for axes, shot in zip(upper.subplots(1, len(shots), squeeze=False)[0], shots, strict=True):
            _draw_mesh(axes, shot)
        upper.supxlabel(_legend(shots), fontsize=8, color="#4a5568")
    else:
        lower = figure.subfigures(1, 1, squeeze=False)[0, 0]
    _draw_timeline(lower.subplots(), told, rows)
    verdict = "all was seen that had to be" if told["ok"] else "FAILED"
    figure.suptitle(f"{told['scenario']}, seed {told['seed']}: {verdict}")
    figure.savefig(path, dpi=110, format=_kind(path))


# ---------------------------------------------------------------- the mesh


def _chosen(shots: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most three: the first, the last, and one from between."""
    return shots if len(shots) <= 3 else [shots[0], shots[len(shots) // 2], shots[-1]]


def _draw_mesh(axes: Axes, shot: Mapping[str, Any]) -> None:
    names = [row["cluster"] for row in shot["clusters"]]
    turn = 2 * math.pi / max(len(names), 1)
    places = {name: (math.sin(n * turn), math.cos(n * turn)) for n, name in enumerate(names)}
    _draw_links(axes, shot["links"], places)
    _draw_routes(axes, shot["routes"], places)
    _draw_clusters(axes, shot["clusters"], places)
    axes.set_title(f"{shot['label']}, at {shot['at']:.0f} s", fontsize=11)
    axes.set_xlim(-1.6, 1.6)
    axes.set_ylim(-1.5, 1.5)
    axes.set_aspect("equal")
    axes.axis("off")


def _draw_links(axes: Axes, links: list[dict[str, Any]], places: Places) -> None:
    cut = {(row["from"], row["to"]) for row in links if row["cut"]}
    slow = _slow(links)
    for row in links:
        pair = (row["from"], row["to"])
        a, b = places[pair[0]], places[pair[1]]
        if pair in cut and (pair[::-1] not in cut or pair[0] < pair[1]):
            one_way = pair[::-1] not in cut
            cut_line = axes.annotate(
                "", xy=_short(b, a), xytext=_short(a, b), zorder=3,
                arrowprops={"arrowstyle": "->" if one_way else "-", "color": _RED, "linestyle": ":", "linewidth": 1.1},
            )  # fmt: skip
            cut_line.set_in_layout(False)
        elif pair in slow and pair[0] < pair[1]:
            axes.plot([a[0], b[0]], [a[1], b[1]], color=_ORANGE, linewidth=4, alpha=0.45, zorder=1)


def _slow(links: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Links with less than half of the usual bandwidth."""
    known = sorted(row["bandwidth"] for row in links if row["bandwidth"] is not None)
    usual = known[len(known) // 2] if known else 0.0
    return {(row["from"], row["to"]) for row in links if row["bandwidth"] is not None and row["bandwidth"] < usual / 2}


def _draw_routes(axes: Axes, routes: list[dict[str, Any]], places: Places) -> None:
    """Draw which hops are taken: direct ones in grey, in blue those that carry others' traffic too."""
    carried: dict[tuple[str, str], int] = {}
    for row in routes:
        hop = (row["from"], row["next_hop"])
        carried[hop] = carried.get(hop, 0) + (row["next_hop"] != row["to"])
    for (a, b), others in sorted(carried.items()):
        if a in places and b in places:
            _draw_hop(axes, places[a], places[b], others, crowded=len(places) > _ARROWS)


def _draw_hop(axes: Axes, a: tuple[float, float], b: tuple[float, float], others: int, *, crowded: bool) -> None:
    if crowded or not others:  # arrows are slow to draw, and nobody could see their heads
        colour, width = (_BLUE, 1.0) if others else (_GREY, 0.4 if crowded else 1.0)
        axes.plot([a[0], b[0]], [a[1], b[1]], color=colour, linewidth=width, alpha=0.3 if crowded else 0.9, zorder=1.5)
        return
    arrow = axes.annotate(
        "", xy=_short(b, a), xytext=_short(a, b), zorder=2,
        arrowprops={
            "arrowstyle": "->", "color": _BLUE, "linewidth": min(0.8 + 0.5 * others, 4.0), "alpha": 0.9,
            "connectionstyle": "arc3,rad=0.12",
        },
    )  # fmt: skip
    arrow.set_in_layout(False)


def _draw_clusters(axes: Axes, clusters: list[dict[str, Any]], places: Places) -> None:
    crowded = len(clusters) > 24
    for row in clusters:
        x, y = places[row["cluster"]]
        axes.plot(
            x, y, marker="s" if row["nat"] else "o", markersize=5 if crowded else 19, zorder=4,
            markerfacecolor=_STATES[row["state"]], markeredgecolor="#2d3748" if row["state"] == "up" else _RED,
        )  # fmt: skip
        if not crowded:
            axes.text(x, y, str(row["workers"]), ha="center", va="center", fontsize=9, zorder=5)
            note = row["cluster"] if row["state"] == "up" else f"{row['cluster']}\n({row['state']})"
            leader = row["leader"].partition("/")[2]
            note += f"\nled by /{leader}" if leader and row["state"] == "up" else ""
            axes.text(1.3 * x, 1.27 * y, note, ha="center", va="center", fontsize=8, zorder=5)


def _legend(shots: list[dict[str, Any]]) -> str:
    words = ["number: workers", "grey: direct routes", "blue: hops that carry others' traffic"]
    if any(row["cut"] for shot in shots for row in shot["links"]):
        words.append("red dots: cut")
    if any(_slow(shot["links"]) for shot in shots):
        words.append("orange: slow link")
    if any(row["nat"] for shot in shots for row in shot["clusters"]):
        words.append("square: cannot be dialed")
    return "; ".join(words)


def _short(end: tuple[float, float], start: tuple[float, float]) -> tuple[float, float]:
    """The point a little before `end`, so that lines do not run under the circles."""
    length = math.dist(end, start) or 1.0
    back = min(0.12, length / 3) / length
    return end[0] + (start[0] - end[0]) * back, end[1] + (start[1] - end[1]) * back


# ---------------------------------------------------------------- the timeline


def _rows(hosts: list[dict[str, Any]]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Label, cluster and hosts of each row, from the top."""
    if len(hosts) <= _HOST_ROWS:
        return [(host["host"], host["cluster"], [host]) for host in hosts]
    clusters: dict[str, list[dict[str, Any]]] = {}
    for host in hosts:
        clusters.setdefault(host["cluster"], []).append(host)
    return [(name, name, found) for name, found in clusters.items()]


def _draw_timeline(axes: Axes, told: Mapping[str, Any], rows: list[tuple[str, str, list[dict[str, Any]]]]) -> None:
    end = told.get("virtual_seconds", 1.0)
    lines: dict[str, list[tuple[int, list[list[float]]]]] = {}
    for n, (_, cluster, hosts) in enumerate(rows):
        lines.setdefault(cluster, []).append((-n, [interval for host in hosts for interval in host["leads"]]))
        for host in hosts:
            _bars(axes, host["up"], -n, "#dbe9f6", 0.7, 1)
            _bars(axes, host["leads"], -n, "#90b8de", 0.7, 2)
    for row in told.get("rounds", []):
        _draw_round(axes, row, lines)
    _draw_faults(axes, told.get("faults", []), end)
    axes.set_xlim(-0.01 * end, 1.01 * end)
    axes.set_ylim(-len(rows) + 0.4, 0.6)
    if len(rows) <= 64:
        axes.set_yticks([-n for n in range(len(rows))], [label for label, _, _ in rows], fontsize=7)
    else:
        axes.set_yticks([])
        axes.set_ylabel(f"{len(rows)} clusters")
    axes.set_xlabel(
        "virtual seconds.  pale: runs; blue: leads; green: a round, from its opening to its commit; "
        "red cross: an aborted attempt; dashed: a fault", fontsize=8,
    )  # fmt: skip
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _bars(axes: Axes, intervals: list[list[float]], y: float, colour: str, height: float, order: int) -> None:
    bars = [(start, stop - start) for start, stop in intervals]
    axes.broken_barh(bars, (y - height / 2, height), facecolors=colour, zorder=order)


def _draw_round(axes: Axes, row: Mapping[str, Any], lines: Mapping[str, list[tuple[int, list[list[float]]]]]) -> None:
    """Draw it where the leaders of the clusters in it are."""
    for cluster in row["participants"]:
        found = lines.get(cluster, [])
        if not found:
            continue
        led = [y for y, leads in found if any(start <= row["opened"] < stop for start, stop in leads)]
        middle = led[0] if led else found[0][0]
        if row["outcome"] == "committed":
            span = row["ended"] - row["opened"]
            axes.broken_barh([(row["opened"], span)], (middle - 0.14, 0.28), facecolors="#2f855a", zorder=3)
            axes.plot(row["ended"], middle, marker="o", markersize=3.5, color="#22543d", zorder=4)
        elif row["outcome"] == "aborted":
            axes.plot(row["ended"], middle, marker="x", markersize=5, color=_RED, zorder=4)


def _draw_faults(axes: Axes, faults: list[dict[str, Any]], end: float) -> None:
    labelled, last, level = "", -math.inf, 0
    for row in faults:
        axes.axvline(row["at"], color=_RED, linestyle="--", linewidth=0.8, zorder=5)
        level = (level + 1) % 3 if row["at"] - last < 0.16 * end else 0
        text = row["what"] if len(row["what"]) <= 72 else f"{row['what'][:70]}.."
        if len(faults) <= 12 and text != labelled:
            axes.annotate(text, (row["at"], 1.0), xycoords=("data", "axes fraction"), xytext=(2, 3 + 9 * level),
                          textcoords="offset points", fontsize=7, color=_RED, annotation_clip=False)  # fmt: skip
        labelled, last = text, row["at"]
