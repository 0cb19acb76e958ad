"""The rules of `ictp2p/gossip/links.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "slow-line-filled-again",
        "After a probe that took too long the next one is shorter.",
        "        self.shortened = min(self.shortened + 1, len(self._profile.probe_sizes) - 1)\n",
        "        pass\n",
        (
            "gossip/test_link_probes.py::TestProbes::test_one_that_takes_too_long_is_followed_by_shorter_ones_until_a_line_shows_more",
        ),
    ),
    Mutation(
        "short-probes-for-ever",
        "Where a line shows that it carries more, probes are as long as usual again.",
        "            self._lengthen(rate)\n",
        "            pass\n",
        (
            "gossip/test_link_probes.py::TestProbes::test_one_that_takes_too_long_is_followed_by_shorter_ones_until_a_line_shows_more",
        ),
    ),
    Mutation(
        "round-taken-for-a-slow-line",
        "A probe that a round cut short says nothing of how long it would have taken.",
        "if not self._cut_short and self._probing[0]",
        "if self._probing[0]",
        ("gossip/test_link_probes.py::TestProbes::test_one_that_a_round_cut_short_is_made_again_as_it_was",),
    ),
    Mutation(
        "doubts-for-ever",
        "A link that is doubted is probed once more, and then ever more seldom: the credit is for others, too.",
        "self.doubted, self.pause = True, min",
        "self.pause = min",
        ("gossip/test_link_probes.py::TestProbes::test_what_is_left_over_goes_once_to_links_that_are_doubted",),
    ),
    Mutation(
        "pause-for-good",
        "A link that has just changed may soon change again: the next probe in doubt comes soon.",
        "changed = abs(rate - self._alone) > self._profile.shift * self._alone and",
        "changed = not self._alone and",
        (
            "gossip/test_link_probes.py::TestProbes::"
            "test_doubted_links_are_probed_ever_more_seldom_until_a_probe_shows_something_new",
        ),
    ),
    Mutation(
        "fallen-for-an-hour",
        "A link that carries far less than once is looked at again: no plan would use it to find out.",
        "for neighbour in (*self._doubted, *fallen):",
        "for neighbour in self._doubted:",
        (
            "gossip/test_link_probes.py::TestProbes::"
            "test_a_link_that_carries_far_less_than_once_is_looked_at_again_though_nobody_doubts_it",
        ),
    ),
    Mutation(
        "others-wait-their-pause",
        "Where one link has changed it may be the line, so that the others are soon looked at again.",
        "                each.pause = self._profile.probe_again\n",
        "                pass\n",
        (
            "gossip/test_link_probes.py::TestProbes::"
            "test_where_one_link_has_changed_the_others_that_fell_are_soon_looked_at_again",
        ),
    ),
    Mutation(
        "own-sleep-taken-for-silence",
        "A process that was late itself does not take its neighbours for silent, whose Hellos it has not read yet.",
        "            self._lagged(now - due_at, now)\n",
        "            pass\n",
        ("gossip/test_link_lag.py::test_whoever_speaks_is_not_lost_however_long_and_often_we_sleep",),
    ),
    Mutation(
        "no-time-to-read",
        "After a sleep there is time to read what came meanwhile, though the silence was nearly long enough before.",
        "talk.postpone(late + interval, now)",
        "talk.postpone(late, now)",
        (
            "gossip/test_link_lag.py::"
            "test_after_a_sleep_there_is_time_to_read_though_the_silence_was_nearly_long_enough",
        ),
    ),
    Mutation(
        "up-again-by-sleep",
        "A link that was lost is not up again because its own end slept.",
        "            if link.told is not None:  # what was lost",
        "            if True:  # what was lost",
        ("gossip/test_link_lag.py::test_a_lost_link_is_not_up_again_because_we_slept",),
    ),
    Mutation(
        "late-report-taken-for-life",
        "A transfer that broke off long ago is no sign of life when it is reported.",
        "link.talk.heard_at = max(link.talk.heard_at, transfer.ended)",
        "link.talk.heard_at = max(link.talk.heard_at, now)",
        ("gossip/test_link_hellos.py::TestLoss::test_bytes_of_a_transfer_that_broke_off_long_ago_are_none",),
    ),
    Mutation(
        "probed-again-and-again",
        "A link whose probe left something open is probed once more, and not on and on: credit is for others, too.",
        "link.probed_at, link.again = now, False",
        "link.probed_at = now",
        (
            "gossip/test_link_probes.py::TestProbes::"
            "test_one_that_left_something_open_is_made_once_more_after_a_while_though_its_figures_are_fresh",
        ),
    ),
    Mutation(
        "share-taken-for-a-change",
        "That a link shows its share of a line in a round does not have it probed again and again.",
        "and (probe or rate > self._alone)",
        "and rate > 0.0",
        (
            "gossip/test_link_probes.py::TestProbes::"
            "test_a_share_of_a_line_in_each_round_does_not_have_the_link_probed_again_and_again",
        ),
    ),
    Mutation(
        "opening-window-taken-for-the-link",
        "What a sender's window let through in a few round trips is a lower bound, and not what the link carries.",
        "at_least = transfer.limited or self.opens_within(transfer.seconds, now)",
        "at_least = transfer.limited",
        (
            "gossip/test_link_bandwidth.py::TestBandwidth"
            "::test_of_a_link_that_only_waited_or_only_opened_its_window_nothing_is_known",
        ),
    ),
)
