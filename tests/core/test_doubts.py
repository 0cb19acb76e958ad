"""Which links are doubted: those that show far less than both of their lines."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.core.cards import ClusterCard, LinkCard
from ictp2p.core.doubts import DOUBTED, FEW, doubtful
from ictp2p.types import ClusterId, PeerId

rates = st.floats(1e5, 1e8)


def cards(alone: dict[tuple[int, int], float], size: int) -> list[ClusterCard]:
    """What clusters tell of the links that they measured, each of its own."""
    return [
        ClusterCard(
            ClusterId(f"c{n}"),
            PeerId(f"{n:032x}"),
            0,
            (),
            links=tuple(
                LinkCard(ClusterId(f"c{m}"), alone.get((n, m), 0.0), alone.get((m, n), 0.0), 0.01, 0.0)
                for m in range(size)
                if m != n
            ),
        )
        for n in range(size)
    ]


def doubted(alone: dict[tuple[int, int], float], size: int) -> tuple[ClusterId, ...]:
    told = cards(alone, size)
    return doubtful(told[0].cluster, told[0].links, told)


@given(
    st.lists(st.tuples(rates, rates), min_size=3, max_size=8),
    st.dictionaries(st.tuples(st.integers(0, 7), st.integers(0, 7)), st.floats(0.05, 1.0)),
)
def test_a_link_is_doubted_that_shows_far_less_than_both_of_its_lines(
    lines: list[tuple[float, float]], bad: dict[tuple[int, int], float]
) -> None:
    size = len(lines)
    pairs = [(a, b) for a in range(size) for b in range(size) if a != b]
    shown = {(a, b): min(lines[a][0], lines[b][1]) * bad.get((a, b), 1.0) for a, b in pairs}
    up = max(rate for (a, _), rate in shown.items() if a == 0)
    down = {b: max(rate for (_, to), rate in shown.items() if to == b) for b in range(1, size)}
    parts = {b: shown[0, b] / min(up, down[b]) for b in down}
    found = [int(name[1:]) for name in doubted(shown, size)]
    assert set(found) == {b for b, part in parts.items() if part < DOUBTED}
    assert [parts[b] for b in found] == sorted(parts[b] for b in found)
    assert not [b for b in found if (0, b) not in bad], "a link that shows what it is, if its lines show what they are"


def test_of_a_link_that_was_never_measured_nothing_is_doubted() -> None:
    assert doubted({(1, 2): 1e7, (2, 1): 1e7}, 3) == ()
    assert doubted({(0, 1): 1e6, (0, 2): 1e7, (2, 1): 1e7}, 3) == (ClusterId("c1"),)


def test_among_many_nothing_is_doubted() -> None:
    alone = {(0, 1): 1e6} | {(n, m): 1e7 for n in range(FEW + 1) for m in range(FEW + 1) if (n, m) != (0, 1)}
    assert doubted(alone, FEW) == (ClusterId("c1"),)
    assert doubted(alone, FEW + 1) == ()


def test_a_link_of_others_costs_one_look_or_two() -> None:
    """It is asked at each notice of a link, of all links in the mesh: of sixteen idle clusters it was a twentieth."""
    told = cards({(n, m): 1e7 for n in range(FEW) for m in range(FEW)}, FEW)
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        doubtful(told[0].cluster, told[0].links, told)
    finally:
        sys.setprofile(None)
    assert calls < 2.5 * FEW * (FEW - 1)
