"""The rules of `ictp2p/collectives/planning/schedules/radius.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "tree-grows-beyond-its-radius",
        "Nobody is further from the root than the radius.",
        "            better = out & (price[node] < least) & (away[node] + ways[node] <= self._radius)\n",
        "            better = out & (price[node] < least)\n",
        ("collectives/planning/test_radius.py::test_they_lead_from_the_root_to_everybody_within_the_radius",),
    ),
    Mutation(
        "moved-with-those-below-too-far",
        "Who is moved takes all below it along: none of them may get too far.",
        "            further = away[under].max() - away[node]\n",
        "            further = 0.0\n",
        ("collectives/planning/test_radius.py::test_they_lead_from_the_root_to_everybody_within_the_radius",),
    ),
    Mutation(
        "moved-below-itself",
        "Nobody is moved to one below it: that would be a cycle.",
        "            able = ~under & (away + self._ways[:, node] + further <= self._radius)\n",
        "            able = away + self._ways[:, node] + further <= self._radius\n",
        ("collectives/planning/test_radius.py::test_they_lead_from_the_root_to_everybody_within_the_radius",),
    ),
    Mutation(
        "those-above-forget-whom-they-lose",
        "Who is moved is below nobody whom it was below before.",
        "        below[below[:, self.parents[node], None] & under] = False\n",
        "",
        ("collectives/planning/test_radius.py::test_they_lead_from_the_root_to_everybody_within_the_radius",),
    ),
)
