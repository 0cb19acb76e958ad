"""Who meets whom: random disjoint pairs that follow from what was decided, so that everybody draws the same.

The draw is a sort by a keyed hash of the names: the key is the digest of the state that the round starts from, the
names are those of its participants. Both are in the OPEN, so nobody has to be told, a plan that says otherwise is
noticed, and a round that is tried again with the same clusters meets in the same pairs: its result is the same. Of an
odd number the last one is alone. Every pairing is equally likely, as far as a hash is random, and each round draws
anew: what one cluster has learnt has reached all n of them after about log2 n rounds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ictp2p.types import ClusterId


def pairs(seed: bytes, clusters: Sequence[ClusterId]) -> tuple[tuple[ClusterId, ...], ...]:
    """Draw pairs, the last of an odd number alone.

    Args:
        seed: digest of the state that the round starts from.
        clusters: the participants, in any order.

    Returns:
        Disjoint groups of two, at most one of one, that hold every cluster; each in the order of `clusters`.
    """
    drawn = sorted(clusters, key=lambda name: hashlib.blake2b(name.encode(), key=seed[:64], digest_size=16).digest())
    places = {name: place for place, name in enumerate(clusters)}
    return tuple(tuple(sorted(drawn[i : i + 2], key=places.__getitem__)) for i in range(0, len(drawn), 2))
