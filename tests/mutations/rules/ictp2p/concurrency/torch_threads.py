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
        ("concurrency/test_torch_threads.py::test_each_job_is_done_once_and_all_cores_have_part_in_them_alone",),
    ),
    Mutation(
        "shared-and-failed-in-silence",
        "What fails in a thread that helps is an error of whoever shared it.",
        "    for error in errors:\n        raise error\n",
        "",
        ("concurrency/test_torch_threads.py::test_the_first_error_ends_all",),
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
    Mutation(
        "as-many-cores-as-torch-takes",
        "What is large is done by all cores that there are, also where torch is told to take one.",
        "min(_cores(), len(left), most, _MOST)",
        "min(torch.get_num_threads(), len(left), most, _MOST)",
        ("concurrency/test_torch_threads.py::test_each_job_is_done_once_and_all_cores_have_part_in_them_alone",),
    ),
    Mutation(
        "cores-of-others-used",
        "A process that is bound to some cores starts no threads for the others.",
        "return len(os.sched_getaffinity(0))",
        "return os.cpu_count() or 1",
        ("concurrency/test_torch_threads.py::test_only_the_cores_that_a_process_is_bound_to_are_its_own",),
    ),
    Mutation(
        "alone-only-among-several",
        "What must be equal everywhere is computed by one thread alone also where no second one has part in it.",
        "suits = team < 2 and torch.get_num_threads() == 1 and not flushes()",
        "suits = team < 2",
        ("concurrency/test_torch_threads.py::test_one_thread_computes_alone_as_well",),
    ),
    Mutation(
        "zero-inherited-by-the-loop",
        "What a peer computes it computes with subnormal numbers, whatever its program takes them for.",
        "    torch.set_flush_denormal(False)\n",
        "",
        (
            "concurrency/test_torch_threads.py::test_a_loop_computes_with_numbers_next_to_zero_though_its_program_does_not",
        ),
    ),
)
