"""Delays without synchronized clocks, bandwidth that idle senders cannot lower, probes within their budget."""

import heapq
import random
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.gossip.hellos import Hello
from ictp2p.gossip.link_profile import LinkProfile
from ictp2p.gossip.links import LinkChanged, LinkLost, LinkMeasurement, Links, ProbeWanted
from ictp2p.machine import Message, Send
from ictp2p.types import ClusterId

NO_PROBES = LinkProfile(probe_credit=0)
MIB = 2**20
A, B, C = (ClusterId(name) for name in ("ams", "bern", "cork"))


def notices(effects, kind=None):
    return [e for e in effects if not isinstance(e, Send) and (kind is None or isinstance(e, kind))]


def linked(profile=NO_PROBES, neighbours=(B,), rtt=0.1):
    """The links of A at time 1.0, each up with the given round trip."""
    links = Links(A, profile)
    for neighbour in neighbours:
        links.connected(neighbour, 1.0 - rtt)
    for neighbour in neighbours:
        effects = links.receive(neighbour, Hello(1, profile.hello_interval, 50.0, 1.0 - rtt, 50.0), 1.0)
        assert LinkChanged(neighbour, links.measurement(neighbour, 1.0)) in effects
    return links


def move(links, rate, now, *, limited=False, to=B, direction="out", seconds=1.0):
    return links.transferred(to, direction, int(rate * seconds), seconds, limited, now)


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
        assert notices(links.handle_timeout(14.9)) == [LinkChanged(B, links.measurement(B, 14.9))], "loss has grown"
        assert notices(links.handle_timeout(15.0)) == [LinkLost(B)]
        assert notices(links.handle_timeout(16.0)) == []
        effects = links.receive(B, Hello(5, 4.0, 99.0, None, None), 20.0)
        assert notices(effects) == [LinkChanged(B, links.measurement(B, 20.0))]

    def test_bulk_bytes_are_a_sign_of_life(self):
        links = linked()
        move(links, 10 * MIB, 14.0)
        assert notices(links.handle_timeout(15.0), LinkLost) == []


class TestConnection:
    def test_a_lost_connection_is_told_once(self):
        links = linked()
        assert links.disconnected(B, 2.0) == [LinkLost(B)]
        assert links.disconnected(B, 2.0) == []
        assert links.disconnected(C, 2.0) == []
        assert links.receive(B, Hello(2, 4.0, 60.0, 1.0, 60.0), 2.1) == [], "what was on its way is void"
        assert links.next_timeout() is None

    def test_a_new_connection_measures_delay_anew_and_remembers_bandwidth(self):
        links = linked()
        move(links, 10 * MIB, 2.0)
        links.disconnected(B, 3.0)
        links.connected(B, 4.0)
        measured = links.measurement(B, 4.0)
        assert (measured.srtt, measured.bandwidth_out, measured.age) == (None, 10 * MIB, 2.0)

    def test_a_connection_that_replaces_another_ends_the_link_first(self):
        effects = linked().connected(B, 2.0)
        assert notices(effects) == [LinkLost(B)]
        links = linked()
        links.connected(B, 2.0)
        assert links.measurement(B, 2.0).srtt is None

    def test_only_links_with_samples_outlast_their_connection(self):
        links = linked(neighbours=(B, C))
        move(links, 10 * MIB, 2.0)
        assert repr(links) == "<Links ams: bern up, cork up>"
        links.disconnected(B, 3.0)
        links.disconnected(C, 3.0)
        assert repr(links) == "<Links ams: bern down>"
        links.connected(C, 4000.0)
        links.disconnected(C, 4000.0)
        assert repr(links) == "<Links ams: none>"

    def test_the_first_hellos_follow_each_other_closely(self):
        links = Links(A, NO_PROBES)
        links.connected(B, 0.0)
        assert links.next_timeout() == 0.5
        assert links.handle_timeout(0.5) == [Send(B, Hello(2, 4.0, 0.5, None, None))]
        links = linked()
        links.handle_timeout(2.0)
        assert links.next_timeout() == 6.0

    def test_an_unchanged_link_is_told_again_each_minute(self):
        links = linked()
        told = []
        for second in range(2, 130):
            effects = links.receive(B, Hello(second, 1.0, 60.0, None, None), float(second))
            effects += links.handle_timeout(float(second))
            told += [second for _ in notices(effects, LinkChanged)]
        assert told == [61, 121]

    def test_only_changes_that_matter_are_told(self):
        links = linked()
        assert notices(move(links, 100 * MIB, 2.0), LinkChanged)
        assert notices(move(links, 110 * MIB, 3.0), LinkChanged) == []
        assert notices(move(links, 180 * MIB, 4.0), LinkChanged) == []
        assert notices(move(links, 170 * MIB, 5.0), LinkChanged), "the median is now 40 % higher"
        assert notices(move(links, 100 * MIB, 5.0, direction="in"), LinkChanged)

    def test_a_microsecond_is_no_news(self):
        links = linked(rtt=0.0001)
        links.handle_timeout(2.0)
        assert notices(links.receive(B, Hello(2, 4.0, 60.0, 2.0, 60.0), 2.001)) == []

    def test_foreign_messages_and_half_echoes_are_refused(self):
        for message in (Message(), Hello(1, 4.0, 1.0, 1.0, None), Hello(1, 4.0, 1.0, None, 1.0)):
            with pytest.raises(RemoteProtocolError, match="cluster bern sent"):
                linked().receive(B, message, 2.0)

    @pytest.mark.parametrize(
        "fields",
        [
            [31, -1, 4.0, 0.0, None, None],
            [31, 1, 0.0, 0.0, None, None],
            [31, 1, 4.0, float("nan"), None, None],
            [31, 1, float("inf"), 0.0, None, None],
            [31, 1, 4.0, 0.0, 1e13, 0.0],
        ],
    )
    def test_the_decoder_refuses_what_cannot_be(self, fields):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=Hello)


RATES = st.floats(1e5, 1e9)


class TestBandwidth:
    def test_median_and_low_quantile_of_each_direction(self):
        links = linked()
        for number in range(11):
            move(links, (100 + number) * MIB, 2.0)
        move(links, 5 * MIB, 3.0, direction="in")
        measured = links.measurement(B, 4.0)
        assert measured.bandwidth_out == pytest.approx(105 * MIB)
        assert measured.bandwidth_out_low == pytest.approx(101 * MIB)
        assert (measured.bandwidth_in, measured.bandwidth_in_low, measured.age) == (5 * MIB, 5 * MIB, 1.0)

    @given(
        st.lists(RATES, max_size=30),
        st.lists(st.tuples(RATES, st.booleans(), st.sampled_from([1.0, 60.0])), min_size=1, max_size=40),
    )
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
                assert after.bandwidth_out_low >= before.bandwidth_out_low * (1 - 1e-9)

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
        links.transferred(B, "out", 65535, 1.0, False, 2.0)
        assert links.measurement(B, 2.0).bandwidth_out is None

    @pytest.mark.parametrize(("size", "seconds"), [(-1, 1.0), (1, 0.0), (1, float("inf")), (1, float("nan"))])
    def test_what_cannot_have_been_transferred_is_refused(self, size, seconds):
        with pytest.raises(LocalProtocolError, match="link to bern"):
            linked().transferred(B, "out", size, seconds, False, 2.0)

    def test_a_strangers_link_measures_nothing(self):
        assert linked().measurement(C, 2.0) == LinkMeasurement()


PROBING = LinkProfile(probe_bytes=8 * MIB, probe_credit=16 * MIB, probe_timeout=30.0, probe_retry=300.0)


def linked_for_probes(neighbours=(B, C), me=A):
    links = Links(me, PROBING)
    wanted = []
    for neighbour in neighbours:
        links.connected(neighbour, 0.0)
    for neighbour in neighbours:
        wanted += notices(links.receive(neighbour, Hello(1, 3600.0, 50.0, 0.0, 50.0), 0.1), ProbeWanted)
    return links, wanted


class TestProbes:
    def test_one_at_a_time_until_the_credit_is_gone(self):
        links, wanted = linked_for_probes()
        assert wanted == [ProbeWanted(B, 8 * MIB)]
        assert notices(links.handle_timeout(1.0), ProbeWanted) == []
        assert notices(move(links, 8 * MIB, 2.0), ProbeWanted) == [ProbeWanted(C, 8 * MIB)]
        links.disconnected(B, 3.0)
        links.connected(B, 3.0)
        assert notices(move(links, 8 * MIB, 4.0, to=C), ProbeWanted) == []
        assert notices(links.handle_timeout(4000.0), ProbeWanted) == [], "the credit is spent"

    def test_a_probe_that_brings_nothing_is_given_up_and_the_next_one_wanted(self):
        links, _ = linked_for_probes()
        assert notices(links.handle_timeout(30.0), ProbeWanted) == []
        assert notices(links.handle_timeout(30.1), ProbeWanted) == [ProbeWanted(C, 8 * MIB)]

    def test_a_disconnected_probe_is_not_waited_for(self):
        links, _ = linked_for_probes()
        links.disconnected(B, 1.0)
        assert notices(links.handle_timeout(1.0), ProbeWanted) == [ProbeWanted(C, 8 * MIB)]

    def test_never_in_a_round(self):
        links, _ = linked_for_probes()
        links.round_started()
        assert notices(move(links, 8 * MIB, 2.0), ProbeWanted) == []
        assert notices(links.handle_timeout(40.0), ProbeWanted) == []
        assert links.next_timeout() > 40.0
        assert notices(links.round_ended(41.0), ProbeWanted) == [ProbeWanted(C, 8 * MIB)]

    def test_rounds_fill_the_bucket_by_a_hundredth_and_only_rounds_do(self):
        links, _ = linked_for_probes((B,))
        assert notices(links.handle_timeout(400.0), ProbeWanted), "the second and last of the credit"
        links.transferred(C, "in", 10000 * MIB, 1.0, False, 401.0)
        links.receive(B, Hello(2, 3600.0, 99.0, None, None), 800.0)
        assert notices(links.handle_timeout(800.0), ProbeWanted) == []
        links.round_started()
        links.transferred(C, "in", 799 * MIB, 1.0, False, 801.0)
        assert notices(links.round_ended(802.0), ProbeWanted) == []
        links.round_started()
        links.transferred(C, "in", 2 * MIB, 1.0, False, 803.0)
        assert notices(links.round_ended(804.0), ProbeWanted) == [ProbeWanted(B, 8 * MIB)]

    def test_the_bucket_does_not_overflow(self):
        links, _ = linked_for_probes((B,))
        links.round_started()
        links.transferred(C, "in", 2**40, 1.0, False, 1.0)
        links.round_ended(2.0)
        wanted = [notices(links.handle_timeout(400.0 * number), ProbeWanted) for number in range(1, 6)]
        assert list(map(len, wanted)) == [1, 1, 0, 0, 0]

    def test_what_is_known_needs_no_probe_and_a_lower_bound_is_not_known(self):
        links, _ = linked_for_probes()
        move(links, 100 * MIB, 2.0, to=C, limited=True)
        assert notices(move(links, 8 * MIB, 2.0), ProbeWanted) == [ProbeWanted(C, 8 * MIB)]
        links, _ = linked_for_probes()
        move(links, 100 * MIB, 2.0, to=C)
        assert notices(move(links, 8 * MIB, 2.0), ProbeWanted) == []

    def test_an_hour_later_it_is_no_longer_known(self):
        links, _ = linked_for_probes((B,))
        move(links, 8 * MIB, 2.0)
        assert notices(links.handle_timeout(3601.0), ProbeWanted) == []
        assert notices(links.handle_timeout(3602.0), ProbeWanted) == [ProbeWanted(B, 8 * MIB)]

    def test_each_begins_after_its_own_name(self):
        _, wanted = linked_for_probes((A, C), me=B)
        assert wanted[0].neighbour == A, "the only link that was up"
        links = Links(B, PROBING)
        links.round_started()
        for neighbour in (A, C):
            links.connected(neighbour, 0.0)
            links.receive(neighbour, Hello(1, 4.0, 50.0, 0.0, 50.0), 0.1)
        assert notices(links.round_ended(1.0)) == [ProbeWanted(C, 8 * MIB)]

    @settings(deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["round", "end", "wait", "wait", "move", "fail"]),
                st.sampled_from([A, B]),
                st.sampled_from([0, MIB, 100 * MIB, 2000 * MIB]),
                st.floats(300.0, 2000.0),
            ),
            max_size=60,
        )
    )
    def test_the_budget_holds_and_no_probe_is_wanted_in_a_round(self, inputs):
        links = Links(C, PROBING)
        now, since, in_round, moved, probed, outstanding = 0.0, 0.0, False, 0, 0, None
        for neighbour in (A, B):
            links.connected(neighbour, now)
        for number, (kind, neighbour, size, pause) in enumerate(inputs):
            effects = []
            match kind:
                case "round":
                    links.round_started()
                    in_round = True
                case "end":
                    in_round = False
                    effects = links.round_ended(now)
                case "wait":
                    now += pause
                    effects = links.handle_timeout(now)
                    for name in (A, B):
                        effects += links.receive(name, Hello(number + 1, 3600.0, 9.0, now, 9.0), now)
                case "move":
                    moved += size if in_round else 0
                    effects = links.transferred(neighbour, "in", size, 1.0, False, now)
                case "fail":
                    outstanding = None if outstanding == neighbour else outstanding
                    links.disconnected(neighbour, now)
                    effects = links.connected(neighbour, now)
            for wanted in notices(effects, ProbeWanted):
                assert not in_round
                assert outstanding is None or now >= since + PROBING.probe_timeout
                outstanding, since, probed = wanted.neighbour, now, probed + wanted.bytes
            assert probed <= PROBING.probe_credit + 0.01 * moved


# Two clusters under an adversarial scheduler: clocks apart, Hellos lost, repeated and overtaken, connections cut.


@dataclass
class World:
    seed: int
    loss: float
    offsets: dict
    least: float
    most: float
    queue: list = field(default_factory=list)
    links: dict = field(default_factory=dict)
    up: dict = field(default_factory=lambda: {A: False, B: False})
    epoch: int = 0
    cut: bool = False
    now: float = 0.0
    count: int = 0

    def clock(self, name):
        return self.now + self.offsets[name]

    def execute(self, name, effects):
        other = B if name == A else A
        for effect in effects:
            match effect:
                case Send(to, message):
                    assert to == other
                    self.send(name, to, message)
                case LinkChanged(neighbour, measured):
                    assert neighbour == other
                    self.up[name] = True
                    assert 2 * self.least - 5e-6 <= measured.min_rtt <= measured.srtt + 5e-6
                    assert measured.srtt <= 2 * self.most + 5e-6
                case LinkLost(neighbour):
                    assert neighbour == other
                    assert self.up[name], "a link was lost that was not up"
                    self.up[name] = False

    def send(self, source, to, message):
        self.count += 1
        dice = random.Random(f"{self.seed}/{self.count}")
        for _ in range(2 if dice.random() < 0.1 else 1):
            if dice.random() >= self.loss and not self.cut:
                at = self.now + dice.uniform(self.least, self.most)
                heapq.heappush(self.queue, (at, self.count, dice.random(), self.epoch, source, to, message))

    def run(self, until):
        while True:
            timers = [(links.next_timeout() - self.offsets[name], name) for name, links in self.links.items()]
            timer = min(timers, default=(until, ""))
            event = self.queue[0][0] if self.queue else until
            if min(timer[0], event) >= until:
                self.now = until
                return
            if event <= timer[0]:
                self.now, _, _, epoch, source, to, message = heapq.heappop(self.queue)
                if epoch == self.epoch:
                    self.execute(to, self.links[to].receive(source, message, self.clock(to)))
            else:
                self.now = max(self.now, timer[0])
                name = timer[1]
                # Half a microsecond: the test's own sums of clock offsets round, and must not seem early.
                clock = self.clock(name) + 5e-7
                self.execute(name, self.links[name].handle_timeout(clock))
                assert self.links[name].next_timeout() > clock, "what was due is done: the driver's timer would spin"

    def connect(self):
        self.epoch += 1
        for name, other in ((A, B), (B, A)):
            self.execute(name, self.links[name].connected(other, self.clock(name)))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.1, 40.0), st.sampled_from(["cut", "mend", "reconnect"])), max_size=8),
    st.sampled_from([0.0, 0.2, 0.5]),
    st.floats(-1000.0, 1000.0),
    st.floats(0.001, 0.2),
    st.floats(1.0, 10.0),
    st.integers(0, 2**32),
)
def test_delays_stay_within_the_truth_and_links_come_back(faults, loss, offset, least, spread, seed):
    assume(least * spread < 1.0)
    world = World(seed, loss, {A: 5000.0, B: 5000.0 + offset}, least, least * spread)
    world.links = {A: Links(A, NO_PROBES), B: Links(B, NO_PROBES)}
    world.connect()
    for pause, kind in faults:
        world.run(world.now + pause)
        match kind:
            case "cut":
                world.cut = True
            case "mend":
                world.cut = False
            case "reconnect":
                world.connect()
    world.cut = True
    world.run(world.now + 30.0)
    assert world.up == {A: False, B: False}, "silence was not noticed"
    world.cut, world.loss = False, 0.0
    world.run(world.now + 10.0)
    assert world.up == {A: True, B: True}, "a mended link did not come back"


def test_presets_keep_their_order():
    local, lan, wan = LinkProfile.local(), LinkProfile.lan(), LinkProfile.wan()
    assert local.hello_interval < lan.hello_interval < wan.hello_interval
    assert all(p.probe_bytes <= p.probe_credit for p in (local, lan, wan))
