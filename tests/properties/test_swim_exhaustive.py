"""Who is there, in every course that two or three members can take: nobody is buried for good who lives.

Connections end for either end, members die, are back, say goodbye or have something new to say, clusters are spoken for
by another worker, and timers run for each by its own clock; what was said comes in any order, again, or never. In no
state does anybody hold what was not said, go back to an older record, or take for present who was gone by that record;
and what it was told of others is what it holds of them (`swims`). From every state, once all that is said arrives, all
who are there see each other, and nobody else, hold the newest records, and have nothing to tell any more. Where it says
`again=False` what was said comes once at most: who is asked to probe for another does so each time.

`EXHAUSTIVE=1` takes the larger worlds, minutes for each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from ictp2p.gossip.messages import Ack, Delta, Gossip, Ping, PingRequest, Record, Sight, Status, SwimState
from ictp2p.gossip.profile import SwimProfile
from ictp2p.machine import Effects, Message, Notice
from tests.properties.calm import Calm
from tests.properties.exhaustive import Explorer
from tests.properties.frozen import frozen, since
from tests.properties.swims import NOTHING, Process, Version
from tests.properties.worlds import Act, Move, wait

PROFILE = SwimProfile(
    probe_interval=20.0,
    probe_timeout=5.0,
    suspicion_mult=0.05,
    suspicion_max_mult=2.0,
    confirmations=1,
    gossip_interval=0.2,
    gossip_fanout=3,
    push_pull_interval=20.0,
    helpers=0,
    retransmit_mult=2,
    health_limit=2,
    gossip_to_dead=5.0,
)
"""Probes are rare, so that the timers of a course are those of news and of suspicions: one or two seconds."""
PROBING = replace(PROFILE, probe_interval=1.0, probe_timeout=0.4, suspicion_mult=1.0, push_pull_interval=5.0, helpers=1)
CALM = 6
"""Times after which there is peace that it takes until everybody has probed somebody and compared views with somebody:
two who hold each other for dead have to meet, by chance, and who is dead has to be probed."""
LASTING = frozenset({"_minimum", "_maximum", "_mean", "_deviation", "_most", "_patience", "patience"})
LONG_AGO = 10.0
"""Seconds after which it makes no difference to anybody when something was: the dead are told no more."""


class View(NamedTuple):
    """What one process is and holds."""

    name: str
    me: str
    up: bool
    newest: Version
    held: Mapping[str, tuple[Version, Status]]


class Group:
    """Members that have met, and have nothing to tell.

    Args:
        speaks_for: the member that each process may speak for, the first of several at first; or just their names.
        moves: what may happen.
        met: what must be held of somebody in some state, or nothing was tried that matters.
        again: whether what has come can come again.
        last: what still happens in calm, to whom it can.
        profile: how fast all goes.
    """

    deaths = 0
    mortal = ()

    def __init__(
        self,
        speaks_for: Mapping[str, str] | str,
        moves: Sequence[Move],
        met: Iterable[str] = ("SUSPECT",),
        *,
        again: bool = True,
        last: Callable[[Process, float], Effects] = lambda process, now: [],
        profile: SwimProfile = PROFILE,
    ) -> None:
        self.speaks_for = {name: name for name in speaks_for} if isinstance(speaks_for, str) else speaks_for
        self.peers = [*self.speaks_for]
        self.moves = moves
        self.again = again
        self.expected = {*met}
        self.met: set[str] = set()
        self._last = last
        self._profile = profile

    def disk(self, who: int) -> bytes | None:
        return None

    def boot(self, who: int, disk: bytes | None) -> Process:
        everybody = [Process(name, self.speaks_for, self._profile) for name in self.peers]
        speakers = {each.me: each for each in reversed(everybody)}
        for each in speakers.values():
            each.starts(0.0)
        records = [each.swim.record for each in speakers.values() if each.swim.record is not None]
        return _acquainted(everybody[who], records, next(name for name in self.peers if name != self.peers[who]))

    def same(self, machine: Process, now: float) -> Hashable:
        return frozen(machine, {id(self._profile): 0}, since(now, LASTING, LONG_AGO))

    def done(self, machine: Process) -> bool:
        return False

    def view(self, machine: Process) -> View:
        held = {name: (member.record.version, member.status) for name, member in machine.swim.members.items()}
        return View(machine.name, machine.me, machine.up, machine.newest, held)

    def fact(self, notice: Notice) -> Hashable | None:
        return None

    def check(self, views: Sequence[View], facts: Sequence[None]) -> None:
        newest: dict[str, Version] = {}
        for view in views:
            newest[view.me] = max(newest.get(view.me, NOTHING), view.newest)
        for view in views:
            for name, (version, status) in view.held.items():
                assert version <= newest[name], f"{view.name} holds {version} of {name}, who said {newest[name]} last"
                self.met.add(status.name)

    def calm(self, machines: Sequence[Process], clocks: Sequence[float]) -> None:
        """Leave all alone until for a while nobody has had anything to tell."""
        told: list[Message | Notice] = []
        calm = Calm(
            {each.name: (each, clock) for each, clock in zip(machines, clocks, strict=True)},
            heard=lambda message: told.append(message) if _tells(message) else None,
            noticed=told.append,
        )
        for each in machines:
            calm.do(each.name, lambda process, now: self._last(process, now) if process.swim.active else [])
        quiet = 1.25 * self._profile.push_pull_interval
        calm.run(quiet)
        while told or not settled(machines):
            assert calm.now < CALM * quiet, f"{calm.now:g} s of calm: {[self.view(each) for each in machines]}, {told}"
            told.clear()
            calm.run(quiet)


def _acquainted(process: Process, records: Sequence[Record], other: str) -> Process:
    """Have it know all members, or a copy of that view, and nothing more to tell."""
    if process.swim.active:
        process.receive(other, Gossip(tuple(each for each in records if each.member != process.me)), 0.0)
    else:
        process.receive(other, SwimState(tuple(Sight(each, Status.ALIVE) for each in records)), 0.0)
    process.swim._ledger.queue.clear()
    return process


def _tells(message: Message) -> bool:
    """Whether there is more in it than a question and its answer."""
    match message:
        case Ping(_, news) | Ack(_, news) | PingRequest(_, _, news) | Gossip(news):
            return bool(news)
    return isinstance(message, Delta)


def settled(processes: Sequence[Process]) -> bool:
    """Whether one speaks for each member that is there, all of them see each other, and nobody else."""
    here = [each.swim for each in processes if each.up and each.swim.active]
    records = {record.member: record for swim in here if (record := swim.record) is not None}
    return len(records) == len(here) and all(
        swim.alive() == tuple(sorted(records))
        and not swim.suspects()
        and all(swim.members[name].record == record for name, record in records.items())
        for swim in here
    )


def move(who: str, label: str, act: Act, uses: float = 1) -> Move:
    """Something that may happen to a process that is there."""
    return Move(label, _index(who), lambda process, now: act(process, now) if process.up else None, uses)


def active(who: str, label: str, act: Callable[[Process, float], Effects]) -> Move:
    """Something that may happen to a member while it takes part."""
    return move(who, label, lambda process, now: act(process, now) if process.swim.active else None)


def loses(who: str, other: str, *, refused: bool = False) -> Move:
    return move(who, f"loses {other}", lambda process, now: process.loses(other, now, refused=refused))


def meets(who: str, other: str) -> Move:
    return move(who, f"meets {other}", lambda process, now: process.meets(other, now))


def publishes(who: str) -> Move:
    return active(who, "has something new to say", lambda process, now: process.publishes("more", now))


def leaves(who: str) -> Move:
    return active(who, "says goodbye", lambda process, now: process.leaves(now))


def dies(who: str) -> Move:
    return move(who, "dies", lambda process, now: process.dies())


def starts_again(who: str) -> Move:
    return Move("is started again", _index(who), lambda process, now: process.returns(now))


def returns(who: str) -> Move:
    def act(process: Process, now: float) -> Effects | None:
        return None if process.up and process.swim.active else process.returns(now)

    return Move("is back", _index(who), act)


def shows(who: str, other: str) -> Move:
    return active(who, f"shows its view to {other}", lambda process, now: process.shows(other))


def takes_office(who: str, term: int) -> Move:
    def act(process: Process, now: float) -> Effects | None:
        return None if process.swim.active else process.starts(now, term)

    return move(who, f"leads in term {term}", act)


def stops(who: str) -> Move:
    return active(who, "leads no more", lambda process, now: process.stops(now))


def waits(**times: int) -> list[Move]:
    return [wait(_index(who), uses) for who, uses in times.items()]


def _index(who: str) -> int:
    """The place of a name: members are a, b and c; p and q speak for x, whom y knows."""
    return "abc".index(who) if who in "abc" else "pqy".index(who)


def greet(process: Process, now: float) -> Effects:
    """Be connected to everybody anew."""
    return [each for other in process.others() for each in process.meets(other, now)]


def go_on(process: Process, now: float) -> Effects:
    """One of two who speak for a member has something to say, as it has at the latest when it has measured a link."""
    return process.publishes("at last", now) if process.name == "p" else []


CLUSTER = {"p": "x", "q": "x", "y": "y"}
_HELD = ("SUSPECT", "DEAD")
SMALL = {
    "an accusation": Group("abc", [loses("a", "b"), publishes("b"), *waits(a=3)], _HELD),
    "accusations of each other": Group("ab", [loses("a", "b"), loses("b", "a"), *waits(a=1)]),
    "a restart": Group("abc", [loses("a", "b"), starts_again("b"), *waits(a=1)]),
    "a goodbye": Group("abc", [loses("a", "b"), leaves("b"), meets("c", "a"), *waits(a=1)], ("SUSPECT", "LEFT")),
    "a goodbye, and back": Group("ab", [leaves("b"), returns("b"), *waits(a=1, b=1)], ("LEFT",), last=greet),
    "a death": Group("abc", [dies("b"), loses("a", "b", refused=True), *waits(a=3)], _HELD),
    "an heir": Group(CLUSTER, [shows("p", "q"), takes_office("q", 2), stops("p"), *waits(p=1, q=1, y=1)], ()),
    "two heads": Group(CLUSTER, [takes_office("q", 1), loses("y", "x"), *waits(q=1, y=1)], last=go_on),
    "probes": Group("abc", waits(a=4), again=False, profile=PROBING),
    "a sleep": Group("ab", [loses("a", "b"), wait(0, late=3.0), *waits(a=2)]),
}
LARGE = {
    "accusations of each other, later": Group("ab", [loses("a", "b"), loses("b", "a"), *waits(a=2, b=1)], _HELD),
    "a restart, later": Group("abc", [loses("a", "b"), starts_again("b"), *waits(a=2, b=1)]),
    "a goodbye, later": Group("abc", [loses("a", "b"), leaves("b"), meets("c", "a"), *waits(a=2, c=1)], _HELD),
    "two heads, later": Group(CLUSTER, [takes_office("q", 1), loses("y", "x"), *waits(p=1, q=1, y=3)], last=go_on),
}
LONG = bool(os.environ.get("EXHAUSTIVE"))
WORLDS = {**SMALL, **LARGE} if LONG else SMALL


@pytest.mark.timeout(7200 if LONG else 120)
@pytest.mark.parametrize("name", WORLDS)
def test_nobody_goes_back_and_from_every_state_all_who_are_there_see_each_other(name: str) -> None:
    world = WORLDS[name]
    Explorer(world, most=100_000 if LONG else 3000, calm=world.calm, often=1, same=world.same).run()
    assert world.met >= world.expected, "nothing was tried that matters"
