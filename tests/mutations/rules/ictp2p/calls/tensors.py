"""The rules of `ictp2p/calls/tensors.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "weights-beyond-any-sum",
        "A weight is refused where the sum of several would be beyond what a float holds.",
        "        if not LEAST_WEIGHT <= self.weight <= MOST_WEIGHT:\n",
        "        if not 0 < self.weight < math.inf:\n",
        ("calls/test_arguments.py::test_what_is_of_another_kind_is_named",),
    ),
    Mutation(
        "negative-views-as-they-lie",
        "A negative view is summed as what it is, also where it lies as any tensor does.",
        "t.detach().resolve_neg()",
        "t.detach()",
        ("calls/test_arguments.py::test_a_negative_view_is_taken_for_what_it_is",),
    ),
    Mutation(
        "mode-of-the-calling-thread",
        "Results are written into tensors of inference_mode by whichever thread, and into others as ever.",
        "    tensor.detach().copy_(content)\n",
        "    tensor.copy_(content)\n",
        ("calls/test_arguments.py::test_results_arrive_in_the_callers_tensors_whichever_mode_the_caller_is_in",),
    ),
)
