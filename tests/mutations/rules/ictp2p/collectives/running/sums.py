"""The rules of `ictp2p/collectives/running/sums.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "contribution-added-to",
        "A participant's own contribution is read and never written: a failed attempt is repeated from it.",
        "            self._add_native(targets, own, staged, apart=not self._in_place)\n",
        "            self._add_native(own, own, staged, apart=not self._in_place)\n",
        ("collectives/running/test_sums.py::test_a_root_adds_raw_and_partial_terms_with_their_weights_once",),
    ),
    Mutation(
        "passed-on-from-the-inputs",
        "A sum that is passed on is made where it leaves from, even where results take the place of contributions.",
        "        self._add_native([total[a:b] for a, b in pairwise(ends)], own, staged, apart=True)\n",
        "        self._add_native(own, own, staged, apart=True)\n        room[:] = b''.join(own)\n",
        (
            "collectives/running/test_sums.py::test_a_sum_that_is_passed_on_is_made_where_it_leaves_from_and_nowhere_else",
        ),
    ),
    Mutation(
        "added-as-it-comes",
        "Terms are added in the order of participants, so that a repeat gives the same bits.",
        "for node in sorted((*staged, self._me)):",
        "for node in (*staged, self._me):",
        ("collectives/running/test_sums.py::test_terms_are_added_in_the_order_of_participants",),
    ),
    Mutation(
        "widened-as-it-comes",
        "Half-precision terms too are added in the order of participants.",
        "for node in sorted([*staged, self._me]):",
        "for node in [*staged, self._me]:",
        ("collectives/running/test_sums.py::test_terms_are_added_in_the_order_of_participants",),
    ),
    Mutation(
        "in-place-clobbers",
        "Where a sum is made in the contribution's own place, the contribution is read before it is overwritten.",
        "        return mine.copy()\n",
        "        return mine\n",
        ("bulk/test_reduce.py::test_in_place_is_exact_whatever_our_place_among_the_terms",),
    ),
    Mutation(
        "as-many-are-the-same",
        "Inputs and outputs in as many pieces are added piece by piece only if they are cut alike.",
        "    if ends == other_ends:\n",
        "    if len(ends) == len(other_ends):\n",
        ("collectives/running/test_sums.py::test_outputs_may_be_cut_elsewhere_than_inputs",),
    ),
    Mutation(
        "beginnings-left-out",
        "What comes before the first line of the cache in a long range is added as well.",
        "                self._sum(target[:head], [(term[:head], factor) for term, factor in piece])\n",
        "",
        ("collectives/running/test_sums.py::test_long_ranges_that_begin_anywhere_are_added_whole",),
    ),
    Mutation(
        "written-across-lines",
        "A long range is written from the beginning of a line of the cache on.",
        '-target.__array_interface__["data"][0] % _LINE // target.itemsize',
        "0",
        ("collectives/running/test_sums.py::test_a_long_range_is_written_from_the_beginning_of_a_line_on",),
    ),
)
