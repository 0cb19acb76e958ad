"""The rules of `ictp2p/sync/policies/sparse.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "residual-lost-in-looking-on",
        "What a sparse cluster kept back stays while it looks on: in a contribution without weight it would be lost.",
        "        if weight:\n            kept.apply(self.delta)\n",
        "        if True:\n            kept.apply(self.delta)\n",
        ("sync/two_level/test_looking_on.py::test_what_a_cluster_kept_back_is_not_lost_while_it_looks_on",),
    ),
    Mutation(
        "overflow-brought-in-part",
        "What overflows with what a sparse cluster kept back is not brought.",
        "            check_finite(self._views(self.delta))\n",
        "",
        ("sync/policies/test_sparse.py::test_what_overflows_with_what_was_kept_back_is_not_brought",),
    ),
    Mutation(
        "residual-moves-before-commit",
        "What a sparse contribution leaves out is the residual only once the round is committed with it.",
        "            kept.apply(self.delta)\n",
        "            kept.apply(self.delta)\n            kept.commit()\n",
        ("sync/policies/test_sparse.py::test_an_aborted_round_leaves_everything_bit_for_bit_as_it_was",),
    ),
    Mutation(
        "residual-of-the-next-fragment",
        "A round of one fragment moves its residual, not that of the fragment whose turn is next.",
        "        super().commit(version)\n        self._kept[self._captured].commit()",
        "        super().commit(version)\n        self._kept[self.fragment].commit()",
        ("sync/policies/test_sparse.py::test_each_fragment_has_a_residual_of_its_own",),
    ),
    Mutation(
        "residual-moves-with-others-round",
        "A round that others finished without this cluster takes nothing of its residual.",
        "        for fragment in mine:\n",
        "        for fragment in (self._captured,):\n",
        ("sync/policies/test_sparse.py::test_a_round_that_went_on_without_us_takes_nothing_of_the_residual",),
    ),
    Mutation(
        "residual-forgets-fetched-round",
        "A committed contribution moves the residual also where its result was fetched.",
        "        for fragment in mine:\n",
        "        for fragment in ():\n",
        ("sync/policies/test_sparse.py::test_a_contribution_that_the_mesh_has_moves_the_residual",),
    ),
    Mutation(
        "residual-not-carried",
        "A newcomer to a cluster takes over what a contribution under way will leave out.",
        '        if "pending" in carried:\n',
        "        if False:\n",
        ("sync/policies/test_sparse.py::test_a_newcomer_of_the_cluster_takes_the_residual_over",),
    ),
)
