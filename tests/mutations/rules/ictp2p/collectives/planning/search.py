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
    Mutation(
        "short-vectors-led-afar",
        "Where the ways of many hops take about as long as the bytes, trees are laid near their roots.",
        "self.bound < _WAITS * near.radius < np.inf",
        "self.bound < 0",
        ("collectives/planning/test_laying.py::test_oceans_are_crossed_as_seldom_as_a_short_vector_needs",),
    ),
    Mutation(
        "near-trees-lost-among-further-ones",
        "Near trees stand for choice beside those that were grown further from them.",
        "            (together, laid if grown.laid and grown.laid.near and set(laid) < set(grown.trees) else ()),\n",
        "",
        ("collectives/planning/test_laying.py::test_oceans_are_crossed_as_seldom_as_a_short_vector_needs",),
    ),
    Mutation(
        "closest-trees-not-tried",
        "Where near trees are not dear and the time is short, closer ones are tried.",
        "            (together, self._closest(grown.laid, near)),\n",
        "",
        ("collectives/planning/test_laying.py::test_oceans_are_crossed_as_seldom_as_a_short_vector_needs",),
    ),
)
