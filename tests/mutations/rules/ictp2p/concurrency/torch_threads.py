"""The rules of `ictp2p/concurrency/torch_threads.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "all-compute-alone",
        "Threads that a program begins later compute with as many threads as if there were no peer.",
        "        torch.set_num_threads(usual)\n",
        "",
        ("concurrency/test_torch_threads.py::test_a_loop_computes_alone_and_nobody_else_does",),
    ),
    Mutation(
        "no-loop-without-another-thread",
        "A loop runs also where no thread can be had to put back how many others compute with.",
        "    with suppress(RuntimeError):\n        restoring",
        "    if True:\n        restoring",
        ("concurrency/test_torch_threads.py::test_a_loop_runs_though_no_thread_is_left_to_put_anything_back",),
    ),
    Mutation(
        "no-step-without-another-thread",
        "A step is taken also where no thread can be had to help with it.",
        "        except RuntimeError:\n            helpers.pop()\n",
        "        except ZeroDivisionError:\n            helpers.pop()\n",
        ("concurrency/test_torch_threads.py::test_where_no_thread_can_be_had_it_is_done_here",),
    ),
    Mutation(
        "a-team-for-each-of-a-team",
        "Who helps with what is shared computes alone, or each of its operations waits for a team of its own.",
        "        compute_alone()\n        try:",
        "        try:",
        ("concurrency/test_torch_threads.py::test_what_is_shared_is_done_once_to_each_by_all_of_a_team_alone",),
    ),
    Mutation(
        "shared-and-failed-in-silence",
        "What fails in a thread that helps is an error of whoever shared it.",
        "    for error in errors:\n        raise error\n",
        "",
        ("concurrency/test_torch_threads.py::test_the_first_error_ends_what_is_shared",),
    ),
    Mutation(
        "helpers-that-work-on",
        "Nobody writes any more to what an interrupted step was about.",
        "            with suppress(RuntimeError):\n                helper.join()\n",
        "            pass\n",
        (
            "concurrency/test_torch_threads.py::test_nobody_works_on_for_who_was_interrupted",
            "concurrency/test_torch_threads.py::test_nor_for_who_is_interrupted_before_all_have_begun",
        ),
    ),
)
