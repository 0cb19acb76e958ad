"""Who goes into an attempt where not all that are READY fit into one decision.

A decision travels in one control frame, which has a limit, and names every participant with its note. So of many
hundreds of clusters that have much to say only some can be in one attempt. No note is left out instead: it says what is
in the contribution (of which samples it is, say), and one without the other would be wrong. Who is left out misses the
round, as whoever comes too late does, and what it brought is in what it brings to the next. There it goes first, for
those do whose last contribution is the longest ago; among equals it is drawn, anew with each state. So all have their
turns, though nobody keeps a list.

The plan depends on who takes part and is dear to make, so it is reckoned here to be as long as one may be.
"""

from __future__ import annotations

import hashlib

from ictp2p.sync.values import MAX_PARTICIPANTS, MAX_PLAN, MAX_VALUE, Open, Participant, encoded_size

_REASON = 4 * 1024 + 64
"""Most bytes of a plan's reason, which has 1024 characters, and of what is said of lengths."""


def fitting(bare: Open, parts: tuple[Participant, ...]) -> tuple[Participant, ...]:
    """Keep those of `parts` that fit into an attempt, in their order.

    Args:
        bare: the attempt, but for participants, plan and reason.
        parts: a participant for each READY.
    """
    room = MAX_VALUE - MAX_PLAN - _REASON - encoded_size(bare)
    credits = dict(bare.state.credits)

    def turn(part: Participant) -> tuple[int, bytes]:
        drawn = hashlib.blake2b(part.cluster.encode(), key=bare.state.digest[:64], digest_size=16)
        return credits.get(part.cluster, 0), drawn.digest()

    chosen = set()
    for part in sorted(parts, key=turn)[:MAX_PARTICIPANTS]:
        room -= encoded_size(part)
        if room < 0:
            break
        chosen.add(part.cluster)
    return tuple(part for part in parts if part.cluster in chosen)
