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
        "    with suppress(RuntimeError):\n",
        "    if True:\n",
        ("concurrency/test_torch_threads.py::test_a_loop_runs_though_no_thread_is_left_to_put_anything_back",),
    ),
)
