"""A global state that every cluster holds a content of its own of, under one digest that all agree on.

Where clusters do not average over everybody (`noloco`), they come to hold different parameters, and no digest of
bytes can be agreed on. What can be is whose contributions went into which round with whom: that alone determines every
cluster's content. So from its first round on the state is agreed on by a *name*: the digest of its manifest without the
chunks' digests, in whose counters each round chains what it was made of. Before, the name covers the content as well:
all begin with the same bytes. Everything else is as with any state: bases, votes, catching up, and refusing a cluster
that trains something else.

Whoever serves the state serves its own, with the digests of its own chunks, so a newcomer takes all of it from one
provider, whose bytes it checks against that provider's manifest. A cluster that merely missed a round fetches the name
alone (`Name`) and keeps its content: nothing of what it trained lies anywhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from ictp2p.errors import StateError
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import Manifest, by_deeds, by_rounds, difference
from ictp2p.sync.values import Participant

CHAIN = "made of"
"""The counter that chains what the rounds were made of."""
_CHAIN_BYTES = 7
"""A counter has 62 bits. Nobody gains by a collision: the chain of decisions is what cannot be forged."""


class OwnState(GlobalState):
    """A `GlobalState` whose content is this cluster's own."""

    own = True

    def _name(self, manifest: Manifest) -> bytes:
        return by_rounds(manifest)


class PathState(OwnState):
    """An `OwnState` of a cluster that holds other tensors than the others: its name covers what was done alone."""

    def _name(self, manifest: Manifest) -> bytes:
        return by_deeds(manifest)

    def _difference(self, manifest: Manifest) -> str | None:
        return difference(self.settings, manifest.settings)


class Name:
    """Receives the name of a state, and has the content stay as it is."""

    own = True

    def __init__(self, state: OwnState) -> None:
        """Take the state that is to be named anew."""
        self._state = state
        self.incoming = state.incoming

    def expect(self, encoded: bytes, digest: bytes) -> list[int]:
        """Take the counters of the state that was agreed on; no chunk is missing.

        Raises:
            StateError: this is not the manifest that was agreed.
            MeshMismatch: the mesh trains something else; the message names the first difference.
        """
        self.incoming = self._state.same_training(encoded, digest)
        self._state.begin(())
        self._state.seal(dict(self.incoming.counters))
        return []

    def take(self, index: int, data: memoryview) -> None:
        """Nothing is to be written."""
        raise StateError(f"chunk {index} was not asked for")

    def verified(self, version: int) -> None:
        """Go by that name from now on."""
        self._state.commit(version)


def chained(before: bytes, parts: Sequence[Participant]) -> int:
    """What the counter `CHAIN` is after a round from the state named `before` with these participants."""
    encoded = msgspec.msgpack.encode([before, [(p.cluster, p.leader, p.term, p.weight, p.note) for p in parts]])
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=_CHAIN_BYTES).digest(), "little")
