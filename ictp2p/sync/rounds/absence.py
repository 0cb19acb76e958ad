"""Clusters that are alive and come to no round any more: their training hangs, most likely, and nothing else says so.

A hung collective, a debugger or a file system that stands still stops a training, and not its peer, which goes on to
answer everybody. So no failure detector sees it, and the others wait for it in every round. They know who takes part
from what is decided, and who means to from the view: who was due in `ROUNDS` rounds in a row, and in none of them, is
reported, once, until it takes part again. One that is as much slower than the others looks the same, and is worth the
same look; and so is one that fetches the state for as long.

Where a quorum is enough, or where not all meet, a round waits for nobody in particular: who is absent costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ictp2p.machine import Effects
from ictp2p.sync.rounds.notices import ClusterAbsent
from ictp2p.sync.rounds.sight import Sight
from ictp2p.sync.values import Close, Open, Value
from ictp2p.types import ClusterId

ROUNDS = 3
"""Rounds in a row that a cluster has missed once it is reported."""


@dataclass(slots=True)
class _Spell:
    since: float
    """When the first round ended that it missed."""
    rounds: int = 0
    told: bool = False


class Absence:
    """Who has been absent, and for how long, as one peer sees it.

    Args:
        sight: who is alive and means to train.
        least: seconds for which who is reported has been absent: rounds may be short, and a newcomer may need several.
    """

    def __init__(self, sight: Sight, least: float) -> None:
        self._sight = sight
        self._least = least
        self._opened: Open | None = None
        self._spells: dict[ClusterId, _Spell] = {}

    def decided(self, value: Value, now: float) -> Effects:
        """Note a decision: a round that was opened is over once it commits."""
        opened, self._opened = self._opened, value if isinstance(value, Open) else None
        if opened is None or not isinstance(value, Close) or not value.committed:
            return []
        return self._ended(opened, now) if _waits_for_all(opened) else []

    def _ended(self, opened: Open, now: float) -> Effects:
        here = {part.cluster for part in opened.participants}
        views = self._sight.clusters
        missing = [name for name in views if views[name].training and self._sight.steady(name) and name not in here]
        self._spells = {name: self._spells.get(name, _Spell(now)) for name in missing}
        return [notice for name, spell in self._spells.items() for notice in self._missed(name, spell, now)]

    def _missed(self, name: ClusterId, spell: _Spell, now: float) -> Effects:
        spell.rounds += 1
        if spell.told or spell.rounds < ROUNDS or now < spell.since + self._least:
            return []
        spell.told = True
        return [ClusterAbsent(name, self._sight.clusters[name].leader, spell.rounds, now - spell.since)]


def _waits_for_all(opened: Open) -> bool:
    spec = opened.spec
    return spec.trains and spec.grouping == "all" and spec.quorum == 1.0
