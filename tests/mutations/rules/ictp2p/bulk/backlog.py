"""The rules of `ictp2p/bulk/backlog.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "one-takes-it-all",
        "One of several slow connections takes no more than it sends soon.",
        "tuning.refill(self._transport, one_of_several=self._several)",
        "tuning.refill(self._transport, one_of_several=False)",
        ("sim/test_stripes.py::test_there_are_more_as_long_as_losses_are_the_bound",),
    ),
    Mutation(
        "probes-hold-much",
        "A probe goes on holding little though connections are made or lost beside it.",
        "        self.hold(self._asked)",
        "        self.hold(None)",
        ("bulk/test_doubling.py::test_a_probe_goes_on_holding_little_though_more_are_made_or_lost",),
    ),
)
