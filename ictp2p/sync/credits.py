"""Whose contributions are in a state: what it says of that, and how the next one comes to say so.

Who has missed the end of a round must neither bring again what is in the state, nor lose what is not. The state itself
says which it is, since it is what whoever was away receives.
"""

from __future__ import annotations

from collections.abc import Mapping

from ictp2p.sync.values import MAX_PARTICIPANTS, REMEMBERED, Credits, Earlier, Open, StateRef
from ictp2p.types import ClusterId, PeerId

_ALL, _ANY = (1 << REMEMBERED) - 1, (1 << REMEMBERED - 1) - 1
"""Of so many versions each; and each of those before the newest of them."""


def same(base: StateRef, agreed: StateRef) -> bool:
    """Whether a contribution that starts from `base` starts from the agreed state.

    Equal bytes are not enough: a version that was restored has those of an older one, and whoever started from that may
    have its contribution in a version between the two. Only the first version is the one that somebody brought.
    """
    return base.digest == agreed.digest and base.version in (
        agreed.version,
        0 if agreed.version == 1 else agreed.version,
    )


def contributed(state: StateRef, cluster: ClusterId, base: int) -> int:
    """Which versions after `base` hold, or have to be taken for holding, a contribution of a cluster; 0 if none does.

    Bit i is the version i before that of `state`. So it says whether what the cluster brings from version `base` is in
    `state` already. Any later version that holds a contribution of the cluster holds it, of the part of the model that
    its round was about: several workers may have it, an heir may have brought it to a later round than the leader that
    fell asleep with it, and progress only grows. The state itself says so, and not the memory of a peer, because who
    asks is who was away. Beyond `REMEMBERED` versions nobody knows: then to lose some steps of one cluster is harmless,
    to count them twice would be wrong.
    """
    if state.version - base > REMEMBERED:
        return _ALL
    newest, earlier = _standing(state).get(cluster, (0, 0))
    return (2 * earlier + 1) << (state.version - newest) & (1 << state.version - base) - 1 if newest > base else 0


def advanced(opened: Open, digest: bytes, holders: tuple[PeerId, ...]) -> StateRef:
    """The agreed state once `opened` commits with `digest`."""
    if opened.spec.kind != "sync":
        return opened.state
    version, before = opened.state.version + 1, _standing(opened.state)
    now = {p.cluster: (version, _before(*before.get(p.cluster, (0, 0)), version)) for p in opened.participants}
    return StateRef(version, digest, holders, *_recent({**before, **now}, version))


def restored(lost: StateRef, source: int, digest: bytes, holders: tuple[PeerId, ...]) -> StateRef:
    """The agreed state once version `source` takes the place of `lost`: what came after it holds nobody's part."""
    version = lost.version + 1
    kept = {name: (min(v, source), earlier >> max(0, v - source)) for name, (v, earlier) in _standing(lost).items()}
    return StateRef(version, digest, holders, *_recent(kept, version))


def _standing(state: StateRef) -> dict[ClusterId, tuple[int, int]]:
    """By cluster, the newest version that holds a contribution of it, and which before that do, too."""
    earlier = state.earlier or (_ANY,) * len(state.credits)
    return {name: (v, before) for (name, v), before in zip(state.credits, earlier, strict=True)}


def _before(newest: int, earlier: int, version: int) -> int:
    """Which versions before a new one hold a contribution."""
    return (2 * earlier + 1) << (version - newest - 1) & _ANY if newest else 0


def _recent(standing: Mapping[ClusterId, tuple[int, int]], version: int) -> tuple[Credits, Earlier]:
    """What is worth saying of them at `version`, by name; of too many the newest."""
    worth = sorted((v, name) for name, (v, _) in standing.items() if v > max(0, version - REMEMBERED))
    named = sorted((name, v) for v, name in worth[-MAX_PARTICIPANTS:])
    return tuple(named), tuple(standing[name][1] for name, _ in named)
