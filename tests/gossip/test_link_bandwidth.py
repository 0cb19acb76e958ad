"""Bandwidth that idle senders cannot lower and a changed link is known by."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ictp2p.errors import LocalProtocolError
from ictp2p.gossip.link import LinkMeasurement
from ictp2p.gossip.links import LinkChanged
from ictp2p.types import Transfer
from tests.gossip.linked import MIB, NO_PROBES, B, C, linked, move, notices

RATES = st.floats(1e5, 1e9)


class TestBandwidth:
    def test_the_median_of_each_direction(self):
        links = linked()
        for number in range(11):
            move(links, (100 + number) * MIB, 2.0)
        move(links, 5 * MIB, 3.0, direction="in")
        measured = links.measurement(B, 4.0)
        assert measured.bandwidth_out == pytest.approx(105 * MIB)
        assert measured.bandwidth_in == 5 * MIB

    @given(
        st.lists(RATES, max_size=30),
        st.lists(st.tuples(RATES, st.booleans(), st.sampled_from([1.0, 60.0])), min_size=1, max_size=40),
    )
    @example([157490470.0, 351174397.0], [(136948236.0, False, 1.0), (178012223.0, True, 1.0)])
    def test_an_app_limited_transfer_never_lowers_an_estimate(self, full, later):
        links = linked()
        for rate in full:
            move(links, rate, 2.0)
        for rate, limited, seconds in later:
            before = links.measurement(B, 2.0)
            move(links, rate, 2.0, limited=limited, seconds=seconds)
            after = links.measurement(B, 2.0)
            if limited and before.bandwidth_out is not None:
                assert after.bandwidth_out >= before.bandwidth_out * (1 - 1e-9)

    @given(st.lists(st.tuples(RATES, st.booleans()), min_size=1, max_size=30), st.floats(0.001, 0.2))
    def test_of_a_link_that_only_waited_or_only_opened_its_window_nothing_is_known(self, transfers, rtt):
        links = linked(rtt=rtt)
        for rate, waited in transfers:
            move(links, rate, 2.0, limited=waited, seconds=60.0 if waited else 7.9 * rtt)
        measured = links.measurement(B, 2.0)
        assert measured.bandwidth_out is None
        counting = [r for r, waited in transfers if int(r * (60.0 if waited else 7.9 * rtt)) >= NO_PROBES.least_sample]
        assert measured.at_least_out == pytest.approx(max(counting, default=0.0), rel=1e-4)
        assert measured.at_least_in == 0.0

    @given(RATES, RATES, st.floats(0.001, 0.2))
    def test_a_transfer_of_a_few_round_trips_raises_an_estimate_and_never_lowers_one(self, first, then, rtt):
        links = linked(rtt=rtt)
        move(links, first, 2.0, seconds=10 * rtt)
        before = links.measurement(B, 2.0).bandwidth_out
        for _ in range(3):
            move(links, then, 2.0, seconds=7.9 * rtt)
        after = links.measurement(B, 2.0).bandwidth_out
        if before is None:
            assert first * 10 * rtt < NO_PROBES.least_sample + 1
        elif then > 1.01 * first and 7.9 * rtt * then > NO_PROBES.least_sample:
            assert after > before
        else:
            assert after >= before * (1 - 1e-9)

    def test_a_lower_bound_takes_the_place_of_the_lowest_sample_of_a_full_window(self):
        links = linked()
        for _ in range(10):
            move(links, 100 * MIB, 2.0)
            move(links, 10 * MIB, 2.0)
        assert links.measurement(B, 2.0).bandwidth_out == 55 * MIB
        move(links, 56 * MIB, 2.0, limited=True)
        assert links.measurement(B, 2.0).bandwidth_out >= 55 * MIB

    def test_but_raises_one(self):
        links = linked()
        move(links, 10 * MIB, 2.0)
        move(links, 20 * MIB, 2.0, limited=True)
        assert links.measurement(B, 2.0).bandwidth_out == 15 * MIB

    @given(RATES, st.lists(st.floats(0.85, 1.15), min_size=3, max_size=60))
    def test_after_three_samples_the_estimate_is_within_a_fifth(self, truth, noise):
        links = linked()
        for factor in noise:
            move(links, truth * factor, 2.0)
        assert links.measurement(B, 2.0).bandwidth_out == pytest.approx(truth, rel=0.2)

    @given(
        st.integers(1, 40),
        st.floats(1e6, 1e8),
        st.sampled_from([0.1, 0.3, 0.5, 2.0, 3.0, 10.0]),
        st.lists(st.floats(0.95, 1.05), min_size=42, max_size=42),
    )
    def test_a_changed_link_is_known_after_two_samples(self, before, truth, change, noise):
        links = linked()
        for factor in noise[:before]:
            move(links, truth * factor, 2.0)
        for factor in noise[-2:]:
            move(links, truth * change * factor, 3.0)
        assert links.measurement(B, 3.0).bandwidth_out == pytest.approx(truth * change, rel=0.1)

    @given(
        st.integers(1, 40),
        st.floats(1e6, 1e8),
        st.floats(0.05, 0.69) | st.floats(1.31, 20.0),
        st.floats(NO_PROBES.long, 1000.0),
    )
    def test_or_after_one_that_lasted(self, before, truth, change, seconds):
        links = linked()
        for _ in range(before):
            move(links, truth, 2.0)
        told = move(links, truth * change, 3.0, seconds=seconds)
        assert links.measurement(B, 3.0).bandwidth_out == pytest.approx(truth * change, rel=1e-4)
        assert notices(told, LinkChanged), "the planner must hear of it"

    @given(st.integers(1, NO_PROBES.samples), st.floats(1e6, 1e9), st.floats(1.31, 100.0), st.floats(1.0, 4.9))
    def test_or_after_a_faster_probe_which_had_the_lines_for_itself(self, before, shared, times, seconds):
        links = linked()
        for _ in range(before):
            move(links, shared, 2.0)
        told = move(links, shared * times, 3.0, seconds=seconds, probe=True)
        assert links.measurement(B, 3.0).bandwidth_out == pytest.approx(shared * times, rel=1e-4)
        assert notices(told, LinkChanged)

    @given(st.integers(2, NO_PROBES.samples), st.floats(1e6, 1e9), st.floats(0.01, 0.69))
    def test_and_not_after_a_slower_one_that_was_short(self, before, truth, part):
        links = linked()
        for _ in range(before):
            move(links, truth, 2.0)
        move(links, truth * part, 3.0, probe=True)
        assert links.measurement(B, 3.0).bandwidth_out == pytest.approx(truth, rel=1e-4)

    def test_a_long_sample_that_is_like_the_others_ends_no_window(self):
        links = linked()
        for number in range(11):
            move(links, (100 + number) * MIB, 2.0, seconds=60.0)
        assert links.measurement(B, 2.0).bandwidth_out == pytest.approx(105 * MIB)

    def test_one_outlier_changes_little(self):
        links = linked()
        for rate in (100, 101, 99, 10, 100):
            move(links, rate * MIB, 2.0)
        assert links.measurement(B, 2.0).bandwidth_out == 100 * MIB

    def test_nor_do_two_that_disagree(self):
        links = linked()
        for rate in (100, 100, 100, 10, 50):
            move(links, rate * MIB, 2.0)
        assert links.measurement(B, 2.0).bandwidth_out == 100 * MIB

    def test_samples_are_forgotten_after_the_horizon(self):
        links = linked()
        move(links, 10 * MIB, 2.0)
        assert links.measurement(B, 3601.0).bandwidth_out == 10 * MIB
        assert links.measurement(B, 3602.0).bandwidth_out is None

    def test_a_small_transfer_says_nothing(self):
        links = linked()
        links.transferred(B, Transfer("out", 65535, 1.0, False, 2.0), 2.0)
        assert links.measurement(B, 2.0).bandwidth_out is None

    @pytest.mark.parametrize(("size", "seconds"), [(-1, 1.0), (1, 0.0), (1, float("inf")), (1, float("nan"))])
    def test_what_cannot_have_been_transferred_is_refused(self, size, seconds):
        with pytest.raises(LocalProtocolError, match="link to bern"):
            linked().transferred(B, Transfer("out", size, seconds, False, 2.0), 2.0)

    def test_a_strangers_link_measures_nothing(self):
        assert linked().measurement(C, 2.0) == LinkMeasurement()
