"""The safety rules of ictp2p, each broken on purpose, with the tests that must notice.

A test that passes proves little until it has been seen to fail. Each `Mutation` replaces one piece of text, which
stands exactly once in its file, by code that breaks one rule and nothing else; the selection must then fail. The
killers are chosen to be certain: tests with fixed inputs, or searches under a fixed seed whose target is dense.

When code moves, its entry moves with it: text that is not found is an error, not a mutation that was survived.
"""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation
from tests.mutations.rules import (
    bulk,
    collectives,
    gossip,
    memory,
    peer,
    planning,
    rounds,
    routing,
    sharding,
    simulator,
    striping,
    torch_backend,
    training,
)

CATALOGUE: Final[tuple[Mutation, ...]] = (
    *routing.MUTATIONS,
    *gossip.MUTATIONS,
    *bulk.MUTATIONS,
    *striping.MUTATIONS,
    *collectives.MUTATIONS,
    *planning.MUTATIONS,
    *torch_backend.MUTATIONS,
    *rounds.MUTATIONS,
    *training.MUTATIONS,
    *sharding.MUTATIONS,
    *peer.MUTATIONS,
    *memory.MUTATIONS,
    *simulator.MUTATIONS,
)
"""Every mutation, by room."""
