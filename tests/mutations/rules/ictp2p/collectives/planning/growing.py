"""The rules of `ictp2p/collectives/planning/growing.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "stopped-program-believed",
        "What a program holds that was stopped in its middle is no packing.",
        "        if not self._packing.exhausted:\n",
        "        if self._packing:\n",
        (
            "collectives/planning/test_laying.py::test_what_is_packed_never_promises_more_than_lines_carry_however_soon_"
            "the_program_is_stopped",
        ),
    ),
    Mutation(
        "near-however-dear",
        "Trees that are too dear so near to their roots are laid again, further from them.",
        "            if bound * min(cost) * rates.sum() * _FAIR >= 1:\n",
        "            if True:\n",
        ("collectives/planning/test_laying.py::test_oceans_are_crossed_as_seldom_as_a_short_vector_needs",),
    ),
    Mutation(
        "groups-prove-nothing",
        "Where a program over all trees is out of reach, one over those of few groups proves a bound.",
        "        growth.bound = max(growth.bound, _merged_bound(topology, growth.bound))\n",
        "        pass\n",
        (
            "collectives/planning/test_bounds.py::test_few_groups_prove_more_than_volumes_where_too_much_limits_for_a_"
            "program",
        ),
    ),
    Mutation(
        "full-lines-not-relieved",
        "Trees are sought where those that were laid leave room.",
        "            growth.relieve()\n",
        "            pass\n",
        ("collectives/planning/test_laying.py::test_trees_go_where_those_that_were_laid_leave_room",),
    ),
)
