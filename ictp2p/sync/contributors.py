"""Whose contribution is inside which version of the state, as far as this peer saw it decided.

A leader that voted and then slept, or the follower that takes over from one that died, has to know one thing about
the version after its own: is our contribution in it? If it is, the local progress is inside and must be dropped; if
not, it must be kept and brought again. A peer that was away so long that decisions were skipped cannot know. Then the
progress counts as being inside: losing some steps of one cluster is harmless, counting them twice is wrong.

If the mesh went back to an older version, what was brought to the versions after that one is in none.
"""

from __future__ import annotations

from ictp2p.sync.values import Close, Open, Restore, Value
from ictp2p.types import ClusterId

_REMEMBERED = 64
"""Versions that are remembered: more than any straggler falls behind without having to fetch anyway."""


class Contributors:
    """Follows the chain of decisions."""

    def __init__(self) -> None:
        self._clusters: dict[int, frozenset[ClusterId]] = {}
        self._opened: Open | None = None

    def decided(self, value: Value) -> None:
        """Take the next decision that this peer learnt of, in order, though some may have been skipped."""
        if isinstance(value, Open):
            self._opened = value
            return
        if isinstance(value, Restore):
            passed = range(max(value.source + 1, value.state.version - _REMEMBERED + 1), value.state.version + 1)
            self._clusters.update(dict.fromkeys(passed, frozenset()))
        opened = self._opened
        if not isinstance(value, Close) or not value.committed or opened is None:
            return
        if (opened.round, opened.attempt) == (value.round, value.attempt) and opened.spec.kind == "sync":
            self._clusters[value.state.version] = frozenset(p.cluster for p in opened.participants)
            self._clusters.pop(value.state.version - _REMEMBERED, None)

    def holds(self, version: int, cluster: ClusterId) -> bool | None:
        """Whether `version` holds a contribution of `cluster`; None if this peer did not see it decided."""
        known = self._clusters.get(version)
        return None if known is None else cluster in known

    def count(self, version: int) -> int:
        """How many clusters contributed to `version`; 1 if this peer did not see it decided."""
        return len(self._clusters.get(version, ())) or 1
