"""The rules of `ictp2p/collectives/planning/candidates.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "windows-not-priced",
        "A plan is priced with the windows that it is run with.",
        "    busy = max(busy, staging.held_back(sizes / chunk, ways, window))\n",
        "",
        ("collectives/planning/test_staging.py::test_regions_of_64_far_apart_are_at_their_bound",),
    ),
    Mutation(
        "chunks-hold-links-up",
        "A chunk is short where it would occupy a link for long.",
        "max(least, speed * CHUNK_SECONDS)",
        "CHUNK",
        (
            "collectives/planning/test_planner_chunks.py::test_a_chunk_neither_holds_a_link_up_nor_falls_out_of_the_caches",
        ),
    ),
    Mutation(
        "few-chunks-over-many-hops",
        "A share has more chunks than its way has hops, or these come one after another.",
        "    least = min(max(LEAST_CHUNK, short), SLOW_CHUNK)\n",
        "    least = SLOW_CHUNK\n",
        ("collectives/planning/test_planner_chunks.py::test_short_shares_with_long_ways_travel_in_shorter_chunks",),
    ),
    Mutation(
        "first-tree-taken-for-the-fastest",
        "Left out without a prediction is only what cannot be faster than the fastest so far.",
        "if best is not None and least[index] > best[0]:",
        "if best is not None:",
        (
            "collectives/planning/test_candidates.py"
            "::test_the_fastest_tree_by_itself_is_that_of_all_predicted_the_first_of_several",
        ),
    ),
    Mutation(
        "uneven-for-nothing",
        "Of divisions that are as fast the even one is taken.",
        " if _AS_FAST * rates.sum() <= even * len(trees) < np.inf else rates\n",
        " if False else rates\n",
        (
            "collectives/planning/test_planner_chunks.py::test_where_links_differ_shares_are_equal_still_if_no_division_is_faster",
        ),
    ),
)
