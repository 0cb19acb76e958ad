"""The rules of `ictp2p/edge/happy_eyeballs.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "address-as-written",
        "A host is known as connections show it, however its address was written.",
        '    host = getattr(host, "ipv4_mapped", None) or host\n',
        "",
        ("edge/test_happy_eyeballs.py::test_an_address_is_one_host_however_it_is_written",),
    ),
    Mutation(
        "failed-dial-in-a-cycle",
        "A dial that failed leaves no cycle of its error, its frames and its socket.",
        "    finally:\n        del weightiest\n",
        "    finally:\n        pass\n",
        ("edge/test_dialing.py::test_a_dial_that_fails_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "no-thread-no-word",
        "That no thread is to be had to look up a name is an error as any other way that leads nowhere.",
        "        if lacking(error):\n",
        "        if False:\n",
        ("edge/test_dialing.py::test_that_no_thread_can_look_up_a_name_is_said_of_it",),
    ),
)
