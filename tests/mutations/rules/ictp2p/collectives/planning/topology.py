"""The rules of `ictp2p/collectives/planning/topology.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "lower-bounds-ignored",
        "A link that was too fast for its transfers to measure is not taken for a slow one that was measured.",
        "max(assumed, link.at_least) if link.bandwidth is None",
        "assumed if link.bandwidth is None",
        ("core/test_planning.py::test_a_slow_link_that_alone_was_measured_is_no_model_for_faster_ones",),
    ),
    Mutation(
        "rates-that-are-no-numbers",
        "What others say of their lines never has the planner reckon with what is no number, and go round for ever.",
        "    return np.where((rates > 0) & (rates < np.inf), np.clip(rates, LEAST, MOST), rates)\n",
        "    return rates\n",
        (
            "collectives/planning/test_topology.py::test_rates_that_no_line_has_are_taken_for_the_least_or_the_most",
            "core/test_planning.py::test_whatever_a_card_says_of_its_links_there_is_a_plan",
        ),
    ),
)
