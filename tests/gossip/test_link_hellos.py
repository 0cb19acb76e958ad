"""What Hellos show of a link: its delay, without synchronized clocks, and its loss."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.hellos import Hello
from ictp2p.gossip.links import LinkChanged, LinkLost, Links
from ictp2p.machine import Send
from ictp2p.types import Transfer
from tests.gossip.linked import MIB, NO_PROBES, A, B, linked, move, notices, wait


class TestDelay:
    @given(st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.floats(-1e6, 1e6), st.floats(0.0, 3.0), st.floats(0.0, 1e5))
    def test_the_round_trip_needs_no_common_clock(self, there, back, offset, wait, start):
        links = Links(A, NO_PROBES)
        (hello,) = [e.message for e in links.connected(B, start)]
        assert (hello.origin, hello.received) == (None, None)
        received = start + there + offset
        now = start + there + wait + back
        links.receive(B, Hello(1, 4.0, received + wait, hello.sent, received), now)
        assert links.measurement(B, now).srtt == pytest.approx(there + back, abs=1e-8)

    def test_it_moves_slowly_and_remembers_the_least(self):
        links = linked()
        links.handle_timeout(2.0)
        links.receive(B, Hello(2, 4.0, 60.0, 2.0, 60.0), 2.2)
        measured = links.measurement(B, 2.2)
        assert measured.srtt == pytest.approx(0.836 * 0.1 + 0.164 * 0.2)
        assert measured.rttvar == pytest.approx(0.75 * 0.05 + 0.25 * 0.1)
        assert measured.min_rtt == pytest.approx(0.1)

    def test_the_least_is_forgotten_after_its_window(self):
        links = linked()
        for step in range(1, 200):
            now = 1.0 + 4.0 * step
            links.handle_timeout(now)
            links.receive(B, Hello(1 + step, 4.0, 60.0, now, 60.0), now + 0.3)
        assert links.measurement(B, now).min_rtt == pytest.approx(0.3)

    @pytest.mark.parametrize(
        ("origin", "received", "sent"),
        [(0.5, 50.0, 50.0), (-3.0, 50.0, 50.0), (0.9, 51.0, 50.0), (0.9, 40.0, 50.0)],
        ids=["never sent", "of a former life", "answered before it came", "waited longer than the trip"],
    )
    def test_an_echo_that_cannot_be_is_not_believed(self, origin, received, sent):
        links = Links(A, NO_PROBES)
        links.connected(B, 0.9)
        assert notices(links.receive(B, Hello(1, 4.0, sent, origin, received), 1.0)) == []
        assert links.measurement(B, 1.0).srtt is None

    def test_a_late_hello_measures_nothing(self):
        links = linked()
        links.receive(B, Hello(3, 4.0, 60.0, None, None), 2.0)
        links.receive(B, Hello(2, 4.0, 55.0, 0.9, 55.0), 3.0)
        assert links.measurement(B, 3.0).srtt == pytest.approx(0.1)
        (hello,) = [e.message for e in links.handle_timeout(6.0) if isinstance(e, Send)]
        assert (hello.origin, hello.received) == (60.0, 2.0), "the newest is echoed"

    def test_a_neighbour_that_has_heard_nothing_is_answered_at_once_and_only_that_one(self):
        links = linked()
        (answer,) = links.receive(B, Hello(2, 4.0, 51.0, None, None), 1.5)
        assert answer == Send(B, Hello(2, 4.0, 1.5, 51.0, 1.5))
        assert links.receive(B, Hello(3, 4.0, 52.0, 1.5, 51.9), 1.7) == []

    @given(st.integers(0, 100_000))
    def test_who_begins_anew_on_the_same_connection_measures_the_link_within_a_few_hellos(self, spoken):
        """Regression: its first Hellos were taken for late ones until it had sent as many as in its former office."""
        ours, theirs, now, profile = Links(A, NO_PROBES), Links(B, NO_PROBES), 100.0, NO_PROBES
        ours.connected(B, now)
        if spoken:
            ours.receive(B, Hello(spoken, profile.hello_interval, now - 50.0, None, None), now)
        said = theirs.connected(A, now)
        for _ in range(18):
            for hello in [e for e in said if isinstance(e, Send)]:
                for answer in [e for e in ours.receive(B, hello.message, now) if isinstance(e, Send)]:
                    theirs.receive(A, answer.message, now)
            now += profile.hello_interval / 8
            for hello in [e for e in ours.handle_timeout(now) if isinstance(e, Send)]:
                theirs.receive(A, hello.message, now)
            said = theirs.handle_timeout(now)
        assert theirs.measurement(A, now).srtt is not None


class TestLoss:
    def test_gaps_count_and_late_arrivals_make_good(self):
        links = linked()
        links.receive(B, Hello(4, 4.0, 60.0, None, None), 2.0)
        assert links.measurement(B, 2.0).loss == pytest.approx(0.5)
        links.receive(B, Hello(3, 4.0, 60.0, None, None), 2.1)
        assert links.measurement(B, 2.1).loss == pytest.approx(0.25)
        links.receive(B, Hello(3, 4.0, 60.0, None, None), 2.2)
        assert links.measurement(B, 2.2).loss == pytest.approx(0.25)

    def test_a_first_hello_that_overtook_another_is_no_loss(self):
        links = Links(A, NO_PROBES)
        links.connected(B, 0.0)
        links.receive(B, Hello(3, 4.0, 60.0, None, None), 0.1)
        links.receive(B, Hello(2, 4.0, 59.0, None, None), 0.2)
        assert links.measurement(B, 0.2).loss == 0.0

    def test_silence_counts_from_half_an_interval_on(self):
        links = linked()
        assert links.measurement(B, 1.0 + 5.9).loss == 0.0
        assert links.measurement(B, 1.0 + 6.0).loss == pytest.approx(0.5)
        assert links.measurement(B, 1e6).loss == 1.0

    @given(st.lists(st.integers(0, 2**62 - 1) | st.integers(0, 40), max_size=60), st.floats(0.0, 1e4))
    def test_it_is_a_share_whatever_arrives(self, sequences, later):
        links = linked()
        for sequence in sequences:
            links.receive(B, Hello(sequence, 4.0, 60.0, None, None), 2.0)
        assert 0.0 <= links.measurement(B, 2.0 + later).loss <= 1.0

    def test_a_silent_link_is_lost_once_and_comes_back(self):
        links = linked()
        effects = wait(links, 14.9)
        losses = [changed.measurement.loss for changed in notices(effects)]
        assert losses == [pytest.approx(1 / 2), pytest.approx(2 / 3)], "loss has grown"
        assert notices(wait(links, 15.0)) == [LinkLost(B)]
        assert notices(wait(links, 16.0)) == []
        heard = [effect.message.sent for effect in effects if isinstance(effect, Send)]
        effects = links.receive(B, Hello(5, 4.0, 99.0, heard[-1], 94.0), 20.0)
        assert notices(effects) == [LinkChanged(B, links.measurement(B, 20.0))]

    def test_a_neighbour_that_is_heard_and_does_not_hear_us_is_lost_until_it_does(self):
        links = linked()
        for number in range(2, 6):  # it echoes our first Hello, of 0.9, again and again
            wait(links, 4.0 * number - 3.0)
            assert notices(links.receive(B, Hello(number, 4.0, 100.0, 0.9, 50.0), 4.0 * number - 3.0), LinkLost) == []
        assert notices(wait(links, 18.8), LinkLost) == []
        assert notices(wait(links, 18.9), LinkLost) == [LinkLost(B)]
        assert notices(links.receive(B, Hello(6, 4.0, 100.0, 0.9, 50.0), 21.0)) == []
        heard = next(e.message.sent for e in wait(links, 24.0) if isinstance(e, Send))
        effects = links.receive(B, Hello(7, 4.0, 100.0, heard, 99.1), 25.0)
        assert notices(effects) == [LinkChanged(B, links.measurement(B, 25.0))]

    @given(st.lists(st.floats(0.0, 4.0), min_size=10, max_size=40), st.floats(0.0, 0.9))
    def test_two_that_hear_each_other_lose_nothing(self, phases, way):
        ends = {A: Links(A, NO_PROBES), B: Links(B, NO_PROBES)}
        far, due = {A: B, B: A}, []
        for me, other in far.items():
            due += [(way + phases[0], other, effect.message) for effect in ends[me].connected(other, phases[0])]
        for step in range(4 * len(phases)):
            now = phases[0] + step + phases[step % len(phases)] / 4
            effects = {me: ends[me].handle_timeout(now) for me in far}
            for at, to, hello in [each for each in due if each[0] <= now]:
                effects[to] += ends[to].receive(far[to], hello, now)
                due.remove((at, to, hello))
            for me, each in effects.items():
                assert notices(each, LinkLost) == []
                due += [(now + way, far[me], effect.message) for effect in each if isinstance(effect, Send)]

    def test_what_the_neighbour_measured_of_us_shows_that_it_hears_us(self):
        links = linked()
        for now in (5.0, 9.0, 13.0, 17.0):
            links.receive(B, Hello(int(now), 4.0, 100.0, None, None), now)
        move(links, 10 * MIB, 17.0)
        assert notices(links.handle_timeout(19.0), LinkLost) == []

    def test_bytes_of_a_transfer_that_broke_off_long_ago_are_none(self):
        links = linked()
        wait(links, 14.0)
        links.transferred(B, Transfer("in", 10 * MIB, 1.0, False, 2.0), 14.0)
        assert notices(wait(links, 16.0), LinkLost) == [LinkLost(B)]

    def test_bulk_bytes_are_a_sign_of_life(self):
        links = linked()
        move(links, 10 * MIB, 14.0)
        assert notices(links.handle_timeout(15.0), LinkLost) == []
