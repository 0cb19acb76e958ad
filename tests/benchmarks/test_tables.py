"""The page of measurements has its tables and its picture from what was measured; nothing else of it is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tables

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


def place(name: str, text: str = "what was there") -> str:
    return f"<!-- {name} -->\n\n{text}\n\n<!-- end -->"


def test_a_table_goes_into_its_place_and_what_was_not_measured_keeps_what_it_had() -> None:
    page = f"# A page\n\n{place('small')}\n\nbetween\n\n{place('lists')}\n\nafter\n"
    new = tables.filled(page, {"small": "| new |", "codecs": "| nowhere |"})
    assert new == f"# A page\n\n{place('small', '| new |')}\n\nbetween\n\n{place('lists')}\n\nafter\n"
    assert tables.filled(new, {"small": "| new |"}) == new


def test_a_place_for_a_table_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match=r"no such table: smal$"):
        tables.filled(place("smal"), {})


def test_the_page_asks_for_tables_that_there_are() -> None:
    page = PAGE.read_text()
    assert tables.filled(page, {}) == page
    for name in tables.TABLES:
        assert f"<!-- {name} -->" in page, name


def test_an_all_reduce_is_told_in_seconds_in_bounds_and_against_gloo() -> None:
    def taken(seconds: float) -> dict[str, Any]:
        return {"seconds": seconds}

    row: dict[str, Any] = {
        "mb": 100.0,
        "ranks": 4,
        "bound_seconds": 0.05,
        "contenders": {"sealed": taken(0.06), "gloo": taken(0.09)},
    }
    for name in tables.OURS[1:]:
        row["contenders"][name] = taken(0.1)
    *_, line = tables.all_reduce({"allreduce": {"rows": [row]}, "allreduce-400": {"rows": []}})
    assert line.startswith("| 100 | 4 | 0.060 s (1.20) 1.50x | 0.100 s (2.00) 0.90x |")
    assert line.endswith("| 0.090 s (1.80) 1.00x |")


def test_the_picture_is_drawn_beside_the_page_the_same_each_time_and_only_of_what_was_measured(tmp_path: Path) -> None:
    call = {"seconds": 6.4, "predicted": 6.0, "predicted_on_the_lines": 5.9}
    found = {"bound_seconds": 5.7, "calls": [call] * 3, "contenders": {"mesh": {"over_bound": 1.12}}}
    tables.draw({}, tmp_path)
    assert not list(tmp_path.iterdir())
    pictures = []
    for _ in range(2):
        tables.draw({"heterogeneous": found}, tmp_path)
        pictures.append((tmp_path / "heterogeneous.svg").read_bytes())
    assert pictures[0] == pictures[1]
    assert all((PAGE.parent / name).is_file() for name in tables.PICTURES)
