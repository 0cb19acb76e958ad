"""What to do when the agreed state has died with all who held it.

A decision outlives its bytes: those are in the memory of whoever took part, and if all of them die, nobody can start
from the agreed state, and no round can open. The way out is a decision like any other. After `restore_after` seconds
in which nobody who is alive was known to hold the agreed state, the coordinator proposes that the newest version which
somebody holds comes next, under a new number: versions never go back, each has one digest, and a holder that returns
finds that the mesh has gone on, as it would after any other round that it missed.

Who holds what is a belief, gathered by asking (`Inquire`, `Holding`), so it may be wrong: holders may be behind a
partition. A wrong restore is still one decision by a quorum of the decided voters, and so harms no invariant; it costs
the work in the versions passed over. Three rules make it rare. The coordinator asks only while it has no proof (its own
memory, a READY from the agreed state, an answer), and a single proof starts the time again. A quorum of the voters must
have said, lately, that they do not hold it; so a minority cannot even propose. And while somebody may still come back,
time is given: `restore_after` is far longer than it takes to tell the dead from the slow. It is not given where nobody
can: once all who held that version, all voters and all others who are alive have said that they do not, and that
they bring no checkpoint either, for they have been started again. Where all have, whoever may bring one is waited for.

Where nobody holds any version (the whole mesh was restarted), workers bring checkpoints. One of a version that this
very mesh has agreed on, which its lineage tells, is held as that version like any other: so the mesh goes back to the
newest one that somebody has, as it does among those who live, however many bring an older one. That forks nothing. The
chain stays one, each version keeps its digest, and `credits.restored` says in it whose part is inside as of the version
that is gone back to. A state of which nobody can tell where in this chain it belongs (another mesh's, or
`resume=True`) is taken like a version 0: if there is nothing else, and of several the one that most bring. Fresh
weights are never offered unasked: a mesh that began anew by itself would look healthy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ictp2p.machine import earliest
from ictp2p.sync.credits import restored
from ictp2p.sync.messages import Holding
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.notices import StateMissing
from ictp2p.sync.rounds.sight import Sight
from ictp2p.sync.values import Restore, StateRef, Value, quorum, upcoming
from ictp2p.types import PeerId

Held = tuple[int, bytes]
"""Version and digest of the global state that a peer has in memory; `NOTHING` where it has none."""
NOTHING: Held = (0, b"")


class Stock(NamedTuple):
    """What others can have of a peer."""

    held: Held = NOTHING
    """The newest that it has taken over."""
    sealed: bytes = b""
    """Digest of one that is whole there and was not taken over: the mesh may have agreed on it since, for a round that
    lands late does so a phase later."""


_FRESH = 3
"""An answer counts for this many times the pause between two questions: one or two may be lost."""
_PROVIDERS = 16
"""Most providers that a restored version names: any one is enough, and they are in every message about it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a look at the answers gave."""

    reason: str = ""
    """What is waited for; empty where all is well."""
    wake: float | None = None
    """When to look again."""
    ask: tuple[PeerId, ...] = ()
    """Whom to ask now."""
    alarm: StateMissing | None = None
    """What to tell, once."""
    source: Held | None = None
    """The version to go back to now, if it is time."""
    holders: tuple[PeerId, ...] = ()
    """Who holds that."""


class Survey:
    """The coordinator's knowledge of who holds what.

    Args:
        me: this peer.
        profile: `restore_after`, and how often to ask.
        sight: whom to ask, and who is dead.
        held: what this peer itself holds.
        begun: whether its worker brings nothing more.
        seen: from which version on this process was there when they were agreed on.
    """

    def __init__(
        self,
        me: PeerId,
        profile: RoundProfile,
        sight: Sight,
        held: Callable[[], Held],
        begun: Callable[[], bool] = lambda: True,
        seen: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._me = me
        self._profile = profile
        self._sight = sight
        self._held = held
        self._begun = begun
        self._seen = seen
        self._answers: dict[PeerId, tuple[float, Held, bool, int]] = {}
        self._about: StateRef | None = None
        self._since: float | None = None
        self._ask_at = -math.inf
        self._told: Held | None = None

    def heard(self, sender: PeerId, answer: Holding, now: float) -> None:
        """Take an answer."""
        self._answers[sender] = (now, (answer.version, answer.digest), answer.begun, answer.seen)

    def heard_since(self, moment: float) -> set[PeerId]:
        """Who has answered anything since then."""
        return {peer for peer, (at, *_) in self._answers.items() if at >= moment}

    def viewed(self) -> None:
        """The view changed: forget what the dead said."""
        self._answers = {peer: said for peer, said in self._answers.items() if self._sight.lives(peer)}

    def reset(self) -> None:
        """Somebody holds the agreed state, or this peer coordinates only now: the time begins anew."""
        self._since = self._told = None

    def look(self, tip: Value, now: float) -> Finding:
        """Say what follows from the answers, while nobody stands READY from the agreed state of `tip`."""
        state = tip.state
        if self._about != state:
            self._about, self._ask_at = state, -math.inf
            self.reset()
        if state.version == 0 or self._held()[1] == state.digest:
            self.reset()
            return Finding()
        ask = self._questions(now)
        known = self._known(now)
        if any(version > state.version or digest == state.digest for version, digest in known.values()):
            self.reset()
            return Finding(wake=self._ask_at, ask=ask)
        return self._lack(tip, known, ask, now)

    def _questions(self, now: float) -> tuple[PeerId, ...]:
        """Everybody who may hold it, after a pause."""
        if now < self._ask_at:
            return ()
        self._ask_at = now + self._profile.anti_entropy
        return self._sight.workers()

    def _known(self, now: float) -> dict[PeerId, Held]:
        """Fresh answers of those who live, this peer's among them."""
        fresh = now - _FRESH * self._profile.anti_entropy
        self._answers = {p: a for p, a in self._answers.items() if a[0] >= fresh and self._sight.lives(p)}
        return {self._me: self._held(), **{p: self._answers[p][1] for p in sorted(self._answers)}}

    def _lack(self, tip: Value, known: dict[PeerId, Held], ask: tuple[PeerId, ...], now: float) -> Finding:
        """Nobody is known to hold it: wait, or go back."""
        self._since = now if self._since is None else self._since
        source = self._best(tip.state, known)
        calm = self._since + min(_FRESH * self._profile.anti_entropy, self._profile.restore_after / 2)
        due = self._since + self._profile.restore_after
        if due < math.inf and self._is_certain(tip, known):
            due = calm
        wait = self._wait(tip, known, source, due, now)
        if wait is None:
            holders = sorted((p for p in known if known[p] == source), key=lambda p: (p != self._me, p))
            return Finding(source=source, holders=tuple(holders[:_PROVIDERS]))
        wake = earliest([self._ask_at, *(at for at in (calm, due, due + (due - self._since)) if now < at < math.inf)])
        if now < calm:
            return Finding(f"asking who holds version {tip.state.version} of the state", wake, ask)
        words = f"nobody who is alive holds version {tip.state.version} of the state; {wait}"
        return Finding(words, wake, ask, self._alarm(tip.state, source, due, now))

    def _is_certain(self, tip: Value, known: dict[PeerId, Held]) -> bool:
        """Whether all who could hold the agreed state are back without it, or never had it.

        And whether any of us was there when it was agreed on: a mesh that was stopped whole may have checkpoints of it.
        """
        seen = min(self._seen() if p == self._me else self._answers[p][3] for p in known)
        begun = {p for p in known if (self._begun() if p == self._me else self._answers[p][2])}
        others = filter(self._sight.lives, self._sight.workers())
        return seen <= tip.state.version and begun.issuperset((*tip.state.providers, *tip.voters, *others))

    def _wait(self, tip: Value, known: dict[PeerId, Held], source: Held | None, due: float, now: float) -> str | None:
        """What is waited for, in words; None if it is time to go back to `source`."""
        assert self._since is not None
        if source is None:
            return "nor any other: a worker has to `load` a checkpoint; a new training takes empty data folders"
        if now < due:
            after = f"in {due - now:.0f} s" if due < math.inf else "never (restore_after=inf)"
            return f"going back to version {source[0]} {after} unless a holder returns"
        silent = [v for v in tip.voters if v not in known]
        if not quorum(tip.voters, known):
            return f"{', '.join(silent)} have yet to say what they hold"
        holders = [p for p in tip.state.providers if p not in known and self._sight.lives(p)]
        if holders and now < due + self._profile.restore_after:
            return f"{', '.join(holders)} held it and are not known to be dead"
        return None

    def _best(self, lost: StateRef, known: dict[PeerId, Held]) -> Held | None:
        """The newest version before the lost one; of several states without a place here, the one that most bring.

        Other bytes that claim the lost version's number are no state that was ever agreed.
        """
        held = [h for h in known.values() if h[1] and h[0] < lost.version]
        return max(held, key=lambda h: (h[0], held.count(h), h == known[self._me], h[1]), default=None)

    def _alarm(self, lost: StateRef, source: Held | None, due: float, now: float) -> StateMissing | None:
        if self._told == (source or NOTHING):
            return None
        self._told = source or NOTHING
        return StateMissing(lost, source[0] if source else None, max(0.0, due - now))


def restoring(tip: Value, voters: tuple[PeerId, ...], author: PeerId, found: Finding) -> Restore | None:
    """The decision that goes back to what was found, if it is time."""
    if found.source is None:
        return None
    version, digest = found.source
    reason = f"version {tip.state.version} died with all who held it; back to version {version}"
    state = restored(tip.state, version, digest, found.holders)
    return Restore(tip.lineage, voters, state, author, *upcoming(tip), version, reason)
