"""Who averages which modules with whom, worked out from what the participants of a round say that they hold.

A cluster that trains only some modules of a pool says which, in its note: a key for each (a hash of its name and its
tensors' shapes), and how many elements its pseudo-gradient and its agreed state have. Notes are decided with the
OPEN, so everybody works out the same groups: modules that the same clusters hold are averaged together, over these
alone; a module that one cluster holds stays where it is. Joins and deaths thus change groups between two rounds, and
never within one.

A cluster whose modules are not those of the agreed state (it is new, was restarted, or missed a round) says that it is
*behind*. Then the round also copies: of each of its modules, from the first cluster that holds it and is not behind; if
all are, from the one whose content has the most rounds in it. So all holders of a module hold the same bytes of it
after every round; and where the last one that was up to date has died, what is lost is what it knew more than others.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ictp2p.sync.values import Participant
from ictp2p.types import ClusterId
from ictp2p.wire import MALFORMED

NAME = "modules"
"""Of the note."""
_KEY_BYTES = 8
_HELD = struct.Struct(f"<{_KEY_BYTES}sQQ")
_MOST = 2**48
_ROUNDS = 3
"""Bytes of a number of rounds; a year has 31 million seconds."""


@dataclass(frozen=True, slots=True)
class Held:
    """A module that a cluster holds."""

    key: bytes
    elements: int
    """Of its pseudo-gradient."""
    state: int
    """Of its parameters, buffers, and the outer optimizer's state."""


@dataclass(frozen=True, slots=True)
class Card:
    """What a cluster says: its modules by key, and whether it needs them from others."""

    behind: bool
    modules: tuple[Held, ...]
    rounds: int = 0
    """How many rounds are in what it holds of them."""

    def encode(self) -> bytes:
        """Its bytes."""
        rounds = min(self.rounds, (1 << 8 * _ROUNDS) - 1).to_bytes(_ROUNDS, "big")
        held = b"".join(_HELD.pack(m.key, m.elements, m.state) for m in self.modules)
        return bytes([self.behind]) + rounds + held


@dataclass(frozen=True, slots=True)
class Together:
    """Clusters that average modules, or copy them from one of them."""

    clusters: tuple[ClusterId, ...]
    keys: tuple[bytes, ...]
    elements: int
    root: ClusterId | None = None
    """From whom is copied; None for an average."""


def key_of(name: str, shapes: Sequence[tuple[str, Sequence[int]]]) -> bytes:
    """The key of a module: equal for equal names and shapes."""
    words = msgspec.msgpack.encode([name, [(tensor, list(shape)) for tensor, shape in shapes]])
    return hashlib.blake2b(words, digest_size=_KEY_BYTES).digest()


def card_of(participant: Participant) -> Card:
    """What a participant holds; nothing, where its note makes no sense: one bad note must stop nobody."""
    try:
        said = (
            msgspec.msgpack.decode(participant.note, type=dict[str, bytes]).get(NAME, b"") if participant.note else b""
        )
        modules = tuple(Held(*each) for each in _HELD.iter_unpack(said[1 + _ROUNDS :]))
    except (*MALFORMED, struct.error):
        return Card(False, ())
    keys = [m.key for m in modules]
    sound = keys == sorted(set(keys)) and all(0 < m.elements < _MOST and 0 < m.state < _MOST for m in modules)
    rounds = int.from_bytes(said[1 : 1 + _ROUNDS], "big")
    return Card(bool(said[:1] != b"\0"), modules, rounds) if sound else Card(False, ())


def groups(participants: Sequence[Participant]) -> tuple[Together, ...]:
    """Who averages what with whom, then who copies what from whom; the same everywhere for the same participants."""
    cards = {p.cluster: card_of(p) for p in participants}
    sizes = {m.key: m for card in cards.values() for m in card.modules}
    holders = {key: tuple(c for c, card in cards.items() if any(m.key == key for m in card.modules)) for key in sizes}
    averaged: dict[tuple[ClusterId, ...], list[bytes]] = {}
    copied: dict[tuple[ClusterId, tuple[ClusterId, ...]], list[bytes]] = {}
    for key in sorted(holders):
        averaged.setdefault(holders[key], []).append(key)
        newest = max(holders[key], key=lambda cluster: cards[cluster].rounds)
        root = next((c for c in holders[key] if not cards[c].behind), newest)
        needing = tuple(c for c in holders[key] if c == root or cards[c].behind)
        if len(needing) > 1:
            copied.setdefault((root, needing), []).append(key)
    means = [Together(who, tuple(keys), sum(sizes[k].elements for k in keys)) for who, keys in averaged.items()]
    copies = [Together(who, tuple(k), sum(sizes[i].state for i in k), root) for (root, who), k in copied.items()]
    return (*means, *copies)


def spans(card: Card) -> Mapping[bytes, tuple[slice, slice]]:
    """Where each module's pseudo-gradient and its received state lie in a cluster's vector: states behind the rest."""
    start, behind, found = 0, sum(m.elements for m in card.modules), {}
    for module in card.modules:
        found[module.key] = slice(start, start + module.elements), slice(behind, behind + module.state)
        start, behind = start + module.elements, behind + module.state
    return found
