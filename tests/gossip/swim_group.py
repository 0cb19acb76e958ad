"""N machines of one group on a network of virtual time that loses, delays, partitions and pauses."""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from typing import Any

import msgspec

from ictp2p.gossip.messages import (
    Gossip,
    Ping,
    Record,
    SwimMessage,
)
from ictp2p.gossip.profile import SwimProfile
from ictp2p.gossip.swim import Swim
from ictp2p.machine import Effects, Message, Notice, Send

LAN = SwimProfile.lan()
_CODEC = msgspec.msgpack.Decoder(SwimMessage)


def sign(record: Record, key: bytes) -> bytes:
    return hashlib.blake2b(record.statement("test"), key=key, digest_size=16).digest()


def sealed(record: Record, key: bytes | None = None) -> Record:
    key = key or record.member.encode()
    return msgspec.structs.replace(record, key=key, signature=sign(record, key))


def genuine(record: Record) -> bool:
    """A key may sign for the member it begins with, so that a member may have several keys."""
    return record.key.startswith(record.member.encode()) and record.signature == sign(record, record.key)


def machine(me: str = "a", profile: SwimProfile = LAN, seed: int = 0, key: bytes | None = None) -> Swim:
    return Swim(me, profile, random.Random(seed), seal=lambda r: sealed(r, key), verify=genuine)


def record(member: str, incarnation: int = 1, sequence: int = 0, payload: bytes = b"") -> Record:
    return sealed(Record(member, incarnation, sequence, payload))


def sends(effects: Effects, kind: type[Message] | None = None) -> list[Send]:
    return [e for e in effects if isinstance(e, Send) and (kind is None or isinstance(e.message, kind))]


def notices(effects: Effects) -> list[Notice]:
    return [e for e in effects if isinstance(e, Notice)]


def started(me: str = "a", *others: str, profile: SwimProfile = LAN) -> Swim:
    """An active machine that knows `others`, each alive in incarnation 1, at time 0."""
    swim = machine(me, profile)
    swim.start(b"", 1, 0.0)
    if others:
        swim.receive(others[0], Gossip(tuple(record(name) for name in others)), 0.0)
    return swim


class Net:
    """N machines, one queue of events in virtual time. The same seed gives the same run."""

    def __init__(self, size: int, profile: SwimProfile, seed: int, *, delay: float = 0.02, loss: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.delay = delay
        self.loss = loss
        self.names = [f"n{i:02}" for i in range(size)]
        self.swims = {name: machine(name, profile, self.rng.getrandbits(32)) for name in self.names}
        self.log: list[tuple[float, str, Notice]] = []
        self.sent = 0
        self.bytes = 0
        self.crashed: set[str] = set()
        self.paused: dict[str, list[Callable[[], Effects]]] = {}
        self.blocked: Callable[[str, str], bool] = lambda _from, _to: False
        self.watch: Callable[[str], None] = lambda _name: None
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._armed: dict[str, float] = {}

    def start(self) -> None:
        """Everybody starts, and is connected to everybody."""
        for name in self.names:
            self.do(name, lambda s, t: s.start(b"hello", 1, t))
        for name in self.names:
            for other in self.names:
                if name < other:
                    self.do(name, lambda s, t, o=other: s.meet(o, t))

    def do(self, name: str, action: Callable[[Swim, float], Effects]) -> None:
        """Give one input to one machine now (after its pause, if it is paused)."""
        if name in self.crashed:
            return
        if name in self.paused:
            self.paused[name].append(lambda: action(self.swims[name], self.now))
            return
        self._execute(name, action(self.swims[name], self.now))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, event = heapq.heappop(self._queue)
            event()
        self.now = end

    def crash(self, name: str) -> None:
        self.crashed.add(name)

    def restart(self, name: str, incarnation: int) -> None:
        self.crashed.discard(name)
        self.swims[name] = machine(name, LAN, self.rng.getrandbits(32))
        self._armed.pop(name, None)
        self.do(name, lambda s, t: s.start(b"again", incarnation, t))

    def pause(self, name: str) -> None:
        self.paused[name] = []

    def resume(self, name: str) -> None:
        for action in self.paused.pop(name):
            self._execute(name, action())
        self._execute(name, self.swims[name].handle_timeout(self.now))

    def told(self, kind: type[Notice]) -> list[tuple[float, str, Any]]:
        return [entry for entry in self.log if isinstance(entry[2], kind)]

    def up(self) -> list[str]:
        return [name for name in self.names if name not in self.crashed]

    def agreed(self) -> bool:
        """Whether all who are up hold equal views of who is there, with equal records, and suspect nobody."""
        views = {
            (s.alive(), tuple(s.members[n].record.version for n in s.alive()), s.suspects())
            for s in (self.swims[name] for name in self.up())
        }
        return len(views) == 1 and not next(iter(views))[2]

    def _execute(self, name: str, effects: Effects) -> None:
        self.watch(name)
        for effect in effects:
            if isinstance(effect, Send):
                self._send(name, effect.to, effect.message)
            elif isinstance(effect, Notice):
                self.log.append((self.now, name, effect))
        self._arm(name)

    def _send(self, source: str, to: str, message: Message) -> None:
        wire = msgspec.msgpack.encode(message)
        self.sent += 1
        self.bytes += len(wire)
        if self.rng.random() < self.loss or self.blocked(source, to):
            return
        arrival = _CODEC.decode(wire)
        latency = self.delay * (0.5 + self.rng.random())
        self._at(self.now + latency, lambda: self.do(to, lambda s, t: s.receive(source, arrival, t)))

    def _arm(self, name: str) -> None:
        due = self.swims[name].next_timeout()
        if due is None or name in self.crashed:
            self._armed.pop(name, None)
        elif self._armed.get(name) != due:
            self._armed[name] = due
            self._at(max(due, self.now), lambda: self._fire(name, due))

    def _fire(self, name: str, due: float) -> None:
        if self._armed.get(name) != due or name in self.paused or name in self.crashed:
            return
        del self._armed[name]
        self._execute(name, self.swims[name].handle_timeout(self.now))

    def _at(self, when: float, event: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._queue, (when, self._serial, event))


def settled(
    size: int, profile: SwimProfile, seed: int, *, warm: float = 8.0, loss: float = 0.0, **options: float
) -> Net:
    """A group that has met (over fresh connections, which lose nothing) and then run for `warm` seconds."""
    net = Net(size, profile, seed, **options)
    net.start()
    net.run(1.0)
    net.loss = loss
    net.run(warm)
    return net


def keep_answering(swim: Swim, now: float, except_for: str) -> None:
    """Run `swim` until `now`, with every probe answered but those of one member."""
    while (due := swim.next_timeout()) is not None and due <= now:
        for send in sends(swim.handle_timeout(due), Ping):
            if send.to != except_for:
                swim.heard(send.to, due)
