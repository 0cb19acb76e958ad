"""Who averages which modules with whom, worked out from what the participants of a round say that they hold.

A cluster that trains only some modules of a pool says which, in its note: a key for each (a hash of its name and its
tensors' shapes), and how many elements its pseudo-gradient and its agreed state have. Notes are decided with the
OPEN, so everybody works out the same groups: modules that the same clusters hold are averaged together, over these
alone; a module that one cluster holds stays where it is. Joins and deaths thus change groups between two rounds, and
never within one.

A cluster whose modules are not those of the agreed state (it is new, was restarted, or missed a round) says that it is
*behind*. Then the round also copies: of each of its modules, from the first cluster that holds it and is not behind. So
all holders of a module hold the same bytes of it after every round.

Where the last one that was up to date has died and begun its modules anew, another that was away may hold what was
trained before. So each says how many rounds are in what it holds of a module, and whether that is *young*: begun so
late that there were more rounds before than since. Of holders that are all behind or young, the one with the most
rounds in its content is copied, be it in a later round than the one in which the module was begun anew. What is lost
then is what others knew less of.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import msgspec

from ictp2p.sync.values import Participant
from ictp2p.types import ClusterId
from ictp2p.wire import MALFORMED

NAME = "modules"
"""Of the note."""
_KEY_BYTES = 8
_HELD = struct.Struct(f"<{_KEY_BYTES}s6s6sI")
"""Key, elements, state; rounds, doubled, and one more for what is young. A note has room for 42 of them."""
_MOST_ROUNDS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class HeldModule:
    """A module that a cluster holds."""

    key: bytes
    elements: int
    """Of its pseudo-gradient."""
    state: int
    """Of its parameters, buffers, and the outer optimizer's state."""
    rounds: int = 0
    """How many are in what the cluster holds of it."""
    young: bool = False
    """Whether there may be somebody who holds more of it, though the cluster was in the last round."""

    def encode(self) -> bytes:
        """Its bytes."""
        sizes = (size.to_bytes(6, "little") for size in (self.elements, self.state))
        return _HELD.pack(self.key, *sizes, 2 * min(self.rounds, _MOST_ROUNDS) + self.young)

    @classmethod
    def decode(cls, key: bytes, elements: bytes, state: bytes, rounds: int) -> Self:
        """Read what `encode` wrote, in its parts."""
        size = int.from_bytes(elements, "little")
        return cls(key, size, int.from_bytes(state, "little"), rounds >> 1, bool(rounds & 1))


@dataclass(frozen=True, slots=True)
class Card:
    """What a cluster says: its modules by key, and whether it needs them from others."""

    behind: bool
    modules: tuple[HeldModule, ...]

    def encode(self) -> bytes:
        """Its bytes."""
        return bytes([self.behind]) + b"".join(held.encode() for held in self.modules)

    @classmethod
    def decode(cls, said: bytes) -> Self:
        """Read what `encode` wrote.

        Raises:
            struct.error: it is not whole.
        """
        return cls(said[:1] != b"\0", tuple(HeldModule.decode(*each) for each in _HELD.iter_unpack(said[1:])))

    def lacks(self, held: HeldModule) -> bool:
        """Whether there is room for what another may hold of a module."""
        return self.behind or held.young


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
        card = Card.decode(said)
    except (*MALFORMED, struct.error):
        return Card(False, ())
    keys = [m.key for m in card.modules]
    sound = keys == sorted(set(keys)) and all(m.elements and m.state for m in card.modules)
    return card if sound else Card(False, ())


def groups(participants: Sequence[Participant]) -> tuple[Together, ...]:
    """Who averages what with whom, then who copies what from whom; the same everywhere for the same participants."""
    cards = {p.cluster: card_of(p) for p in participants}
    holders = _holders(cards)
    averaged: dict[tuple[ClusterId, ...], list[bytes]] = {}
    copied: dict[tuple[ClusterId, tuple[ClusterId, ...]], list[bytes]] = {}
    for key, held in holders.items():
        averaged.setdefault(tuple(held), []).append(key)
        root = _source(held, cards)
        needing = tuple(c for c in held if c == root or _needs(cards[c], held[c], cards[root]))
        if len(needing) > 1:
            copied.setdefault((root, needing), []).append(key)
    sizes = {m.key: m for card in cards.values() for m in card.modules}
    means = [Together(who, tuple(keys), sum(sizes[k].elements for k in keys)) for who, keys in averaged.items()]
    copies = [Together(who, tuple(k), sum(sizes[i].state for i in k), root) for (root, who), k in copied.items()]
    return (*means, *copies)


def sources(participants: Sequence[Participant]) -> Mapping[bytes, HeldModule]:
    """By key, what the cluster says of a module whose content goes on in a round."""
    cards = {p.cluster: card_of(p) for p in participants}
    return {key: held[_source(held, cards)] for key, held in _holders(cards).items()}


def _holders(cards: Mapping[ClusterId, Card]) -> Mapping[bytes, Mapping[ClusterId, HeldModule]]:
    """By key in its order, what each cluster that holds it says of a module."""
    found: dict[bytes, dict[ClusterId, HeldModule]] = {}
    for cluster, card in cards.items():
        for held in card.modules:
            found.setdefault(held.key, {})[cluster] = held
    return dict(sorted(found.items()))


def _source(held: Mapping[ClusterId, HeldModule], cards: Mapping[ClusterId, Card]) -> ClusterId:
    """Whose content of a module goes on: that of somebody who lacks nothing, else what most rounds are in."""
    newest = max(held, key=lambda c: (held[c].rounds, not cards[c].behind))
    return next((c for c in held if not cards[c].lacks(held[c])), newest)


def _needs(card: Card, held: HeldModule, root: Card) -> bool:
    """Whether what a cluster holds of a module may be something else: all that were in the last round hold the same."""
    return card.behind or (held.young and root.behind)


def spans(card: Card) -> Mapping[bytes, tuple[slice, slice]]:
    """Where each module's pseudo-gradient and its received state lie in a cluster's vector: states behind the rest."""
    start, behind, found = 0, sum(m.elements for m in card.modules), {}
    for module in card.modules:
        received = module.state if card.lacks(module) else 0
        found[module.key] = slice(start, start + module.elements), slice(behind, behind + received)
        start, behind = start + module.elements, behind + received
    return found


def room(card: Card) -> int:
    """Elements of a cluster's vector behind the averages."""
    return sum(m.state for m in card.modules if card.lacks(m))
