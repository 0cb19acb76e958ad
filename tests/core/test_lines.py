"""How wide links and lines are, from what links carried: beside each other, alone, and after one has become slower."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest
from ictp2p.collectives.planning.topology import UNMEASURED, Pair
from ictp2p.core.lines import FEW, FOLLOWED, NEAR, UNKNOWN, Lines
from ictp2p.types import PeerId

NAMES = tuple(map(PeerId, "abcd"))
PAIRS = [(a, b) for a in NAMES for b in NAMES if a != b]
rates = st.floats(1e5, 1e8)
several = st.dictionaries(st.sampled_from(PAIRS), rates, min_size=1)


def asked(links: dict[Pair, LinkEstimate] | None = None, names: tuple[PeerId, ...] = NAMES) -> PlanRequest:
    return PlanRequest(names, 1000, 4, {pair: LinkEstimate(1e5, 0.01) for pair in PAIRS} | (links or {}))


def seen(*rounds: dict[Pair, float]) -> Lines:
    lines = Lines()
    for number, each in enumerate(rounds):
        lines.saw({pair: LinkEstimate(rate) for pair, rate in each.items()}, number)
    return lines


def known(lines: Lines, request: PlanRequest | None = None) -> PlanRequest:
    found = lines.request(asked() if request is None else request)
    assert found is not None
    return found


@given(st.dictionaries(st.sampled_from(NAMES), st.tuples(rates, rates), min_size=4), st.lists(st.floats(0.01, 1.0)))
def test_links_that_had_their_lines_for_themselves_show_lines_whatever_they_share_later(
    truth: dict[PeerId, tuple[float, float]], shares: list[float]
) -> None:
    alone = {(a, b): min(truth[a][0], truth[b][1]) for a, b in PAIRS}
    lines = seen(alone, *({pair: share * rate for pair, rate in alone.items()} for share in shares))
    found = known(lines)
    assert {pair: link.bandwidth for pair, link in found.links.items()} == alone
    for a in NAMES:
        assert found.up[a] == max(rate for pair, rate in alone.items() if pair[0] == a) <= truth[a][0]
        assert found.down[a] == max(rate for pair, rate in alone.items() if pair[1] == a) <= truth[a][1]


@given(several)
def test_no_link_is_wider_than_its_lines_and_one_much_narrower_stays_what_it_is(once: dict[Pair, float]) -> None:
    found = known(seen(once))
    for (a, b), link in found.links.items():
        ends = [ends[end] for ends, end in ((found.up, a), (found.down, b)) if end in ends]
        if not ends:
            assert link == asked().links[a, b]
            continue
        line, rate = min(ends), once.get((a, b), 0.0)
        wide = line if rate >= NEAR * line else rate or UNKNOWN * line
        assert link == LinkEstimate(wide, 0.01)


def test_what_a_relayed_link_carries_says_nothing_of_its_ends() -> None:
    relayed = LinkEstimate(9e8, 0.01, PeerId("c"))
    lines = Lines()
    lines.saw({("a", "b"): relayed, ("b", "a"): LinkEstimate(1e6)}, 1)  # type: ignore[dict-item]
    found = known(lines, asked({(PeerId("a"), PeerId("b")): relayed}))
    assert found.links[PeerId("a"), PeerId("b")] == relayed
    assert dict(found.up) == {"b": 1e6}


def test_a_lower_bound_counts_and_what_a_peer_says_of_itself_counts_for_more() -> None:
    a, b, c = NAMES[:3]
    lines = Lines()
    lines.saw({(a, b): LinkEstimate(None, at_least=3e6), (a, c): LinkEstimate(1e6), (c, b): LinkEstimate(2e6)}, 1)
    found = lines.request(PlanRequest(NAMES, 1000, 4, asked().links))
    assert found is not None
    assert (found.up[a], found.down[b]) == (3e6, 3e6)
    found = lines.request(PlanRequest(NAMES, 1000, 4, asked().links, up={a: 2e6}))
    assert found is not None
    assert (found.up[a], found.down[b], found.links[a, b].bandwidth) == (2e6, 3e6, 2e6)


def test_where_no_link_was_measured_a_line_is_not_known_for_what_links_carry_at_least() -> None:
    """Regression: over long ways probes end before they fill a link: what takes 7 s took 106, planned for 126."""
    a, b, c, d = NAMES
    little = LinkEstimate(None, 0.3, at_least=1e4)
    lines = Lines()
    lines.saw(dict.fromkeys(PAIRS, little), 1)
    assert lines.request(asked(dict.fromkeys(PAIRS, little))) is None
    lines.saw({**dict.fromkeys(PAIRS, little), (a, b): LinkEstimate(1e6)}, 2)
    found = known(lines, asked(dict.fromkeys(PAIRS, little)))
    assert (found.up, found.down) == ({a: 1e6}, {b: 1e6})
    assert found.links[c, d] == little
    assert found.links[a, c].bandwidth == UNKNOWN * 1e6, "better another, if there is one"


def test_a_link_that_nothing_passes_stays_shut() -> None:
    shut = {PAIRS[0]: LinkEstimate(0.0, 0.01)}
    assert known(seen({PAIRS[0]: 1e6, PAIRS[1]: 1e6}), asked(shut)).links[PAIRS[0]] == shut[PAIRS[0]]


def test_links_inside_one_machine_are_no_line() -> None:
    found = known(seen({PAIRS[0]: UNMEASURED, PAIRS[1]: 1e6}))
    assert found.up == {PAIRS[1][0]: 1e6}


@given(several, st.sets(st.sampled_from(PAIRS), min_size=1))
def test_links_that_were_slow_count_as_measured_for_some_rounds_and_then_anew(
    before: dict[Pair, float], slow: set[Pair]
) -> None:
    lines = seen(before)
    lines.slowed(slow, 0)
    for number in range(1, FOLLOWED + 3):
        lines.saw({pair: LinkEstimate(rate / 10) for pair, rate in before.items()}, number)
        now = {pair: rate / 10 if pair in slow else rate for pair, rate in before.items()}
        assert known(lines).up == {
            a: max(rate for pair, rate in now.items() if pair[0] == a) for a in {pair[0] for pair in before}
        }
    lines.saw({pair: LinkEstimate(rate / 5) for pair, rate in before.items()}, FOLLOWED + 4)
    best = {pair: rate / 5 if pair in slow else rate for pair, rate in before.items()}
    assert known(lines).up == {
        a: max(rate for pair, rate in best.items() if pair[0] == a) for a in {pair[0] for pair in before}
    }


def test_nothing_is_told_of_two_of_many_or_where_nothing_was_seen() -> None:
    lines = seen(dict.fromkeys(PAIRS, 1000000.0))
    assert lines.request(asked(names=NAMES[:2])) is None
    many = tuple(PeerId(f"{n}") for n in range(FEW + 1))
    assert lines.request(asked(names=many)) is None
    assert Lines().request(asked()) is None


def test_links_of_those_who_have_left_are_forgotten_in_time() -> None:
    lines = Lines()
    for number in range(3000):
        lines.saw({(PeerId(f"{number}"), PeerId("b")): LinkEstimate(1e6)}, number)
    assert len(lines._widest) <= 4 * FEW**2


@given(several, rates)
def test_a_line_is_as_wide_at_least_as_what_its_links_carried_together(
    alone: dict[Pair, float], seconds: float
) -> None:
    lines = seen(dict.fromkeys(PAIRS, 1e5))
    lines.carried(((pair, rate * seconds) for pair, rate in alone.items()), seconds)
    lines.carried(((pair, rate) for pair, rate in alone.items()), 2.0 * seconds)  # slower than before: says nothing new
    found = known(lines)
    for a in NAMES:
        assert found.up[a] == pytest.approx(max(1e5, sum(rate for pair, rate in alone.items() if pair[0] == a)))
        assert found.down[a] == pytest.approx(max(1e5, sum(rate for pair, rate in alone.items() if pair[1] == a)))
    lines.slowed(PAIRS, 1)
    assert known(lines).up == found.up, "some link has become slower, perhaps, and not each line"
    lines.carried(((pair, rate) for pair, rate in alone.items()), 2.0)
    for a in {a for a, _ in alone}:
        half = sum(rate for pair, rate in alone.items() if pair[0] == a) / 2
        assert known(lines).up[a] == pytest.approx(max(1e5, half)), "the next round is believed"
