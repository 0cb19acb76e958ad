"""Probes: one at a time, never in a round, and within their budget."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.gossip.hellos import Hello
from ictp2p.gossip.link import Link
from ictp2p.gossip.link_profile import LinkProfile
from ictp2p.gossip.links import Links, ProbeWanted
from ictp2p.types import Transfer
from tests.gossip.linked import MIB, A, B, C, move, notices, wait

PROBING = LinkProfile(probe_bytes=8 * MIB, probe_credit=16 * MIB, probe_timeout=30.0, probe_retry=300.0)


def linked_for_probes(neighbours=(B, C), me=A, profile=PROBING):
    links = Links(me, profile)
    wanted = []
    for neighbour in neighbours:
        links.connected(neighbour, 0.0)
    for neighbour in neighbours:
        wanted += notices(links.receive(neighbour, Hello(1, 3600.0, 50.0, 0.0, 50.0), 0.1), ProbeWanted)
    return links, wanted


def linked_with_credit(*neighbours):
    """Links of A that may probe as often as they want."""
    links = Links(A, replace(PROBING, probe_credit=2**40))
    for neighbour in neighbours:
        links.connected(neighbour, 0.0)
        links.receive(neighbour, Hello(1, 3600.0, 50.0, 0.0, 50.0), 0.1)
    return links


class TestProbes:
    def test_one_at_a_time_until_the_credit_is_gone(self):
        links, wanted = linked_for_probes()
        assert wanted == [ProbeWanted(B, 8 * MIB, 30.0)]
        assert notices(links.handle_timeout(1.0), ProbeWanted) == []
        assert notices(move(links, 8 * MIB, 2.0), ProbeWanted) == [ProbeWanted(C, 8 * MIB, 30.0)]
        links.disconnected(B, 3.0)
        links.connected(B, 3.0)
        assert notices(move(links, 8 * MIB, 4.0, to=C), ProbeWanted) == []
        assert notices(links.handle_timeout(4000.0), ProbeWanted) == [], "the credit is spent"

    def test_without_credit_nobody_looks_which_link_wants_one(self, monkeypatch: pytest.MonkeyPatch):
        """It was each link of an idle mesh, at every timeout and every notice of one."""
        links, _ = linked_for_probes(profile=replace(PROBING, probe_credit=8 * MIB))
        monkeypatch.setattr(Link, "wants_probe", None)
        assert notices(links.handle_timeout(4000.0), ProbeWanted) == []

    def test_a_probe_that_brings_nothing_is_given_up_and_the_next_one_wanted(self):
        links, _ = linked_for_probes()
        assert notices(links.handle_timeout(30.0), ProbeWanted) == []
        assert notices(links.handle_timeout(30.1), ProbeWanted) == [ProbeWanted(C, 8 * MIB, 30.0)]

    def test_one_that_takes_too_long_is_followed_by_shorter_ones_until_a_line_shows_more(self):
        """Regression: a slow line was filled for half a minute, in vain, every five minutes."""
        links, wanted = linked_for_probes((B,), profile=replace(PROBING, probe_credit=1024 * MIB))
        for _ in range(3):
            begun = PROBING.probe_retry * len(wanted)
            links.handle_timeout(begun - 200.0)
            wanted += notices(links.handle_timeout(begun + 0.1), ProbeWanted)
        assert [each.bytes for each in wanted] == [8 * MIB, MIB // 2, 3 << 16, 3 << 16]
        sizes, now = [], begun
        for rate in (10e3, 200e3, 5e6):
            now += 20.0
            shown = Transfer("out", 128 << 10, (128 << 10) / rate, False, now, probe=True)
            soon = notices(links.transferred(B, shown, now), ProbeWanted)  # at once where it was but a lower bound
            now += 0.0 if soon else 3900.0
            sizes += [each.bytes for each in soon or notices(links.handle_timeout(now), ProbeWanted)]
        assert sizes == [3 << 16, MIB // 2, 8 * MIB]

    def test_one_that_a_round_cut_short_is_made_again_as_it_was(self):
        links, _ = linked_for_probes((B,))
        links.round_started()
        links.round_ended(1.0)
        links.handle_timeout(100.0)
        assert notices(links.handle_timeout(300.1), ProbeWanted) == [ProbeWanted(B, 8 * MIB, 30.0)]

    def test_a_disconnected_probe_is_not_waited_for(self):
        links, _ = linked_for_probes()
        links.disconnected(B, 1.0)
        assert notices(links.handle_timeout(1.0), ProbeWanted) == [ProbeWanted(C, 8 * MIB, 30.0)]

    def test_one_that_left_something_open_is_made_once_more_after_a_while_though_its_figures_are_fresh(self):
        links, _ = linked_for_probes((B,))
        links.probe_again(B)
        assert notices(move(links, 8 * MIB, 2.0), ProbeWanted) == []
        assert notices(links.handle_timeout(59.0), ProbeWanted) == []
        links.round_started()
        assert notices(links.handle_timeout(61.0), ProbeWanted) == []
        assert notices(links.round_ended(61.0), ProbeWanted) == [ProbeWanted(B, 8 * MIB, 30.0)]
        links.transferred(B, Transfer("in", 10000 * MIB, 1.0, False, 62.0), 62.0)
        assert notices(move(links, 8 * MIB, 63.0), ProbeWanted) == []
        links.round_started()
        links.transferred(B, Transfer("in", 10000 * MIB, 1.0, False, 64.0), 64.0)
        assert notices(links.round_ended(500.0), ProbeWanted) == [], "it was made"

    def test_never_in_a_round(self):
        links, _ = linked_for_probes()
        links.round_started()
        assert notices(move(links, 8 * MIB, 2.0), ProbeWanted) == []
        assert notices(links.handle_timeout(40.0), ProbeWanted) == []
        assert links.next_timeout() > 40.0
        assert notices(links.round_ended(41.0), ProbeWanted) == [ProbeWanted(C, 8 * MIB, 30.0)]

    def test_never_while_the_line_is_needed(self):
        links, _ = linked_for_probes()
        for second in range(2, 62, 6):
            links.reserve(second + 10.0)
            links.reserve(second + 2.0)
            assert notices(move(links, 8 * MIB, second + 1.0), ProbeWanted) == []
            assert notices(links.handle_timeout(second + 6.0), ProbeWanted) == []
        assert notices(wait(links, 65.0), ProbeWanted) == []
        assert notices(wait(links, 67.0), ProbeWanted) == [ProbeWanted(C, 8 * MIB, 30.0)]

    def test_rounds_fill_the_bucket_by_a_hundredth_and_only_rounds_do(self):
        links, _ = linked_for_probes((B,), profile=replace(PROBING, probe_credit=8 * MIB + MIB // 2))
        assert notices(links.handle_timeout(400.0), ProbeWanted), "the second, a short one, and last of the credit"
        links.transferred(C, Transfer("in", 10000 * MIB, 1.0, False, 401.0), 401.0)
        links.receive(B, Hello(2, 3600.0, 99.0, None, None), 800.0)
        assert notices(links.handle_timeout(800.0), ProbeWanted) == []
        links.round_started()
        links.transferred(C, Transfer("in", 18 * MIB, 1.0, False, 801.0), 801.0)
        assert notices(links.round_ended(802.0), ProbeWanted) == []
        links.round_started()
        links.transferred(C, Transfer("in", MIB, 1.0, False, 803.0), 803.0)
        assert notices(links.round_ended(804.0), ProbeWanted) == [ProbeWanted(B, 3 << 16, 30.0)]

    def test_the_bucket_does_not_overflow(self):
        links, _ = linked_for_probes((B,))
        links.round_started()
        links.transferred(C, Transfer("in", 2**40, 1.0, False, 1.0), 1.0)
        links.round_ended(2.0)
        wanted = []
        for number in range(1, 6):
            wanted.append(notices(links.handle_timeout(400.0 * number), ProbeWanted))
            links.round_started()  # which cuts it short, so that the next one is as long
            links.round_ended(400.0 * number + 1.0)
        assert list(map(len, wanted)) == [1, 1, 0, 0, 0]

    def test_whether_a_link_has_recovered_is_asked_with_what_it_once_carried_in_a_moment(self):
        """Regression: it took as many bytes as a line that nobody knows, for which small rounds paid in an hour."""
        links, _ = linked_for_probes((B,), profile=replace(PROBING, probe_credit=12 * MIB))
        move(links, 2 * MIB, 2.0, seconds=4.0, probe=True)
        (wanted,) = notices(move(links, MIB // 4, 10.0, seconds=6.0), ProbeWanted)
        assert abs(wanted.bytes - 3.2 * MIB) < 9, "sixteen round trips of its best, 0.1 s each"
        move(links, 2 * MIB, 12.0, seconds=1.6, probe=True)
        assert links.measurement(B, 12.0).bandwidth_out == int(3.2 * MIB) / 1.6

    def test_what_is_known_needs_no_probe_and_a_lower_bound_is_not_known(self):
        links, _ = linked_for_probes()
        move(links, 100 * MIB, 2.0, to=C, limited=True)
        assert notices(move(links, 8 * MIB, 2.0), ProbeWanted) == [ProbeWanted(C, 8 * MIB, 30.0)]
        links, _ = linked_for_probes()
        move(links, 100 * MIB, 2.0, to=C)
        assert notices(move(links, 8 * MIB, 2.0), ProbeWanted) == []

    def test_what_is_left_over_goes_once_to_links_that_are_doubted(self):
        links = Links(A, replace(PROBING, probe_credit=48 * MIB))
        for neighbour in (B, C):
            links.connected(neighbour, 0.0)
            links.receive(neighbour, Hello(1, 3600.0, 50.0, 0.0, 50.0), 0.1)
        assert links.doubt((C, B), 1.0) == [], "one is under way"
        assert notices(move(links, 8 * MIB, 2.0), ProbeWanted) == [ProbeWanted(C, 8 * MIB, 30.0)], "its first"
        assert notices(move(links, 2 * MIB, 3.0, to=C), ProbeWanted) == [], "to be said anew"
        assert links.doubt((C, B), 3.5) == [ProbeWanted(C, 8 * MIB, 30.0)], "in doubt"
        assert notices(move(links, 8 * MIB, 4.0, to=C, probe=True), ProbeWanted) == [ProbeWanted(B, 8 * MIB, 30.0)]
        assert links.measurement(C, 4.0).bandwidth_out == 8 * MIB, "what it can carry, be the first one what it may"
        assert notices(move(links, 8 * MIB, 5.0), ProbeWanted) == []
        assert links.doubt((C, B), 6.0) == [], "each once for some time"
        assert links.doubt((A,), 7.0) == [], "a stranger"

    def test_doubted_links_are_probed_ever_more_seldom_until_a_probe_shows_something_new(self):
        links = linked_with_credit(B)

        def probed_within(seconds: float, rate: float) -> list[float]:
            nonlocal now
            times, end = [], now + seconds
            while now < end:
                now += 1.0
                effects = links.doubt((B,), now)
                while notices(effects, ProbeWanted):
                    times.append(now)
                    effects = move(links, rate, now, seconds=2.0, probe=True)
            return times

        now = 1.0
        move(links, 2 * MIB, now, seconds=2.0, probe=True)
        slow = probed_within(2 * 3600.0 - 60.0, 2 * MIB)
        gaps = [later - earlier for earlier, later in itertools.pairwise(slow)]
        assert slow[0] == 2.0
        assert gaps == [120.0, 240.0, 480.0, 960.0, 1920.0]
        fast = probed_within(3600.0, 9 * MIB)
        gaps = [later - earlier for earlier, later in itertools.pairwise(fast)]
        assert gaps[:2] == [60.0, 120.0], "it is another link since, and may soon be another again"

    def test_a_link_that_carries_far_less_than_once_is_looked_at_again_though_nobody_doubts_it(self):
        """Regression: plans that went around a line which had been slow did so for an hour after it had recovered."""
        links = linked_with_credit(B)
        assert notices(move(links, 20 * MIB, 1.0, seconds=2.0, probe=True), ProbeWanted) == []
        assert notices(move(links, 13 * MIB, 2.0, seconds=9.0), ProbeWanted) == [], "a share, perhaps"
        assert notices(move(links, 3 * MIB, 11.0, seconds=9.0), ProbeWanted) == [ProbeWanted(B, 8 * MIB, 30.0)]
        assert notices(move(links, 3 * MIB, 21.0, seconds=3.0, probe=True), ProbeWanted) == []
        assert notices(links.handle_timeout(60.0), ProbeWanted) == []
        assert notices(links.handle_timeout(11.0 + 60.0), ProbeWanted) == [ProbeWanted(B, 8 * MIB, 30.0)]
        move(links, 20 * MIB, 75.0, seconds=2.0, probe=True)
        assert links.measurement(B, 75.0).bandwidth_out == 20 * MIB
        assert notices(links.handle_timeout(3000.0), ProbeWanted) == [], "as it was"

    def test_a_probe_that_a_round_cut_short_counts_where_it_showed_that_the_link_has_recovered(self):
        """Regression: it showed 32 of 34 Mbit/s, and was a lower bound among many samples of 5."""
        links = linked_with_credit(B)
        move(links, 20 * MIB, 1.0, seconds=2.0, probe=True)
        for at in range(10, 60, 10):
            move(links, 3 * MIB, float(at), seconds=9.0)
        move(links, 2 * MIB, 61.0, seconds=2.0, probe=True, limited=True)
        assert links.measurement(B, 61.0).bandwidth_out == 3 * MIB, "it can do more than that"
        move(links, 6 * MIB, 62.0, seconds=0.5, probe=True, limited=True)
        assert links.measurement(B, 62.0).bandwidth_out == 3 * MIB, "too short, at a round trip of 0.1 s"
        move(links, 18 * MIB, 63.0, seconds=2.0, probe=True, limited=True)
        assert links.measurement(B, 63.0).bandwidth_out == 18 * MIB

    def test_a_probe_in_doubt_that_a_round_cut_short_makes_the_next_pause_no_longer(self):
        links = linked_with_credit(B)
        move(links, 20 * MIB, 1.0, seconds=2.0, probe=True)
        assert notices(move(links, 3 * MIB, 11.0, seconds=9.0), ProbeWanted)
        move(links, 2 * MIB, 12.0, seconds=2.0, probe=True, limited=True)
        for at in (71.0, 131.0):
            assert notices(links.handle_timeout(at - 1.0), ProbeWanted) == []
            assert notices(links.handle_timeout(at), ProbeWanted) != []
            move(links, 2 * MIB, at + 1.0, seconds=2.0, probe=True, limited=True)

    def test_a_probe_in_doubt_that_had_no_turn_before_a_round_began_makes_the_next_pause_no_longer(self):
        """Regression: it showed nothing, so nothing was told of it, and the pause stayed twice as long."""
        links = linked_with_credit(B)
        move(links, 20 * MIB, 1.0, seconds=2.0, probe=True)
        assert notices(move(links, 3 * MIB, 11.0, seconds=9.0), ProbeWanted)
        for at in (71.0, 131.0):
            links.round_started()
            assert notices(links.round_ended(at - 59.0), ProbeWanted) == []
            assert notices(links.handle_timeout(at - 1.0), ProbeWanted) == []
            assert notices(links.handle_timeout(at), ProbeWanted) != []

    def test_of_links_below_what_they_were_the_first_is_one_whose_last_probe_showed_that(self):
        """Of the others rounds may show but a share of a line, and each round does so again."""
        links = linked_with_credit(B, C)
        for neighbour in (B, C):
            move(links, 20 * MIB, 1.0, seconds=2.0, to=neighbour, probe=True)
        for neighbour in (B, C):
            links.round_started()
            move(links, 3 * MIB, 10.0, seconds=9.0, to=neighbour)
            assert [each.neighbour for each in notices(links.round_ended(10.0), ProbeWanted)] == [neighbour]
            shows = 20 * MIB if neighbour == B else 3 * MIB
            move(links, shows, 12.0, seconds=2.0, to=neighbour, probe=True)
        links.round_started()
        for neighbour in (B, C):
            move(links, 3 * MIB, 20.0, seconds=9.0, to=neighbour)
        assert [each.neighbour for each in notices(links.round_ended(3000.0), ProbeWanted)] == [C]

    def test_where_one_link_has_changed_the_others_that_fell_are_soon_looked_at_again(self):
        links = linked_with_credit(B, C)
        for neighbour in (B, C):
            move(links, 20 * MIB, 1.0, seconds=2.0, to=neighbour, probe=True)
            move(links, 3 * MIB, 10.0, seconds=9.0, to=neighbour)
        now, gap = 10.0, 0.0
        while gap < 1000.0:
            wanted = notices(links.handle_timeout(now + 1.0), ProbeWanted)
            gap, now = gap + 1.0, now + 1.0
            for each in wanted:
                gap = 0.0
                move(links, 3 * MIB, now, seconds=3.0, to=each.neighbour, probe=True)
        wanted = notices(move(links, 20 * MIB, now, seconds=9.0, to=C), ProbeWanted)
        assert [each.neighbour for each in wanted] == [B], "it may be our line"

    def test_a_share_of_a_line_in_each_round_does_not_have_the_link_probed_again_and_again(self):
        links = linked_with_credit(B)
        move(links, 20 * MIB, 1.0, seconds=2.0, probe=True)
        probed = 0
        for minute in range(1, 180):
            effects = move(links, 5 * MIB, 60.0 * minute, seconds=9.0)
            while notices(effects, ProbeWanted):
                probed += 1
                effects = move(links, 20 * MIB, 60.0 * minute, seconds=2.0, probe=True)
        assert 6 <= probed <= 8, "ever more seldom"

    def test_an_hour_later_it_is_no_longer_known(self):
        links, _ = linked_for_probes((B,))
        move(links, 8 * MIB, 2.0)
        assert notices(links.handle_timeout(3601.0), ProbeWanted) == []
        assert notices(links.handle_timeout(3602.0), ProbeWanted) == [ProbeWanted(B, 8 * MIB, 30.0)]

    def test_each_begins_after_its_own_name(self):
        _, wanted = linked_for_probes((A, C), me=B)
        assert wanted[0].neighbour == A, "the only link that was up"
        links = Links(B, PROBING)
        links.round_started()
        for neighbour in (A, C):
            links.connected(neighbour, 0.0)
            links.receive(neighbour, Hello(1, 4.0, 50.0, 0.0, 50.0), 0.1)
        assert notices(links.round_ended(1.0)) == [ProbeWanted(C, 8 * MIB, 30.0)]

    @settings(deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["round", "end", "wait", "wait", "move", "fail", "doubt"]),
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
                    effects = links.transferred(neighbour, Transfer("in", size, 1.0, False, now), now)
                case "doubt":
                    effects = links.doubt((neighbour, B), now)
                case "fail":
                    outstanding = None if outstanding == neighbour else outstanding
                    links.disconnected(neighbour, now)
                    effects = links.connected(neighbour, now)
            for wanted in notices(effects, ProbeWanted):
                assert not in_round
                assert outstanding is None or now >= since + PROBING.probe_timeout
                outstanding, since, probed = wanted.neighbour, now, probed + wanted.bytes
            assert probed <= PROBING.probe_credit + 0.01 * moved
