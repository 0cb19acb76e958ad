"""How long a mesh takes after a failure: each kind of run gives what its tables want, and these count the right."""

from __future__ import annotations

from typing import Any

import convergence
import convergence_bounds
import convergence_faults
import pytest


@pytest.mark.parametrize("kind", ["control", "rounds", "cut-lan", "deaf-lan", "leave-wan"])
def test_a_run_gives_what_its_tables_are_made_of(kind: str) -> None:
    row = convergence.KINDS[kind](4, 0)
    name, _, profile = kind.partition("-")
    keys = [key for of, key, _ in convergence.CUTS if of == name]
    keys += [measure.key for measure in convergence.MEASURES if measure.kind == name]
    assert keys
    for key in keys:
        assert 0 < row[key] < convergence_faults.PATIENCE, key
    if name == "cut":
        assert row["aborted"] < convergence_bounds.given_up(profile)
        assert row["longest"] > row["usual"]


def test_rows_are_counted_by_kind_profile_and_clusters_and_those_that_failed_are_told_apart() -> None:
    left: list[dict[str, Any]] = [
        {"kind": "leave-wan", "clusters": 4, "seed": seed, "left": 2.0 + seed, "warned": seed == 2} for seed in range(3)
    ]
    others = [
        {"kind": "leave-lan", "clusters": 4, "seed": 0, "left": 1.0, "warned": 0},
        {"kind": "leave-wan", "clusters": 16, "seed": 0, "failed": "liveness: it did not\nlast events"},
    ]
    *_, cuts, failed = convergence.tables(left + others)
    told = ("who leaves just after the coordinator has died has left",)
    assert cuts.rows == (
        (*told, "lan", "4", "1.0", "1.0", "1.0", "", "0", "1"),
        (*told, "wan", "4", "3.0", "4.0", "4.0", "", "1", "3"),
    )
    assert failed.rows == (("leave-wan", "16", "0", "liveness: it did not"),)
