"""The rules of `ictp2p/sync/optimizers/outer.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "outer-optimizer-that-counts-in-its-groups",
        "An outer optimizer whose state is not all in tensors is refused when the policy is made.",
        "        if moved is not None:\n",
        "        if False:\n",
        ("sync/optimizers/test_outer.py::test_what_cannot_be_shared_is_refused",),
    ),
    Mutation(
        "momentum-scaled-by-the-rate",
        "What a step moves by is scaled where it lies only if nobody needs it any more.",
        "move.mul(rate) if lasts else",
        "move.mul(rate) if False else",
        ("sync/optimizers/test_outer.py::test_nesterov_rounds_each_operation_once",),
    ),
    Mutation(
        "worked-in-the-gradient",
        "An outer optimizer that works in its gradient does not do so in the average, which followers step from too.",
        "delta if self.in_parts else delta.clone()",
        "delta",
        ("sync/optimizers/test_outer.py::test_the_average_is_left_as_it_came",),
    ),
    Mutation(
        "scheduled-only-once",
        "Each outer step is taken at the factor of its own round, of the rates that the optimizer was given with.",
        'group["lr"] = rate * factor',
        'group["lr"] = group["lr"] * factor',
        (
            "sync/optimizers/test_outer_schedule.py::test_a_rate_that_is_moved_while_a_round_is_under_way_is_not_stepped_with",
        ),
    ),
    Mutation(
        "other-schedules-fit",
        "Workers whose outer schedules differ do not fit each other, and are told so before they train.",
        "return (*lines, *self._schedule.describe())",
        "return tuple(lines)",
        ("sync/optimizers/test_outer_schedule.py::test_workers_with_other_schedules_do_not_fit_each_other",),
    ),
    Mutation(
        "as-many-bits-as-cores",
        "An outer optimizer steps to the same bits however many threads torch takes on a host.",
        "            each_alone([(optimizer.step, ())])\n",
        "            optimizer.step()\n",
        ("sync/optimizers/test_outer.py::test_the_bits_do_not_depend_on_the_threads_that_torch_has",),
    ),
    Mutation(
        "agreed-state-left-in-the-outer-optimizer",
        "The program's own outer optimizer holds what the mesh agreed on for the time of a step alone.",
        """            for group, parameters in given:
                group["params"] = parameters
""",
        "",
        ("sync/model/test_strangers.py::test_who_steps_the_outer_optimizer_is_refused[2-Nesterov]",),
    ),
)
