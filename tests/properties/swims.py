"""Members of a group, each with its part of the membership protocol, and what must hold whatever happens to them.

A process dies, is back in a later life, says goodbye, or sees a connection end. A member has one process; a cluster is
a member, too, for which now one of its workers speaks and now another. What each process is told of the others is held
against what it holds of them, each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ictp2p.gossip.messages import (
    Displaced,
    Doubled,
    Gossip,
    MemberCleared,
    MemberFailed,
    MemberJoined,
    MemberLeft,
    MemberSuspected,
    MemberUpdated,
    Status,
    SwimState,
)
from ictp2p.gossip.profile import SwimProfile
from ictp2p.gossip.swim import Swim
from ictp2p.machine import Effect, Effects, Message, Notice, Send
from tests.gossip.swim_group import genuine, sealed

Version = tuple[int, int]
TERM = 100
"""Incarnations of one life of a member, or of one term of a cluster."""
NOTHING: Version = (-1, 0)


@dataclass(slots=True)
class _Held:
    """What a process holds of a member, or was told of it."""

    version: Version
    suspect: bool = False


@dataclass
class Process:
    """One process: a member, or a worker that may speak for one.

    Args:
        name: its own.
        speaks_for: the member of each process; the group.
        profile: how fast all goes.
    """

    name: str
    speaks_for: Mapping[str, str]
    profile: SwimProfile
    life: int = 1
    up: bool = True
    newest: Version = NOTHING
    """Of all that it ever said of its member."""
    held: dict[str, tuple[Version, bool]] = field(default_factory=dict)
    """In this life, of each other member: the newest record, and whether it was gone by that."""
    told: dict[str, _Held] = field(default_factory=dict)
    """Who is there, by what this life was told."""

    def __post_init__(self) -> None:
        self.me = self.speaks_for[self.name]
        self.swim = self._machine()

    def _machine(self) -> Swim:
        key = f"{self.me} {self.name}".encode()
        chance = random.Random(self.name)
        return Swim(self.me, self.profile, chance, seal=lambda record: sealed(record, key), verify=genuine)

    # --- what happens to it

    def receive(self, sender: str, message: Message, now: float) -> Effects:
        """Hear from another process. Who only keeps a copy of the view takes over what it is shown."""
        if not self.up:
            return []
        if isinstance(message, SwimState):
            return self.does(lambda: self.swim.absorb(message, now), now)
        return self.does(lambda: self.swim.receive(self.speaks_for[sender], message, now), now)

    def handle_timeout(self, now: float) -> Effects:
        effects = self.does(lambda: self.swim.handle_timeout(now), now)
        due = self.next_timeout()
        assert due is None or due > now, f"{self.name} is not done with what was due at {now}"
        return effects

    def next_timeout(self) -> float | None:
        return self.swim.next_timeout() if self.up else None

    def meets(self, other: str, now: float) -> Effects:
        return self.does(lambda: self.swim.meet(other, now), now)

    def loses(self, other: str, now: float, *, refused: bool = False) -> Effects:
        return self.does(lambda: self.swim.broken(other, refused, now), now)

    def starts(self, now: float, term: int = 0) -> Effects:
        incarnation = (term or self.life) * TERM
        return self.does(lambda: self.swim.start(f"{self.name} {incarnation}".encode(), incarnation, now), now)

    def stops(self, now: float) -> Effects:
        return self.does(lambda: self.swim.stop() or [], now)

    def publishes(self, what: str, now: float) -> Effects:
        return self.does(lambda: self.swim.publish(f"{self.name} {what}".encode(), now), now)

    def leaves(self, now: float) -> Effects:
        return self.does(lambda: self.swim.leave(now), now)

    def shows(self, other: str) -> Effects:
        """Give another process a copy of the view."""
        return [Send(other, self.swim.state())]

    def dies(self) -> Effects:
        self.up = False
        return []

    def returns(self, now: float) -> Effects:
        """Be back, with no more than the number of this life, and connected to the others."""
        self.up, self.life = True, self.life + 1
        self.swim, self.held, self.told = self._machine(), {}, {}
        effects = self.starts(now)
        return effects + [each for other in self.others() for each in self.meets(other, now)]

    def does(self, act: Callable[[], Effects], now: float) -> Effects:
        """Do it, see whether all is as it must be, and give what leaves the process."""
        effects = act()
        for effect in effects:
            if isinstance(effect, Notice):
                self._hear(effect)
            if isinstance(effect, Displaced):
                self._answer(effect, now)
        if self.swim.record is not None:
            self.newest = max(self.newest, self.swim.record.version)
        for send in effects:
            if isinstance(send, Send) and isinstance(send.message, Gossip):
                own = [news.version for news in send.message.news if getattr(news, "key", b"") == self._key()]
                self.newest = max([self.newest, *own])
        self._check()
        return [each for effect in effects for each in self._addressed(effect)]

    def _answer(self, rival: Displaced, now: float) -> None:
        """Be of one mind with another that speaks for the same member, as an election brings it about."""
        claim, other = rival.record.incarnation // TERM, rival.record.payload.decode().split()[0]
        own = self.swim.record
        assert own is not None
        if (claim, other) > (own.incarnation // TERM, self.name):
            self.swim.stop()
        else:
            self.swim.outbid(rival.record, now)

    def _key(self) -> bytes:
        return f"{self.me} {self.name}".encode()

    def others(self) -> list[str]:
        return sorted({*self.speaks_for.values()} - {self.me})

    def _addressed(self, effect: Effect) -> Iterator[Effect]:
        """What is sent to a member may come to any that speaks for it."""
        if not isinstance(effect, Send) or effect.to in self.speaks_for:
            yield effect
            return
        for name, member in self.speaks_for.items():
            if member == effect.to and name != self.name:
                yield Send(name, effect.message)

    # --- what must hold

    def _hear(self, notice: Notice) -> None:
        """Keep a list by what is told, as those do who never look at the view."""
        match notice:
            case MemberJoined(member, record):
                assert member not in self.told, f"{self.name} is told twice that {member} joined"
                self.told[member] = _Held(record.version)
            case MemberUpdated(member, record):
                assert self.told[member].version < record.version, f"{self.name} is told of an old {record}"
                self.told[member].version = record.version
            case MemberSuspected(member) | MemberCleared(member):
                suspect = isinstance(notice, MemberSuspected)
                assert self.told[member].suspect is not suspect, f"{self.name} is told again: {notice}"
                self.told[member].suspect = suspect
            case MemberFailed(member):
                assert self.told.pop(member, None), f"{self.name} is told that {member} failed, who was not there"
            case MemberLeft(member):
                self.told.pop(member, None)
            case Doubled(record):
                raise AssertionError(f"{self.name} takes {record} for the word of its double")
            case Displaced():
                assert len({*self.speaks_for.values()}) < len(self.speaks_for), f"{self.name} is told: {notice}"

    def _check(self) -> None:
        swim, table, me = self.swim, self.swim._table, self.name
        others = {name: member for name, member in swim.members.items() if name != self.me}
        assert {*others} <= {*self.speaks_for.values()}, f"{me} knows somebody who is not: {others}"
        present = {
            name: _Held(m.record.version, m.status is Status.SUSPECT) for name, m in others.items() if m.status.present
        }
        assert present == self.told, f"{me} was told of {self.told}, and holds {present}"
        assert (self.me in swim.members) is swim.active, f"{me} is not in its own view just while it takes part"
        if swim.active:
            assert swim.members[self.me].record is swim.record
            assert swim.members[self.me].status is Status.ALIVE, f"{me} buries itself"
        suspects = {name for name, held in present.items() if held.suspect}
        assert {*table.suspicions} == (suspects if swim.active else set()), f"{me} waits for {[*table.suspicions]}"
        here = {*present, *([self.me] if swim.active else [])}
        assert swim.alive() == tuple(sorted(here)), f"{me} gives an old list of who is there"
        assert table.absent() == tuple(sorted({*swim.members} - here)), f"{me} gives an old list of who is gone"
        assert len(swim._ledger.queue) <= 2 * len(swim.members), f"{me} has more to tell than there is"
        self._compare({name: (m.record.version, not m.status.present) for name, m in others.items()})

    def _compare(self, now: Mapping[str, tuple[Version, bool]]) -> None:
        """What it holds is never older than it was; who is gone is back only in a greater incarnation."""
        for name, (version, gone) in now.items():
            former, was_gone = self.held.get(name, (NOTHING, False))
            gone = gone and self.swim.active  # who keeps a copy takes over what another thinks
            assert former <= version, f"{self.name} held {former} of {name}, and then {version}"
            back = was_gone and not gone
            assert not back or version[0] > former[0], f"{name} is back for {self.name} in {version}, gone in {former}"
            self.held[name] = version, gone
