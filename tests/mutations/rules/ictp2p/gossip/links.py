"""The rules of `ictp2p/gossip/links.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "round-taken-for-a-slow-line",
        "A probe that a round cut short says nothing of how long it would have taken.",
        "            link.cut_short()\n        else:\n",
        "            link.cut_short()\n        if True:\n",
        ("gossip/test_link_probes.py::TestProbes::test_one_that_a_round_cut_short_is_made_again_as_it_was",),
    ),
    Mutation(
        "paused-for-a-probe-without-a-turn",
        "A probe in doubt that had no turn before a round began makes no longer pause.",
        "            link.cut_short()\n        else:\n",
        "            pass\n        else:\n",
        (
            "gossip/test_link_probes.py::TestProbes::"
            "test_a_probe_in_doubt_that_had_no_turn_before_a_round_began_makes_the_next_pause_no_longer",
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
        "up-after-the-end",
        "The end of a connection is told of a link that was up.",
        "        effects = self._lose(neighbour, link)\n        link.talk = None\n",
        "        effects: Effects = []\n        link.talk = None\n",
        ("properties/test_links_exhaustive.py::test_each_end_is_told_in_turn_and_from_every_state_both_come_up",),
    ),
)
