"""A figure keeps its limit or is named with what it missed it by; a leak shows in the life that was spared."""

from __future__ import annotations

import pytest
from judging import Figure, flat


def chaos(descriptors: list[float], megabytes: list[float]) -> dict[str, dict[str, object]]:
    """Lives that ended with more and more, which is the number of peers there were, beside the one that was spared."""
    lives = {"descriptors": [20.0, 40.0, 60.0], "megabytes": [200.0, 200.0, 200.0]}
    return {"chaos": {**lives, "eldest": {"descriptors": descriptors, "megabytes": megabytes}}}


@pytest.mark.parametrize(
    ("descriptors", "megabytes", "bad"),
    [
        ([36.0, 50.0, 38.0], [250.0, 260.0, 275.0], []),
        ([36.0, 38.0, 40.0], [250.0, 250.0, 250.0], ["descriptors 1.11"]),
        ([36.0, 36.0, 36.0], [200.0, 230.0, 260.0], ["megabytes 1.3"]),
    ],
)
def test_a_leak_shows_in_the_life_that_was_spared(
    descriptors: list[float], megabytes: list[float], bad: list[str]
) -> None:
    assert [str(figure) for figure in flat(chaos(descriptors, megabytes)) if not figure.good] == bad


def test_a_figure_tells_by_what_part_of_its_limit_it_misses_it() -> None:
    assert Figure("here", 1.2, least=1.5).off() == pytest.approx(0.2)
    assert Figure("here", 66.0, most=60.0).off() == pytest.approx(0.1)
    assert Figure("here", 3.0, most=0).off() == 3.0
    assert Figure("here", 1.0, least=1.0, most=1.0).off() == 0.0
