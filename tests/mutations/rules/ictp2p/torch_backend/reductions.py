"""The rules of `ictp2p/torch_backend/reductions.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "refused-as-it-runs",
        "What a type cannot be reduced by is refused before anything leaves.",
        "            check_op(kind, dtype)\n",
        "",
        ("torch_backend/test_group_tensors.py::test_what_a_type_cannot_is_refused_by_name",),
    ),
    Mutation(
        "factor-of-another-type",
        "A factor that would make another type of a tensor is refused on every rank.",
        'device="cpu"), factor) != dtype:',
        'device="cpu"), factor) is None:',
        ("torch_backend/test_group_tensors.py::test_a_factor_leaves_the_type_as_it_is_or_is_refused_everywhere",),
    ),
)
