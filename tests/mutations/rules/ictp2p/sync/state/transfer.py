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
        "max(held.heard, held.seen) + self._profile.patience",
        "held.heard + self._profile.patience",
        ("runtime/test_state_exchange.py::test_a_provider_that_takes_long_for_each_chunk_is_not_silent",),
    ),
    Mutation(
        "chunk-not-verified",
        "A fetched chunk counts only if it matches the agreed digest.",
        "if digest_of(data) != self.manifest.chunk_digest(index):",
        "if not data:",
        ("sync/state/test_transfer.py::test_wrong_bytes_ban_their_provider_by_name_and_only_it",),
    ),
)
