"""Fetching a state from several peers at once: which chunk to ask of whom. A pure machine.

The receiver pulls (as in BitTorrent; Cohen, 2003): it asks each provider for runs of chunks, as many as that one was
seen to deliver within `horizon` seconds, and for the next run when one is done. Each thus carries a share proportional
to its speed, without anyone measuring first, and a newcomer never hangs on one slow donor. Towards the end whoever is
idle is also asked for what the slowest still owes; the first verified copy wins.

Every chunk is checked against the agreed manifest before it counts. Wrong bytes ban their provider for good and are
reported by its name; a connection that broke or stalled costs a pause that doubles, and only the chunks under way.
A further connection to one of them (`lane`) is a provider of its own, with its own speed and its own share, and ends
with its first failure: what it owed goes to the others.
What has arrived stays: a transfer broken off goes on with the chunks that `GlobalState.expect` finds missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ictp2p.errors import StateError
from ictp2p.machine import earliest
from ictp2p.sync.state.manifest import CHUNK, Manifest, digest_of
from ictp2p.types import PeerId

_SMOOTHING = 0.3
"""Weight of the newest sample of a rate."""


@dataclass(frozen=True, slots=True)
class TransferProfile:
    """How a state is fetched."""

    horizon: float = 0.5
    """Seconds of a provider's work that it is asked for at once. Several round trips, so that it never waits."""

    run: int = 64
    """Most chunks per question. Bounds what one failure costs."""

    patience: float = 10.0
    """Seconds without any byte from a provider after which its chunks are asked of others."""

    longest: float = 100.0
    """The same where its connection brings something else, which may stand before them: a line is slow at first."""

    hedge: float = 1.0
    """Seconds after which the manifest is asked of one more provider: those who are dead may not say so."""

    pause: float = 0.5
    """Seconds before a provider that failed is asked again; doubled each time."""

    attempts: int = 5
    """Failures in a row after which a provider is given up."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask `provider` for these chunks of the state, or for its manifest if there are none."""

    provider: PeerId
    chunks: tuple[int, ...]


@dataclass(slots=True)
class _Provider:
    rate: float | None = None
    owed: list[int] = field(default_factory=list)
    asked_manifest: bool = False
    heard: float = 0.0
    seen: float = 0.0
    """When any part of a chunk came."""
    moved: float = 0.0
    """When its connection brought anything."""
    failures: int = 0
    ready_at: float = 0.0
    given_up: str = ""
    lane_of: PeerId | None = None
    """Whose further connection it is; None for a provider."""
    retired: bool = False
    """To be asked for nothing more."""

    @property
    def last(self) -> float:
        """When it was asked, after nothing, or brought anything of what it owes."""
        return max(self.heard, self.seen)


class Fetch:
    """The fetch of one state: tell it what arrived, and ask what it says."""

    def __init__(self, digest: bytes, providers: Sequence[PeerId], profile: TransferProfile | None = None) -> None:
        """Begin.

        Args:
            digest: the agreed digest of the state.
            providers: who has it; more may be added.
            profile: how patient to be.
        """
        self.digest = digest
        self.manifest: Manifest | None = None
        self._profile = profile or TransferProfile()
        self._providers = {p: _Provider() for p in providers}
        self._only: PeerId | None = None
        self._missing: dict[int, None] = {}
        """Chunks that nobody has been asked for, in order."""
        self._wanted: set[int] = set()
        """Chunks that have not arrived."""
        self._asked = float("-inf")
        """When `asks` was last called: a provider that was ready then need not wake anybody."""

    @property
    def done(self) -> bool:
        """Whether all of the state is here."""
        return self.manifest is not None and not self._wanted

    @property
    def remaining(self) -> int:
        """Chunks still to come, once the manifest is known."""
        return len(self._wanted)

    def add(self, provider: PeerId) -> None:
        """Another peer has the state, or may have it."""
        if self._only is None:
            self._providers.setdefault(provider, _Provider())

    def lane(self, provider: PeerId) -> PeerId:
        """Another connection to a provider brings chunks from now on; what it is called here.

        It is taken to be as fast as the first one until it has shown what it is: its first round trips would be idle.
        """
        name = PeerId(f"{provider}+{sum(held.lane_of == provider for held in self._providers.values()) + 1}")
        first = self._providers[provider]
        self._providers[name] = _Provider(rate=first.rate, given_up=first.given_up, lane_of=provider)
        return name

    def narrow(self, lanes: Iterable[PeerId]) -> None:
        """Ask no more over these; what they owe still counts."""
        for name in lanes:
            self._providers[name].retired = True

    def rates(self) -> dict[PeerId, float]:
        """Bytes/s that the providers deliver, of those who have delivered anything and are not given up."""
        return {name: p.rate for name, p in self._providers.items() if p.rate and not (p.lane_of or p.given_up)}

    def only(self, provider: PeerId) -> None:
        """Have all of it from this one: what others hold under that digest is another content."""
        self._only = provider
        for name, held in self._providers.items():
            if name != provider:
                held.given_up = f"{provider[:8]} was first, and every provider holds a state of its own"

    def begin(self, manifest: Manifest, missing: Iterable[int]) -> None:
        """Take the manifest, verified by `GlobalState.expect`, and which chunks are missing here."""
        self.manifest = manifest
        self._missing = dict.fromkeys(sorted(missing))
        self._wanted = set(self._missing)

    def asks(self, now: float) -> list[Ask]:
        """Say what to ask now.

        Raises:
            StateError: every provider has been given up; the message says why, by name.
        """
        self._asked = now
        if self.done:
            return []
        for held in self._providers.values():
            if held.retired and not held.owed:
                held.given_up = held.given_up or "carried no more than fewer connections"
        if all(p.given_up for p in self._providers.values()):
            reasons = "; ".join(f"{name[:8]}: {p.given_up}" for name, p in self._providers.items())
            raise StateError(f"no peer provides state {self.digest.hex()[:16]} ({reasons or 'none is known'})")
        return [ask for name, p in self._usable(now) if (ask := self._ask(name, p, now)) is not None]

    def arrived(self, provider: PeerId, index: int, data: bytes | memoryview, now: float) -> bool:
        """Take a chunk; say whether it was wanted. `data` may lie in its destination already.

        Raises:
            StateError: the bytes are wrong. The provider is banned, and its chunks go to others.
        """
        assert self.manifest is not None, "chunks follow the manifest"
        held = self._providers[provider]
        if index not in held.owed:
            return False
        if digest_of(data) != self.manifest.chunk_digest(index):
            raise self._banned(provider, f"chunk {index} has wrong bytes")
        self._measure(held, len(data), now)
        held.owed.remove(index)
        if index not in self._wanted:
            return False
        self._wanted.discard(index)
        return True

    def seen(self, provider: PeerId, now: float) -> None:
        """A part of a chunk, or of the manifest, has come."""
        self._providers[provider].seen = now

    def moving(self, provider: PeerId, now: float) -> None:
        """Its connection brings something, of which what it owes may be no part.

        On a slow line it may stand behind what was sent before. To ask again would put more there, and more each time.
        """
        self._providers[provider].moved = now

    def failed(self, provider: PeerId, why: str, now: float) -> None:
        """The connection to a provider broke, or it said that it no longer has this state.

        Several questions may be under way to it, and all break together: that is one failure.
        """
        held = self._providers[provider]
        if not self._busy(held):
            return
        self._release(provider)
        held.failures += 1
        held.ready_at = now + self._profile.pause * 2.0 ** (held.failures - 1)
        if held.failures >= self._profile.attempts or held.lane_of is not None:
            held.given_up = why

    def handle_timeout(self, now: float) -> list[PeerId]:
        """Give up waiting for silent providers; say for which, so that their connections may be dropped."""
        silent = [name for name, p in self._providers.items() if (at := self._silent_at(p)) is not None and at <= now]
        for name in silent:
            self.failed(name, f"silent for {now - self._providers[name].last:.0f} s", now)
        return silent

    def next_timeout(self) -> float | None:
        """When `handle_timeout` and `asks` are next wanted."""
        waits = [p.ready_at for p in self._providers.values() if p.ready_at > self._asked and not p.given_up]
        if any(not (p.asked_manifest or p.given_up) for p in self._providers.values()):
            waits += [at for at in self._hedges() if at > self._asked]
        return None if self.done else earliest([*map(self._silent_at, self._providers.values()), *waits])

    def _hedges(self) -> list[float]:
        """When the manifest may be asked of one more provider, for each of whom it was asked already."""
        asked = [p.heard for p in self._providers.values() if p.asked_manifest and self.manifest is None]
        return [at + self._profile.hedge for at in asked]

    def _usable(self, now: float) -> list[tuple[PeerId, _Provider]]:
        """Who may be asked now, the fastest first: at the end it should get what is left."""
        able = [(n, p) for n, p in self._providers.items() if not (p.given_up or p.retired) and p.ready_at <= now]
        return sorted(able, key=lambda item: -(item[1].rate or 0.0))

    def _ask(self, name: PeerId, held: _Provider, now: float) -> Ask | None:
        if self.manifest is None:
            if held.asked_manifest or any(at > now for at in self._hedges()):
                return None
            held.asked_manifest, held.heard = True, now
            return Ask(name, ())
        chunks = self._pick(held)
        if not chunks:
            return None
        held.heard = held.heard if held.owed else now
        held.owed.extend(chunks)
        return Ask(name, tuple(chunks))

    def _pick(self, held: _Provider) -> list[int]:
        window = self._window(held)
        # Half a window of hysteresis, so that questions name runs and not single chunks.
        room = window - len(held.owed)
        if room <= 0 or 2 * len(held.owed) > window:
            return []
        chunks = list(self._missing)[: min(room, self._profile.run)]
        for index in chunks:
            del self._missing[index]
        return chunks or ([] if held.owed else self._rescue(held))

    def _rescue(self, idle: _Provider) -> list[int]:
        """Chunks that the slowest still owes, if `idle` would bring them sooner."""
        others = [p for p in self._providers.values() if p is not idle and p.owed]
        if not others or idle.rate is None:
            return []
        slowest = max(others, key=_remaining)
        late = [
            i
            for i in reversed(slowest.owed)
            if i in self._wanted and not any(i in p.owed for p in others if p is not slowest)
        ]
        seconds = _remaining(slowest)
        able = len(late) if math.isinf(seconds) else int(seconds * idle.rate / CHUNK)
        return late[: max(0, min(able, self._window(idle), (len(late) + 1) // 2 if able < len(late) else len(late)))]

    def _window(self, held: _Provider) -> int:
        if held.rate is None:
            return 2
        return max(2, min(int(held.rate * self._profile.horizon / CHUNK), 4 * self._profile.run))

    def _measure(self, held: _Provider, count: int, now: float) -> None:
        if now > held.heard:
            # The time of a byte is smoothed, not its inverse: chunks come in bursts, whose rates forget the pauses.
            sample = (now - held.heard) / count
            held.rate = 1 / (sample if held.rate is None else 1 / held.rate + _SMOOTHING * (sample - 1 / held.rate))
        held.heard, held.failures = now, 0

    def _banned(self, provider: PeerId, why: str) -> StateError:
        """Ban a provider that sent what does not match the agreed digest; the error to raise."""
        provider = self._providers[provider].lane_of or provider
        for name in [n for n, p in self._providers.items() if provider in (n, p.lane_of)]:
            self._release(name)
            self._providers[name].given_up = why
        return StateError(f"provider {provider} of state {self.digest.hex()[:16]}: {why}")

    def _release(self, provider: PeerId) -> None:
        held = self._providers[provider]
        elsewhere = {i for p in self._providers.values() if p is not held for i in p.owed}
        back = [i for i in held.owed if i in self._wanted and i not in elsewhere]
        self._missing = dict.fromkeys(sorted([*self._missing, *back]))
        held.owed, held.asked_manifest = [], False

    def _busy(self, held: _Provider) -> bool:
        return bool(held.owed) or (held.asked_manifest and self.manifest is None)

    def _silent_at(self, held: _Provider) -> float | None:
        if held.given_up or not self._busy(held):
            return None
        return min(max(held.last, held.moved) + self._profile.patience, held.last + self._profile.longest)


def _remaining(held: _Provider) -> float:
    """Seconds that a provider needs for what it owes; for ever, if it never delivered."""
    return len(held.owed) * CHUNK / held.rate if held.rate else float("inf")
