"""What the ranks of a group tell each other through its store: who they are, which key, where they listen.

The store is what the group trusts: whoever can write to it can take a rank's place, and `TCPStore` lets everybody write
who reaches its port. With a token (see `credential`) each card is signed by one who knows it, and bound to its group
and rank; then the store can withhold a card but not forge, swap or move one. Bytes on the data connections are sealed
under X25519 keys from the cards either way.

A store may have seen an earlier group of the same name: torchrun's outlives every group, and a program may end one and
form it again. The cards of that one still stand there when a rank comes first. So each rank says under a digest of all
cards that it has read them, and has met the others once all say the same; until then it looks again. A rank's own card
is fresh, so no digest comes twice.

A card that cannot be of our group (another token, size, sealing or version) may be of an earlier one too, or its rank
was started with other options. Waiting is right for the one, and a word at once for the other. So whoever finds such a
card says that it refuses it, and looks again: a rank that is there refuses ours in turn, and then there will be no
group. Before all are there only another size is refused: then some whom we wait for do not exist. For the rest it must
not be: who refuses and leaves has no word for those who come later.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
import torch.distributed as dist

from ictp2p.edge.credential import Mesh
from ictp2p.errors import IctError
from ictp2p.torch_backend.errors import CardRefused, RankRefused, RanksMissing, SizeRefused, VersionRefused
from ictp2p.types import Address, PeerName
from ictp2p.wire import MALFORMED

VERSION = 3
_CONTEXT = b"ictp2p process group card v2"
_PATIENCE, _MOST_PATIENCE = 0.2, 5.0
"""Seconds after which cards are read again if ranks are missing or have not read the same; doubled, up to these."""
_PAUSE, _LONGEST_PAUSE = 1e-3, 0.1
"""Seconds between two looks whether all have: `TCPStore.wait` would log a warning for each that was in vain."""


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """What the cards of all versions begin with."""

    version: int


class Card(msgspec.Struct, frozen=True, array_like=True):
    """One rank of one group."""

    version: int
    peer: PeerName
    """Fresh for each group."""
    key: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    """X25519 public key of this rank in this group."""
    host: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    sealed: bool
    nonce: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    """Rank 0's names the group: no frame of another group, or of an earlier one on the same store, is ever its own."""
    size: Annotated[int, msgspec.Meta(ge=1)]
    """How many ranks this one was told that there are."""

    @property
    def address(self) -> Address:
        """Where it listens."""
        return Address(self.host, self.port)


def meet(
    store: Any,
    rank: int,
    mine: Card,
    mesh: Mesh | None,
    timeout: float,
    know: Callable[[list[Card]], object],
) -> list[Card]:
    """Publish our card, and wait until every rank has read the same cards: then whoever dials another is known there.

    Args:
        store: torch's, prefixed for this group.
        rank: ours.
        mine: our card.
        mesh: who vouches for cards; None: nobody.
        timeout: seconds for all of it.
        know: told the cards before any other rank hears that we have them; the last ones count.

    Raises:
        RanksMissing: not all ranks came; the missing are named.
        RankRefused: a card is not vouched for, or ranks differ on sealing.
        SizeRefused: ranks differ on their number.
        CardRefused: what stands in the store is no card, or two ranks have the same.
        VersionRefused: a rank has cards of another version.
    """
    over, patience = time.monotonic() + timeout, _PATIENCE
    body = msgspec.msgpack.encode(mine)
    ours = body + (mesh.vouch(_signed(rank, body)) if mesh else b"")
    store.set(_key(rank), ours)
    while True:
        until = min(over, time.monotonic() + patience)
        cards, wrong = _look(store, mine, mesh)
        awaited = [_key(n) for n in range(mine.size)]
        if wrong is not None:
            if _said(store, [_refused(ours)], until):
                raise wrong
        elif len(cards) < mine.size:
            if _said(store, awaited, until):
                patience = _PATIENCE
                continue
        else:
            know(cards)
            awaited = [_ready(n, cards) for n in range(mine.size)]
            store.set(awaited[rank], b"")
            if _all_ready(store, awaited, until):
                return cards
        if time.monotonic() >= over:
            raise wrong or _missing(store, awaited, timeout)
        patience = min(2 * patience, _MOST_PATIENCE)


def _look(store: Any, mine: Card, mesh: Mesh | None) -> tuple[list[Card], IctError | None]:
    """Read the cards of those that have come; refuse those that cannot be of our group, and say why of the first."""
    cards, wrong = list[Card](), list[IctError]()
    there = [n for n in range(mine.size) if store.check([_key(n)])]
    for n in there:
        data = bytes(store.get(_key(n)))
        try:
            cards.append(_read(data, n, mine, mesh))
        except IctError as error:
            if len(there) == mine.size or isinstance(error, SizeRefused):
                wrong.append(error)
                store.set(_refused(data), b"")
    if len({card.peer for card in cards}) < len(cards):
        raise CardRefused("two ranks of the group have one identity: the store was used before, or is wrong")
    return cards, wrong[0] if wrong else None


def _said(store: Any, keys: list[str], until: float) -> bool:
    pause = _PAUSE
    while not store.check(keys):
        if time.monotonic() >= until:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True


def _all_ready(store: Any, keys: list[str], until: float) -> bool:
    """Whether all say that they have met, or the store has gone since we said so.

    The rank that holds it has met all then, and left, or has died, which its connections tell whoever calls it.
    """
    try:
        return _said(store, keys, until)
    except dist.DistError:
        return True


def _missing(store: Any, keys: list[str], timeout: float) -> RanksMissing:
    missing = [n for n, key in enumerate(keys) if not store.check([key])]
    return RanksMissing(f"ranks {missing} of {len(keys)} did not come to the store within {timeout:g} s", missing)


def _read(data: bytes, rank: int, mine: Card, mesh: Mesh | None) -> Card:
    body, signature = (data[:-64], data[-64:]) if mesh else (data, b"")
    if mesh is not None and not mesh.vouched(_signed(rank, body), signature):
        raise RankRefused(f"rank {rank}'s card is not signed by one who knows this group's token")
    try:
        version = msgspec.msgpack.decode(body, type=_Head).version
        if version != mine.version:
            raise VersionRefused(f"rank {rank} has cards of version {version}, this one of {mine.version}")
        card = msgspec.msgpack.decode(body, type=Card)
    except MALFORMED as error:
        raise CardRefused(
            f"rank {rank}'s card does not decode (has it a token, and this one none?): {error}"
        ) from error
    if card.size != mine.size:
        raise SizeRefused(f"rank {rank} was started as one of {card.size} ranks, this one as one of {mine.size}")
    if card.sealed != mine.sealed:
        raise RankRefused(f"rank {rank} seals its connections: {card.sealed}, this one: {mine.sealed}")
    return card


def _key(rank: int) -> str:
    return f"ictp2p/{rank}"


def _ready(rank: int, cards: Sequence[Card]) -> str:
    return f"ictp2p/{rank}/ready/{_digest(msgspec.msgpack.encode(cards))}"


def _refused(data: bytes) -> str:
    return f"ictp2p/refused/{_digest(data)}"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _signed(rank: int, body: bytes) -> bytes:
    """What is signed; the number of ranks is in the body, and so can be told from a card that is forged."""
    return b"%s rank %d " % (_CONTEXT, rank) + body
