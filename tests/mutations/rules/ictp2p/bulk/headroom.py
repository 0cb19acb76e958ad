"""The rules of `ictp2p/bulk/headroom.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "losses-are-no-bound",
        "Where losses hold connections back there are more.",
        "if self._lost < LOSSES or not self._bound_by_losses(spent):",
        "if True:",
        ("bulk/test_headroom.py", "sim/test_stripes.py::test_there_are_more_as_long_as_losses_are_the_bound"),
    ),
    Mutation(
        "idle-windows-are-bound-by-losses",
        "Who loses a packet now and then, and has little to send, needs no more connections.",
        "bool(sum(windows) >= USED * sum(left))",
        "True",
        ("bulk/test_headroom.py",),
    ),
    Mutation(
        "queues-are-headroom",
        "A line with a queue is full, though buffers are full as well.",
        "each.round_trips >= QUEUED",
        "False",
        ("bulk/test_headroom.py",),
    ),
    Mutation(
        "idle-connections-are-held-back",
        "Connections that had little to do are not taken for too few.",
        "min(each.busy for each in spent) < LONG",
        "sum(each.busy for each in spent) < LONG",
        ("bulk/test_headroom.py",),
    ),
    Mutation(
        "judged-twice",
        "What once held connections back is judged once, whichever of them ends.",
        "        self._before.pop(connection, None)",
        "        self._before.clear()",
        ("bulk/test_headroom.py::test_what_was_judged_once_is_not_judged_again_because_one_of_them_ends",),
    ),
)
