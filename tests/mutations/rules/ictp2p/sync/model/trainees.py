"""The rules of `ictp2p/sync/model/trainees.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "second-optimizer-unseen",
        "A parameter that another optimizer would step apart is refused, by name.",
        "        if lacking is not None:\n",
        "        if False:\n",
        ("sync/model/test_trainees.py::test_what_another_optimizer_would_step_is_named",),
    ),
    Mutation(
        "frozen-and-moved",
        "A layer that is frozen under a policy is refused, and not moved on by the outer momentum.",
        "        if stopped is not None:\n",
        "        if False:\n",
        ("sync/model/test_trainees.py::test_a_layer_that_is_frozen_under_a_policy_is_named",),
    ),
    Mutation(
        "strangers-trained",
        "What the inner optimizer steps is the model's, and so the same on every worker.",
        "        if strange:\n",
        "        if not strange and strange:\n",
        ("sync/model/test_trainees.py::test_a_parameter_that_the_optimizer_gets_later_is_refused",),
    ),
    Mutation(
        "unfrozen-apart",
        "A parameter that was frozen when the policy was made is not trained under it.",
        "if parameter.requires_grad and parameter.grad is not None:",
        "if parameter.requires_grad is None:",
        ("sync/model/test_trainees.py::test_a_layer_that_is_unfrozen_under_a_policy_is_named",),
    ),
)
