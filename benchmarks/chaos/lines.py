"""The lines between clusters, as far as a campaign cuts them: who can hear whom, directly or over others."""

from __future__ import annotations

from collections.abc import Iterable


class Lines:
    """Which pairs are cut; a pair may be cut several times at once, and is whole when all of them are healed."""

    def __init__(self) -> None:
        self._cuts: dict[frozenset[str], int] = {}

    def cut(self, one: str, other: str) -> bool:
        """Cut a pair; whether it was whole."""
        pair = frozenset((one, other))
        self._cuts[pair] = self._cuts.get(pair, 0) + 1
        return self._cuts[pair] == 1

    def heal(self, one: str, other: str) -> bool:
        """Take back one cut of a pair; whether it is whole now."""
        pair = frozenset((one, other))
        self._cuts[pair] -= 1
        if not self._cuts[pair]:
            del self._cuts[pair]
        return pair not in self._cuts

    def parts(self, clusters: Iterable[str]) -> list[set[str]]:
        """Split these clusters so that the members of each part, and no others, reach each other over some of them."""
        left, parts = set(clusters), []
        while left:
            part, edge = set(), {min(left)}
            while edge:
                part |= edge
                left -= edge
                edge = {far for far in left if any(frozenset((near, far)) not in self._cuts for near in edge)}
            parts.append(part)
        return parts
