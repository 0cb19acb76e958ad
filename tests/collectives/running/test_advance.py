from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.collectives.plan import Share
from ictp2p.collectives.running.advance import STEPS, Advance


def shares(sizes: list[int]) -> list[Share]:
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    return [Share(end - size, end, 0, (-1,), (-1,)) for size, end in zip(sizes, ends, strict=True)]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.data())
def test_the_whole_and_the_share_furthest_behind_are_counted(sizes: list[int], data: st.DataObject) -> None:
    advance, done = Advance(shares(sizes)), [0] * len(sizes)
    steps = [0, 0]
    while left := [n for n, size in enumerate(sizes) if done[n] < size]:
        number = data.draw(st.sampled_from(left))
        count = data.draw(st.integers(1, sizes[number] - done[number]))
        start = sum(sizes[:number]) + done[number]
        for which, stepped in enumerate(advance.add(start, start + count)):
            steps[which] += stepped
        done[number] += count
        parts = [d / s for d, s in zip(done, sizes, strict=True) if s]
        assert advance.least == min(parts)
        assert abs(advance.whole - sum(done) / sum(sizes)) < 1e-9
    assert all(told <= STEPS + 1 for told in steps)
    assert not sum(sizes) or (advance.whole, advance.least) == (1.0, 1.0)
