"""How an open attempt ends: counting votes, failures and doubts.

COMMIT needs votes for one digest from more than half of the participants, so that the bytes survive and late
clusters have someone to fetch from; then it waits only for those who may still vote, and not past the soft deadline,
unless the majority itself needed long: a link that has become slow carries one end's contribution, for which all the
others wait, and then a result that is of use to the other end alone, so its ends need up to twice as long. Therefore
the rest gets as much again as the majority needed, and a little (`patience`): to fetch a whole state costs more than
the end of a transfer, and who is left behind misses the next round too, in which nobody measures that link again.
Two different digests mean that somebody's memory or code is wrong: ABORT, never a choice between them, for what was
averaged holds the contributions of both. But the others go on without who was outvoted, so it is waited for as long as
for late clusters until a digest is that of most: the first two votes would only say that one of the two is wrong. A
FAILED without a majority of votes is an ABORT at once: an all-reduce that broke for one will not finish for the others,
and the next attempt starts from contributions that are still untouched. A doubted participant is not waited for,
but the others get a moment to say how far they came, since it may have died after everybody had the result. Once all
of them have, nobody waits for whom another leader has replaced in its cluster: it died, or gives up when it hears that.
Who needs its bytes says so itself (`ParticipantUnseated`), so the bytes of those who need none of it are not thrown
away. A claim ends one attempt at most, of two leaders side by side too: the next one binds the higher claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ictp2p.sync.messages import Failed, Vote
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.sight import Sight
from ictp2p.sync.values import Open
from ictp2p.types import ClusterId, PeerId

_MAX_REASON = 1024


@dataclass(frozen=True, slots=True)
class Ruling:
    """How to close, or (`committed` None) what is still waited for, and until when at most."""

    committed: bool | None
    reason: str
    digest: bytes = b""
    holders: tuple[PeerId, ...] = ()
    wake: float | None = None
    camps: tuple[tuple[ClusterId, ...], ...] = ()
    """See `Close`."""


@dataclass(slots=True)
class BallotBox:
    """The newest verdict of every peer, since when participants are doubted, and since when most have voted."""

    verdicts: dict[PeerId, Vote | Failed] = field(default_factory=dict)
    doubts: dict[PeerId, float] = field(default_factory=dict)
    majority: tuple[int, int, float] | None = None
    """Round, attempt, and when this peer first counted the votes of most, or votes that differ."""

    def put(self, sender: PeerId, verdict: Vote | Failed) -> None:
        """Take a verdict; an older attempt's never replaces a newer one's, and the first on an attempt stays."""
        known = self.verdicts.get(sender)
        if known is None or (known.round, known.attempt) < (verdict.round, verdict.attempt):
            self.verdicts[sender] = verdict

    def on(self, opened: Open) -> dict[PeerId, Vote | Failed]:
        """Verdicts of the participants on exactly this attempt."""
        found = ((p.leader, self.verdicts.get(p.leader)) for p in opened.participants)
        number = (opened.round, opened.attempt)
        return {peer: v for peer, v in found if v is not None and (v.round, v.attempt) == number}

    def count(
        self, opened: Open, sight: Sight, profile: RoundProfile, since: float, office: float, now: float
    ) -> Ruling:
        """Decide how `opened` ends.

        Args:
            opened: the attempt.
            sight: beliefs about its participants.
            profile: deadlines.
            since: when this peer learnt of it.
            office: when this peer became coordinator; the verdicts told to its predecessor take a moment to come.
            now: seconds.
        """
        self._drop_older(opened)
        verdicts = self.on(opened)
        count = _Count(opened, verdicts, self._doubt(opened, sight, verdicts, now))
        if len(set(count.votes.values())) > 1:
            return count.differing(self._soft(opened, profile, since, now), now)
        if 2 * len(count.votes) > len(opened.participants):
            return count.majority(self._soft(opened, profile, since, now), now)
        if len(count.votes) < len(verdicts):
            return count.failed()
        end = max(since + opened.deadline, office + profile.suspect_grace)
        silent = [p for p in opened.participants if p.leader not in verdicts]
        if all(sight.unseated(p.cluster, p.leader, p.term) for p in silent):
            end = now
        elif count.doubts:
            end = min(end, max(since, office, min(count.doubts.values())) + profile.suspect_grace)
        return count.minority(end, now)

    def _drop_older(self, opened: Open) -> None:
        """Attempts before the present one are over, and who voted on them may never vote again."""
        number = (opened.round, opened.attempt)
        self.verdicts = {peer: v for peer, v in self.verdicts.items() if (v.round, v.attempt) >= number}

    def _soft(self, opened: Open, profile: RoundProfile, since: float, now: float) -> float:
        """Until when those are waited for who have not voted, now that most have, or that digests differ."""
        number = (opened.round, opened.attempt)
        if self.majority is None or self.majority[:2] != number:
            self.majority = (*number, now)
        took = self.majority[2] - since
        soft = max(opened.deadline * profile.soft_share, took * (1.0 + profile.patience))
        return since + min(soft, opened.deadline)

    def _doubt(self, opened: Open, sight: Sight, verdicts: Mapping[PeerId, object], now: float) -> dict[str, float]:
        """Doubted participants without a verdict, in words, and since when."""
        silent = [p for p in opened.participants if p.leader not in verdicts]
        reasons = {p.leader: sight.doubt(p.cluster, p.leader, p.term) for p in silent}
        self.doubts = {peer: self.doubts.get(peer, now) for peer, reason in reasons.items() if reason}
        return {reasons[peer] or "": since for peer, since in self.doubts.items()}


class _Count:
    """How an attempt stands, and what follows from that.

    Args:
        opened: the attempt.
        verdicts: on it, so far.
        doubts: about those who gave none, in words, and since when.
    """

    def __init__(self, opened: Open, verdicts: Mapping[PeerId, Vote | Failed], doubts: Mapping[str, float]) -> None:
        self.votes = {peer: v.digest for peer, v in verdicts.items() if isinstance(v, Vote)}
        self.doubts = doubts
        self._verdicts = verdicts
        self._size = len(opened.participants)
        self._names = {p.leader: p.cluster for p in opened.participants}
        self._silent = [p.cluster for p in opened.participants if p.leader not in verdicts]

    def majority(self, soft: float, now: float) -> Ruling:
        """Most have voted, and all for one digest: the others are waited for until `soft`."""
        tally = self._tally(len(self.votes))
        if self._may_vote_yet(soft, now):
            return Ruling(None, f"{tally}, waiting until the soft deadline for {', '.join(self._silent)}", wake=soft)
        return Ruling(True, tally, next(iter(self.votes.values())), tuple(self.votes))

    def minority(self, end: float, now: float) -> Ruling:
        """Too few have voted, and nobody has failed: they are waited for until `end`."""
        tally, why = self._tally(len(self._verdicts)), ", ".join(self.doubts) or "the deadline"
        if now >= end:
            return Ruling(False, f"{tally}: {why}"[:_MAX_REASON])
        return Ruling(None, f"{tally}, waiting for {', '.join(self._silent)} ({why})", wake=end)

    def failed(self) -> Ruling:
        """Too few have voted, and somebody has failed."""
        failures = [f"{self._names[peer]}: {v.reason}" for peer, v in self._verdicts.items() if isinstance(v, Failed)]
        return Ruling(False, f"failed at {'; '.join(failures)}"[:_MAX_REASON])

    def differing(self, soft: float, now: float) -> Ruling:
        """Digests differ: that of most is waited for until `soft`."""
        voters = {
            digest: tuple(sorted(self._names[peer] for peer, voted in self.votes.items() if voted == digest))
            for digest in self.votes.values()
        }
        camps = tuple(sorted(voters.values(), key=lambda camp: (-len(camp), camp)))
        listed = ", ".join(f"{self._names[peer]}={digest.hex()}" for peer, digest in self.votes.items())
        if 2 * len(camps[0]) <= self._size and self._may_vote_yet(soft, now):
            waits = f"digests differ, waiting until the soft deadline for {', '.join(self._silent)}: {listed}"
            return Ruling(None, waits[:_MAX_REASON], wake=soft)
        return Ruling(False, f"digests differ: {listed}"[:_MAX_REASON], camps=camps)

    def _may_vote_yet(self, soft: float, now: float) -> bool:
        return len(self._silent) > len(self.doubts) and now < soft

    def _tally(self, count: int) -> str:
        return f"{count} of {self._size} voted"
