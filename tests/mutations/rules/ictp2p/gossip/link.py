"""The rules of `ictp2p/gossip/link.py`, broken."""

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
        "recovery-asked-at-full-length",
        "Whether a link has recovered takes no more bytes than that: of small rounds few may be probed.",
        "        if self.again or not self._windows",
        "        if True or not self._windows",
        (
            "gossip/test_link_probes.py::TestProbes::test_whether_a_link_has_recovered_is_asked_with_what_it_once_carried_in_a_moment",
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
        "cut-short-for-an-hour",
        "A probe in doubt that a round cut short makes no longer pause.",
        "min(self.pause, self._pause_before)",
        "self.pause",
        (
            "gossip/test_link_probes.py::TestProbes::"
            "test_a_probe_in_doubt_that_a_round_cut_short_makes_the_next_pause_no_longer",
        ),
    ),
    Mutation(
        "shares-probed-before-the-slow",
        "Of links below what they were those are probed first that a probe showed so.",
        "return self._alone < _FALLEN * self._best",
        "return False",
        (
            "gossip/test_link_probes.py::TestProbes::"
            "test_of_links_below_what_they_were_the_first_is_one_whose_last_probe_showed_that",
        ),
    ),
    Mutation(
        "doubts-for-ever",
        "A link that is doubted is probed once more, and then ever more seldom: the credit is for others, too.",
        "self.doubted, self._pause_before = True, self.pause",
        "self._pause_before = self.pause",
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
        "opening = self._opens_within(transfer.seconds, now)",
        "opening = False",
        (
            "gossip/test_link_bandwidth.py::TestBandwidth"
            "::test_of_a_link_that_only_waited_or_only_opened_its_window_nothing_is_known",
        ),
    ),
)
