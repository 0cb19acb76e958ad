"""The rules of `sim/inbox.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "reads-end-where-writes-do",
        "A simulated read ends anywhere in what has arrived, as a kernel's does.",
        "if chance >= CUT:",
        "if True:",
        ("sim/test_network.py::test_reads_end_anywhere_and_give_whatever_is_there",),
    ),
    Mutation(
        "a-read-is-a-write",
        "A simulated read gives whatever has arrived, of several writes too.",
        "            if not isinstance(more, bytes) or len(item) + len(more) > BULK:\n",
        "            if True:\n",
        ("sim/test_network.py::test_reads_end_anywhere_and_give_whatever_is_there",),
    ),
)
