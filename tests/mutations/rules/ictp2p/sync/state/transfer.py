"""The rules of `ictp2p/sync/state/transfer.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "failure-for-each-question",
        "Questions that break together are one failure of who was asked.",
        "        if not self._busy(held):\n            return\n        self._release",
        "        self._release",
        ("sync/state/test_transfer.py::test_questions_that_break_together_are_one_failure",),
    ),
    Mutation(
        "liar-asked-over-another-connection",
        "Who sent wrong bytes over one connection is asked over no other one either.",
        "if provider in (n, p.lane_of)]:",
        "if provider == n]:",
        ("sync/state/test_transfer.py::test_wrong_bytes_over_one_connection_ban_their_provider_on_all",),
    ),
    Mutation(
        "slow-taken-for-silent",
        "A provider of state is silent if nothing of it comes, and not if a chunk takes long.",
        "return max(self.heard, self.seen)",
        "return self.heard",
        ("runtime/test_state_fetch.py::test_a_provider_that_takes_long_for_each_chunk_is_not_silent",),
    ),
    Mutation(
        "queued-taken-for-silent",
        "A provider whose connection brings what stands before the state is not silent.",
        "min(max(held.last, held.moved) + self._profile.patience, held.last + self._profile.longest)",
        "held.last + self._profile.patience",
        (
            "sync/state/test_transfer.py::test_a_provider_whose_connection_brings_something_else_is_waited_for_and_not_for_ever",
            "sim/test_training.py::test_who_comes_over_a_slow_line_gets_the_state_of_a_mesh_whose_rounds_last_as_long_as_its_phases[30000.0-0.25]",
        ),
    ),
    Mutation(
        "busy-connection-believed-for-ever",
        "Who brings everything but the state that it was asked for is given up at last.",
        "min(max(held.last, held.moved) + self._profile.patience, held.last + self._profile.longest)",
        "max(held.last, held.moved) + self._profile.patience",
        (
            "sync/state/test_transfer.py::test_a_provider_whose_connection_brings_something_else_is_waited_for_and_not_for_ever",
        ),
    ),
    Mutation(
        "chunk-not-verified",
        "A fetched chunk counts only if it matches the agreed digest.",
        "if digest_of(data) != self.manifest.chunk_digest(index):",
        "if not data:",
        ("sync/state/test_transfer.py::test_wrong_bytes_ban_their_provider_by_name_and_only_it",),
    ),
)
