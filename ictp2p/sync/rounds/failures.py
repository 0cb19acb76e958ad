"""What the failed attempts of a round have shown: who accuses whom, and who therefore sits out, or must show itself.

After an abort only the clusters of the failed attempt are worth waiting for, so that a straggler that was not waited
for does not delay the retry. Whoever was accused and said nothing must show that it lives by standing READY again,
which takes an accused that lives half a round trip and keeps a dead one out. And after too many attempts that came to
nothing the most accused cluster sits the round out, so that one bad link does not keep all the others from it.

Where nobody has failed and all took too long, the next attempt has longer: nothing is known of a link that has carried
too little to be measured, and each attempt would end at the same deadline, for ever.

Whose digest was another than that of most sits it out at once, be it our own: the same inputs would come to the same
result, and it is the odd one that is wrong. Where no digest is that of most, nobody can tell which is; then it is as
for any failure, and the coordinator's cluster goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ictp2p.sync.messages import Failed, Vote
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.sight import Sight
from ictp2p.sync.values import Open, Participant, outvoted
from ictp2p.types import ClusterId, PeerId

_DOUBLINGS = 2
"""A plan that is wrong by more, after all that its links have shown meanwhile, is not waited for."""
Verdicts = Mapping[PeerId, Vote | Failed]


class Failures:
    """Those of one round at a time.

    Args:
        profile: how many attempts may fail before somebody is barred.
        sight: which cluster is ours, and barred only where it is outvoted.
    """

    def __init__(self, profile: RoundProfile, sight: Sight) -> None:
        self._profile = profile
        self._sight = sight
        self.edges: tuple[tuple[PeerId, PeerId], ...] = ()
        """(who reported, whom it failed on), sorted: what the next plan routes around."""
        self.again: frozenset[ClusterId] | None = None
        """The clusters of the newest failed attempt."""
        self.barred: frozenset[ClusterId] = frozenset()
        """Those that sit the round out."""
        self._late = 0
        """Attempts that came to nothing though none in them had failed: they took too long."""

    @property
    def longer(self) -> float:
        """How many times longer the next attempt may take than its plan says: the plan may know too little."""
        return 2.0 ** min(self._late, _DOUBLINGS)

    def turn(self) -> None:
        """Another round begins."""
        self.edges, self.again, self._late = (), None, 0
        self.pardon()

    def pardon(self) -> None:
        """Nobody is barred any more: there is nobody left to spare trouble."""
        self.barred = frozenset()

    def aborted(
        self, opened: Open, verdicts: Verdicts, camps: Sequence[Sequence[ClusterId]] = (), *, late: bool = True
    ) -> list[Participant]:
        """An attempt failed, with `camps` if digests differed; give those whose READY does not stand any more.

        Where nobody says why, it took too long; not `late` where it was given up for another plan.
        """
        self.again = frozenset(p.cluster for p in opened.participants)
        accusations = _accusations(opened, verdicts)
        self.edges = tuple(sorted({*self.edges, *accusations}))
        self._late += late and not camps and not any(isinstance(verdict, Failed) for verdict in verdicts.values())
        odd = outvoted(camps)
        self.barred |= odd
        if opened.attempt >= self._profile.tolerance and not odd:
            self._bar(opened, accusations)
        accused = {peer for _, peer in accusations}
        return [part for part in opened.participants if _fell(verdicts.get(part.leader), part.leader in accused)]

    def _bar(self, opened: Open, accusations: list[tuple[PeerId, PeerId]]) -> None:
        """Too many attempts came to nothing: the most accused (never this peer) sits the round out.

        Where this peer alone is accused, and not by all, whoever does so most: a line has two ends.
        """
        accusers, accused = ([edge[end] for edge in accusations] for end in (0, 1))
        others = [p for p in opened.participants if p.cluster != self._sight.mine]
        against = max(((accused.count(p.leader), p.cluster) for p in others), default=(0, None))
        by = max(((accusers.count(p.leader), p.cluster) for p in others), default=(0, None))
        of_all = {p.leader for p in others} <= set(accusers)
        count, worst = against if against[0] or of_all else by
        if count and worst is not None:
            self.barred |= {worst}


def _fell(verdict: Vote | Failed | None, accused: bool) -> bool:
    """Whether a participant has to stand READY again: it was accused and is silent, or has withdrawn by itself."""
    return accused if verdict is None else isinstance(verdict, Failed) and not verdict.standing


def _accusations(opened: Open, verdicts: Verdicts) -> list[tuple[PeerId, PeerId]]:
    """(who, whom) in the failed attempt: named in a FAILED, or holding another digest than most."""
    leaders = [p.leader for p in opened.participants]
    named = [
        (peer, accused)
        for peer, verdict in verdicts.items()
        if isinstance(verdict, Failed)
        for accused in verdict.suspects
        if accused in leaders and accused != peer
    ]
    votes = {peer: v.digest for peer, v in verdicts.items() if not isinstance(v, Failed)}
    return named + [(a, b) for a in votes for b in votes if votes[a] != votes[b]]
