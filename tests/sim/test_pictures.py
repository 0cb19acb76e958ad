"""Pictures are drawn from reports, whatever is in them, and are optional."""

import sys
from pathlib import Path
from typing import Any

import pytest

from ictp2p.errors import ConfigError
from sim import pictures
from sim.command import main


def report(clusters: int = 3, workers: int = 2) -> dict[str, Any]:
    names = [f"c{n}" for n in range(clusters)]
    states = ("up", "down", "left", "to come")
    pairs = [(a, b) for a in names for b in names if a != b]
    shot = {
        "label": "before",
        "at": 3.0,
        "clusters": [
            {"cluster": n, "state": states[i % 4], "workers": 2, "leader": f"{n}/0", "nat": i == 1, "up": None}
            for i, n in enumerate(names)
        ],
        "links": [
            {"from": a, "to": b, "delay": 0.1, "bandwidth": 1e3 if (a, b) == ("c0", "c1") else 1e6, "cut": b == "c2"}
            for a, b in pairs
        ],
        "routes": [{"from": a, "to": b, "next_hop": "c1" if "c1" not in (a, b) else b, "class": 0} for a, b in pairs],
    }
    hosts = [
        {"host": f"{n}/{k}", "cluster": n, "up": [[0.0, 4.0], [5.0, 9.0]], "leads": [[1.0, 4.0]]}
        for n in names
        for k in range(workers)
    ]
    rounds = [
        {"participants": names, "outcome": outcome, "opened": at, "ended": None if outcome == "open" else at + 1.0}
        for at, outcome in enumerate(("committed", "aborted", "open"))
    ]
    faults = [{"at": float(n), "what": f"Cut a=c0 b=c{n} and a very long explanation of why"} for n in range(3)]
    return {
        "scenario": "made_up", "seed": 1, "ok": True, "virtual_seconds": 9.0, "snapshots": [shot] * 4,
        "hosts": hosts, "rounds": rounds, "faults": faults,
    }  # fmt: skip


@pytest.mark.parametrize(("name", "head"), [("run.png", b"\x89PNG"), ("run.svg", b"<?xml"), ("run.pdf", b"%PDF")])
def test_the_name_says_what_kind_of_picture(tmp_path: Path, name: str, head: bytes) -> None:
    pytest.importorskip("matplotlib")
    pictures.draw(report(), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(head)


def test_many_hosts_and_clusters_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures.draw(report(clusters=26), tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000


def test_a_run_that_came_to_nothing_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures.draw({"scenario": "made_up", "seed": 1, "ok": False}, tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_kind_that_cannot_be_drawn_is_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ConfigError, match=r"run\.doc: 'doc' is not supported: use one of .*png"):
        pictures.draw(report(), tmp_path / "run.doc")


def test_without_matplotlib_a_run_with_a_picture_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pictures need matplotlib: pip install 'ictp2p\[demo\]'"):
        main(["run", "leader_dies", "--plot", str(tmp_path / "run.png")])


def test_only_slow_links_are_slow() -> None:
    links = report()["snapshots"][0]["links"]
    assert pictures._slow(links) == {("c0", "c1")}
    assert pictures._slow([]) == set()
