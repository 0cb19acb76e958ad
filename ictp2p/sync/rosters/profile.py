"""How patient rosters are, each number with its price. None of them affects who may be in a group, only how soon."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RosterProfile:
    """How patient a roster is."""

    repeat: float = 1.0
    """Seconds between a worker's reports, and between repetitions of a proposal that was not acknowledged. A lost
    message costs this much; each repetition is one small message per worker."""

    gather: float = 5.0
    """Seconds that a new leader waits for the workers that it expects. Raising it delays the first step after an
    election in which a worker also died; lowering it makes a start of many workers build several groups."""

    gather_for_calls: float = 30.0
    """The same where collective calls begin, for workers of the last group. Lowering it makes sums without whoever
    comes later, who is told so; raising it delays the calls of a cluster whose leader died and is back, not calling."""

    store: float = 5.0
    """Seconds after which a rendezvous store that was asked for and not opened is asked for again."""

    backoff: float = 0.25
    """Seconds before the second roster in a row whose predecessor broke; doubled each time."""

    backoff_most: float = 8.0
    """Seconds that such a wait never exceeds."""

    aside_most: float = 60.0
    """Seconds for which a worker that cannot build its part of a group stands aside at most: `backoff` at first, and
    doubled each time. Raising it spares the others groups that break, and has one back later that is well again."""

    @classmethod
    def local(cls) -> RosterProfile:
        """Several processes on one machine."""
        return cls(
            repeat=0.25, gather=2.0, gather_for_calls=15.0, store=2.0, backoff=0.1, backoff_most=2.0, aside_most=5.0
        )

    @classmethod
    def lan(cls) -> RosterProfile:
        """The workers of one data centre."""
        return cls()

    @classmethod
    def wan(cls) -> RosterProfile:
        """A cluster whose workers are themselves far apart."""
        return cls(repeat=2.0, gather=15.0, store=10.0, backoff=1.0, backoff_most=30.0, aside_most=120.0)
