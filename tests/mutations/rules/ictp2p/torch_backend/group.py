"""The rules of `ictp2p/torch_backend/group.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "factor-once-for-each",
        "A factor counts once for what several tensors share.",
        "                products = [reduction.contribution(part) for part in flat]\n",
        "                products = (reduction.contribution(part) for part in flat)\n",
        ("torch_backend/test_memory.py::test_a_factor_counts_once_for_tensors_that_share_memory",),
    ),
    Mutation(
        "types-reduced-as-one",
        "Of several tensors that are reduced at once each is reduced as what it is.",
        "{out.dtype: Reduction(operation, out.dtype) for out in outputs}",
        "dict.fromkeys([out.dtype for out in outputs], Reduction(operation, outputs[0].dtype))",
        ("torch_backend/test_parity.py::test_every_collective_gives_what_gloo_gives",),
    ),
    Mutation(
        "shut-down-after-the-end",
        "A group that is shut down as the interpreter ends raises nothing.",
        "with contextlib.suppress(GroupClosed):  # the",
        "with contextlib.suppress():  # the",
        ("torch_backend/test_group_ends.py::test_a_group_may_be_shut_down_after_the_interpreter_has_ended_its_loop",),
    ),
)
