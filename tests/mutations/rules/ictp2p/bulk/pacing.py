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
)
