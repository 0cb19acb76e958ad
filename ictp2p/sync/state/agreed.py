"""Things that all clusters decide together with each round, beside the parameters.

How long the next phase of training is, which samples have been seen: such things must be the same everywhere, must
survive every death and reach every newcomer, and must not change in a round that came to nothing. That is what the
global state is. So whatever is `Agreed` keeps what it decides there, as counters and tensors, and decides anew when the
next state is computed: from the state before and from what each participant had to say, which was agreed on when the
round was opened (`Participant.note`). Every participant computes this for itself, and the vote over the digest of the
state is the proof that all came to the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from ictp2p.errors import ConfigError
from ictp2p.sync.state.manifest import Entry
from ictp2p.sync.values import MAX_NOTE, Participant
from ictp2p.types import ClusterId
from ictp2p.wire import MALFORMED

if TYPE_CHECKING:
    from torch import Tensor

Said = tuple[ClusterId, bytes]
"""A participant and its note; empty if it had nothing to say, or nothing that makes sense."""


class Agreed(Protocol):
    """One thing that is decided with each round."""

    name: str
    """Of its note; must be the same everywhere, and no other's."""

    @property
    def entries(self) -> Sequence[Entry]:
        """Its tensors in the global state, all zeros at first."""
        ...

    @property
    def counters(self) -> Mapping[str, int]:
        """Its numbers in the global state, as they are at first. Not negative."""
        ...

    def describe(self) -> Sequence[tuple[str, str]]:
        """Its settings, which must be equal everywhere, in words."""
        ...

    def note(self) -> bytes:
        """What this cluster has to say in the round that is being launched."""
        ...

    def decide(self, counters: dict[str, int], tensors: Mapping[str, Tensor], said: Sequence[Said]) -> None:
        """Change its counters and tensors for the next state; the same everywhere for the same arguments.

        Args:
            counters: of the state before, to be changed.
            tensors: of the state before, its own to be changed in place.
            said: by each participant, in the order of the round.
        """
        ...

    def landed(self, counters: Mapping[str, int], tensors: Mapping[str, Tensor]) -> None:
        """The agreed state is another one now: act on it."""
        ...


class Agenda:
    """All that is agreed with the rounds of one training."""

    def __init__(self, items: Sequence[Agreed]) -> None:
        """Put them together.

        Raises:
            ConfigError: two have one name.
        """
        names = [item.name for item in items]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"two things to agree on are named {twice!r}")
        self._items = tuple(items)
        self.entries = tuple(entry for item in items for entry in item.entries)
        """Their tensors."""
        self.names = tuple(entry.name for entry in self.entries)
        """Names of their tensors."""

    @property
    def counters(self) -> dict[str, int]:
        """Their numbers at first."""
        return {name: value for item in self._items for name, value in item.counters.items()}

    def describe(self) -> list[tuple[str, str]]:
        """Their settings, in words."""
        return [line for item in self._items for line in item.describe()]

    def note(self) -> bytes:
        """What this cluster has to say about all of them.

        Raises:
            ConfigError: it is too much.
        """
        notes = {item.name: note for item in self._items if (note := item.note())}
        encoded = msgspec.msgpack.encode(notes) if notes else b""
        if len(encoded) > MAX_NOTE:
            sizes = {name: len(note) for name, note in notes.items()}
            raise ConfigError(f"notes of {sizes} bytes are more than the {MAX_NOTE} that a round can carry")
        return encoded

    def decide(
        self, counters: dict[str, int], tensors: Mapping[str, Tensor], parts: Sequence[Participant]
    ) -> dict[str, int]:
        """The counters of the next state; the tensors are changed in place."""
        notes = [(part.cluster, _read(part.note)) for part in parts]
        for item in self._items:
            item.decide(counters, tensors, [(cluster, said.get(item.name, b"")) for cluster, said in notes])
        return counters

    def landed(self, counters: Mapping[str, int], tensors: Mapping[str, Tensor]) -> None:
        """Tell them of another agreed state."""
        for item in self._items:
            item.landed(counters, tensors)


def _read(note: bytes) -> dict[str, bytes]:
    """A note that makes no sense says nothing: everybody must come to the same, and one bad note must stop nobody."""
    try:
        return msgspec.msgpack.decode(note, type=dict[str, bytes]) if note else {}
    except MALFORMED:
        return {}
