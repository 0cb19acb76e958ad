"""The rules of `ictp2p/sync/model/strangers.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "wrapper-taken-for-a-stranger",
        "An optimizer that steps the policy's own within its step is none that people are told of.",
        "self._steps() != steps",
        "False",
        ("sync/model/test_strangers.py::test_who_is_no_stranger",),
    ),
    Mutation(
        "parts-taken-for-strangers",
        "The parts of a joint optimizer, which step within its step, are none that people are told of.",
        "if optimizer is not self._inner and not (self._told or _steps_now(self._inner)):",
        "if optimizer is not self._inner and not self._told:",
        (
            "sync/model/test_strangers.py::test_the_parts_of_a_joint_optimizer_are_strangers_only_where_they_step_by_themselves",
        ),
    ),
    Mutation(
        "outer-stepped-by-the-program",
        "A program that steps the outer optimizer is refused, before anything has moved.",
        "if optimizer is self._outer and any(",
        "if not optimizer and any(",
        ("sync/model/test_strangers.py::test_who_steps_the_outer_optimizer_is_refused[0-<lambda>0]",),
    ),
)
