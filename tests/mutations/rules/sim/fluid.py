"""The rules of `sim/fluid.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "bursts-are-held-back",
        "What hosts keep holds a flow back once it has sent as much, and not before.",
        "max(0.0, now - max(before, flow.began + flow.far))",
        "now - before",
        ("sim/test_fluid.py::test_the_account_says_whether_hosts_or_the_line_bound_a_flow",),
    ),
)
