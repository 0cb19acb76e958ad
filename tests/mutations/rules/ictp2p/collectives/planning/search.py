"""The rules of `ictp2p/collectives/planning/search.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "crowded-lines-taken-for-free",
        "Of plans that are about as fast the one that crowds its lines less is taken.",
        "candidate.crowded * MARGIN < best.crowded",
        "candidate.seconds * MARGIN < best.seconds",
        ("collectives/planning/test_planner.py::test_of_plans_that_are_as_fast_the_one_that_crowds_no_line_is_taken",),
    ),
    Mutation(
        "content-with-a-crowded-plan",
        "A plan at the bound that crowds its lines does not end the search for another.",
        "best = min(best, candidate.fluid + max(0.0, candidate.crowded - candidate.seconds))",
        "best = min(best, candidate.fluid)",
        ("collectives/planning/test_planner.py::test_where_lines_would_be_crowded_trees_are_looked_for_as_well",),
    ),
    Mutation(
        "no-chain-alone",
        "Where one chain does, more of them are not relied on: what they carry depends on figures that may be wrong.",
        '            ("ring", (chain, *cycle) if chain else (), True),\n',
        "",
        (
            "collectives/planning/test_planner.py::test_one_chain_does_where_a_slow_line_can_be_its_end_however_wrong_the_figures_are",
        ),
    ),
)
