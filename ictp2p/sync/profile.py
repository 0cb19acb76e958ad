"""The numbers of agreement and rounds, in one documented place.

None of them affects safety: a wrong number makes the mesh slow or chatty, never inconsistent (Fischer, Lynch
and Paterson 1985 is why time must appear at all; Paxos is why only here).
"""

from __future__ import annotations

from dataclasses import dataclass

from ictp2p.errors import ConfigError
from ictp2p.sync.values import MAX_VOTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundProfile:
    """Timing of agreement and rounds. Durations in seconds."""

    retry: float
    """An unanswered message is sent again after this long. Nothing waits for it unless a message was lost.
    Lower costs repeats where the round trip is longer than it. About twice the longest round trip."""
    backoff_max: float
    """Two proposers that keep outbidding each other wait at most about this long between bids."""
    anti_entropy: float
    """How often each peer compares its newest decision with that of a random other. Repairs lost decisions."""
    quorum_deadline: float
    """A proposal that is undecided for this long is reported as a lost quorum. It is still tried. Time for which this
    process stood still does not count."""
    straggler_floor: float
    """Least time that the coordinator waits for clusters that are alive but not READY, from when most of them are
    READY, or should be (`rounds.waiting`)."""
    straggler_fraction: float
    """The same as a fraction of the time between the last commit and that moment; the larger counts."""
    soft_deadline: float
    """Time after which a majority of votes commits without the rest. Grows with the hard one for a long plan, and
    with what the majority needed (`patience`)."""
    hard_deadline: float
    """Least time after which an attempt without a majority is aborted; `plan_factor` times the plan's predicted
    time counts if that is larger. Only a backstop: failures and suspicions end an attempt much sooner."""
    suspect_grace: float
    """How long the others of an attempt may still vote once a participant is suspected; then it is aborted.
    Higher spares attempts that would have succeeded with a peer wrongly suspected, and delays the others."""
    detour: float
    """Seconds for which rounds of calls wait for stragglers at least: until what they say goes around a line that was
    cut, which is when both ends count the link as lost (`gossip.hellos`), and a repetition. Less has a program miss a
    call for a cable; more holds up all others for one that is alive and does not call."""
    heir_grace: float
    """How long the round of a collective call waits, beyond all else, for a cluster that lost its leader and has other
    workers: one of them will speak for it once the cluster has given its leader up. Above the longest suspicion inside
    a cluster whose host still answers. Higher spares the program of a slow cluster a `RoundMissed`; lower lets the
    others go on sooner when all of a cluster died at once."""
    voter_grace: float
    """A voter that no cluster's record ever mentioned is taken for dead after this long."""
    replan: float = 5.0
    """How long an attempt goes on before it is asked for the first time whether another plan would be over sooner. It
    takes as long until a link that is in use has been measured anew. Lower throws away more on a hasty measurement."""
    pause_max: float = 2.0
    """Longest pause before another attempt at a round. The second attempt comes at once, the third after `retry`,
    each further one after twice as long as the one before. Higher spares a mesh whose every attempt fails."""
    restore_after: float = 600.0
    """Once nobody who is alive has held the agreed state for this long, the mesh goes back to the newest version that
    somebody holds; infinite: it waits for a holder. Several times what it takes to tell the dead from the slow."""
    fetch_grace: float = 600.0
    """How long a round waits at most, instead of the straggler timeout, for a cluster that was overtaken while it
    fetched the state, and says that it needs so long. It costs the others that until it is as far as they are, or
    has fetched in vain eight times; without it, such a cluster is overtaken each time. Lower leaves out slow lines.
    So long wait, too, those who look on, for those who train, where no phase was seen yet: it costs nobody anything."""
    patience: float = 1.25
    """What the rest of an attempt gets beyond the time that a majority needed, as a share of that time, if this is
    later than the soft deadline. Higher keeps in who has a slow link, and lets one that hangs delay the others."""
    plan_factor: float = 8.0
    """How many times its predicted seconds a plan may take."""
    max_voters: int = MAX_VOTERS
    """Most voters. Odd and small: 2f+1 survive f deaths at once."""
    tolerance: int = 3
    """After this many aborted attempts at one round, whoever is accused most sits it out."""
    history: int = 32
    """Decisions kept for those who are behind; who is further behind jumps to the newest."""

    def __post_init__(self) -> None:
        """Check what could not work."""
        if not 1 <= self.max_voters <= MAX_VOTERS:
            raise ConfigError(f"max_voters {self.max_voters} is not in 1..{MAX_VOTERS}")
        if not 0 < self.soft_deadline <= self.hard_deadline:
            raise ConfigError(f"soft_deadline {self.soft_deadline} is not in (0, {self.hard_deadline}]")
        if not self.patience >= 0:
            raise ConfigError(f"patience {self.patience} is not at least 0")
        if self.retry <= 0 or self.anti_entropy <= 0:
            raise ConfigError(f"retry {self.retry} and anti_entropy {self.anti_entropy} must be positive")
        if not self.replan > 0:
            raise ConfigError(f"replan {self.replan} is not above 0")
        if not self.restore_after > 0:
            raise ConfigError(f"restore_after {self.restore_after} is not above 0")
        if self.history < 1 or self.tolerance < 1:
            raise ConfigError(f"history {self.history} and tolerance {self.tolerance} must be at least 1")

    @property
    def soft_share(self) -> float:
        """The soft deadline as a share of the hard one."""
        return self.soft_deadline / self.hard_deadline

    def deadline(self, predicted: float) -> float:
        """Hard deadline in seconds of a plan that should take `predicted` seconds."""
        return max(self.hard_deadline, self.plan_factor * predicted)

    def straggler(self, inner: float) -> float:
        """Seconds to wait for stragglers after inner steps that took `inner` seconds."""
        return max(self.straggler_floor, self.straggler_fraction * inner)

    @classmethod
    def local(cls) -> RoundProfile:
        """Processes of one host."""
        return cls(
            retry=0.25,
            backoff_max=1.0,
            anti_entropy=2.0,
            quorum_deadline=3.0,
            straggler_floor=10.0,  # training processes that share a few cores drift apart by seconds
            straggler_fraction=0.1,
            soft_deadline=10.0,
            hard_deadline=30.0,
            suspect_grace=0.3,
            detour=4.0,
            heir_grace=5.0,
            voter_grace=3.0,
        )

    @classmethod
    def lan(cls) -> RoundProfile:
        """One site."""
        return cls(
            retry=0.5,
            backoff_max=2.0,
            anti_entropy=5.0,
            quorum_deadline=5.0,
            straggler_floor=5.0,
            straggler_fraction=0.1,
            soft_deadline=30.0,
            hard_deadline=120.0,
            suspect_grace=1.0,
            detour=6.0,
            heir_grace=15.0,
            voter_grace=15.0,
            pause_max=5.0,
        )

    @classmethod
    def wan(cls) -> RoundProfile:
        """Sites far apart."""
        return cls(
            retry=2.0,
            backoff_max=8.0,
            anti_entropy=15.0,
            quorum_deadline=20.0,
            straggler_floor=10.0,
            straggler_fraction=0.1,
            soft_deadline=120.0,
            hard_deadline=600.0,
            suspect_grace=10.0,
            detour=24.0,
            heir_grace=30.0,
            voter_grace=60.0,
            pause_max=10.0,
        )
