"""The rules of `ictp2p/bulk/pacing.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "a-heap-taken-for-the-line",
        "What arrives at once, because a lost packet had held it up, is not the rate of the line.",
        "rate = min(((total - so_far)",
        "rate = max(((total - so_far)",
        (
            "bulk/test_pacing.py::"
            "test_a_blast_shows_the_line_though_it_began_slowly_and_a_lost_packet_held_up_what_came_behind",
        ),
    ),
    Mutation(
        "slow-start-taken-for-the-line",
        "A probe's beginning, in which the sender's window opens, is left out.",
        "return size, size / rate if rate else seconds, False",
        "return size, seconds, False",
        (
            "bulk/test_pacing.py::"
            "test_a_blast_shows_the_line_though_it_began_slowly_and_a_lost_packet_held_up_what_came_behind",
        ),
    ),
    Mutation(
        "first-frame-in-no-time",
        "What a probe shows that was cut short behind its first frame is no more than the line carries.",
        "return size, max(1e-6, seconds), True",
        "return total, max(1e-6, seconds), True",
        (
            "bulk/test_probing.py::test_a_probe_that_is_cut_short_behind_its_first_frame_does_not_show_more_than_the_line",
        ),
    ),
    Mutation(
        "stalls-looked-for-seldom",
        "A stall is found within an eighth of its deadline after it.",
        "CHECKS = 16",
        "CHECKS = 4",
        ("bulk/test_pacing.py::test_a_stall_is_found_soon_after_its_deadline_and_never_before_it",),
    ),
    Mutation(
        "short-pause-taken-for-lost-packets",
        "A connection that ends after a pause has lost large packets only if that was a quarter of the deadline.",
        "FEW = CHECKS // 4",
        "FEW = 1",
        ("bulk/test_pacing.py::test_a_connection_stands_still_after_a_quarter_of_the_deadline",),
    ),
)
