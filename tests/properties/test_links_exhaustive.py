"""Links, in every course that their two ends can take: they are told of ups and downs in turn, and calm brings both up.

For each end the connection comes up, ends, or is begun anew with nothing left of before, and its timers run, once also
late; Hellos come in any order or never, those of former connections and lives as well. From every state, once each
Hello arrives, both ends are up within four intervals, stay up, and after as many Hellos as are counted lose nothing.
`EXHAUSTIVE=1` takes the larger worlds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from ictp2p.gossip.link_profile import LinkProfile
from ictp2p.gossip.links import LinkChanged, LinkLost, Links
from ictp2p.machine import Effects, Message, Notice
from ictp2p.types import ClusterId
from tests.properties.calm import Calm
from tests.properties.exhaustive import Explorer
from tests.properties.frozen import frozen
from tests.properties.worlds import Move, wait

PROFILE = LinkProfile(hello_interval=1.0, refresh=1e6, probe_credit=0)
NAMES = (ClusterId("a"), ClusterId("b"))
UP = 4.0
"""Seconds of calm within which both ends are up."""
COUNTED = 18.0
"""Seconds in which all Hellos come over which loss is counted."""


@dataclass
class End:
    """One end, and what it was told of the link."""

    me: ClusterId
    other: ClusterId
    up: bool = False
    links: Links = field(init=False)

    def __post_init__(self) -> None:
        self.links = Links(self.me, PROFILE)

    @property
    def connected(self) -> bool:
        link = self.links._links.get(self.other)
        return link is not None and link.talk is not None

    def receive(self, sender: str, message: Message, now: float) -> Effects:
        return self.does(partial(self.links.receive, sender, message, now), now)

    def handle_timeout(self, now: float) -> Effects:
        effects = self.does(partial(self.links.handle_timeout, now), now)
        due = self.next_timeout()
        assert due is None or due > now, f"{self.me} is not done with what was due at {now}"
        return effects

    def next_timeout(self) -> float | None:
        return self.links.next_timeout()

    def connects(self, now: float) -> Effects:
        return self.does(partial(self.links.connected, self.other, now), now)

    def disconnects(self, now: float) -> Effects:
        return self.does(partial(self.links.disconnected, self.other, now), now)

    def begins_anew(self, now: float) -> Effects:
        """Another life, or another office: the other end may not notice."""
        self.links, self.up = Links(self.me, PROFILE), False
        return self.connects(now)

    def does(self, act: Callable[[], Effects], now: float) -> Effects:
        effects = act()
        for effect in effects:
            if isinstance(effect, LinkChanged):
                self.up = True
                assert effect.measurement.srtt is not None, f"{self.me} is told of a link that was not measured"
            if isinstance(effect, LinkLost):
                assert self.up, f"{self.me} is told of the loss of a link that was not up"
                self.up = False
        assert self.connected or not self.up, f"{self.me} was not told that its connection has ended"
        measured = self.links.measurement(self.other, now)
        assert 0.0 <= measured.loss <= 1.0, f"{self.me} loses {measured.loss}"
        assert measured.srtt is None or 0.0 <= (measured.min_rtt or 0.0) <= measured.srtt + 1e-9, f"{measured}"
        return effects


class Line:
    """Two ends that are not connected at first."""

    peers = NAMES
    again = False
    deaths = 0
    mortal = ()

    def __init__(self, *moves: Move) -> None:
        self.moves = moves

    def disk(self, who: int) -> bytes | None:
        return None

    def boot(self, who: int, disk: bytes | None) -> End:
        return End(NAMES[who], NAMES[1 - who])

    def done(self, machine: End) -> bool:
        return False

    def view(self, machine: End) -> bool:
        return machine.up

    def fact(self, notice: Notice) -> Hashable | None:
        return None

    def check(self, views: Sequence[bool], facts: Sequence[None]) -> None:
        """All that must hold is of one end (`End.does`)."""

    def calm(self, machines: Sequence[End], clocks: Sequence[float]) -> None:
        """Connect whom nobody has connected yet."""
        lost: list[Notice] = []
        calm = Calm(
            {each.me: (each, clock) for each, clock in zip(machines, clocks, strict=True)},
            noticed=lambda notice: lost.append(notice) if isinstance(notice, LinkLost) else None,
        )
        for each in machines:
            if not each.connected:
                calm.do(each.me, End.connects)
        calm.run(UP)
        assert all(each.up for each in machines), f"after {UP:g} s of calm: {machines}"
        lost.clear()
        calm.run(COUNTED)
        assert not lost, f"in calm: {lost}"
        for each, clock in zip(machines, clocks, strict=True):
            measured = each.links.measurement(each.other, clock + calm.now)
            assert not measured.loss, f"in calm {each.me} loses {measured.loss}"


def connects(who: int) -> Move:
    return Move("connects", who, End.connects)


def disconnects(who: int) -> Move:
    return Move("disconnects", who, lambda end, now: end.disconnects(now) if end.connected else None)


def begins_anew(who: int) -> Move:
    return Move("begins anew", who, End.begins_anew)


_CONNECTED = (connects(0), connects(1))
SMALL = {
    "up": Line(*_CONNECTED, wait(0), wait(1)),
    "down": Line(*_CONNECTED, disconnects(0)),
    "begun anew": Line(*_CONNECTED, begins_anew(0)),
    "late": Line(*_CONNECTED, wait(0, late=6.0)),
}
LARGE = {
    "up, longer": Line(*_CONNECTED, wait(0, 2), wait(1)),
    "down, longer": Line(*_CONNECTED, disconnects(0), wait(1)),
    "begun anew, longer": Line(*_CONNECTED, begins_anew(0), wait(0)),
}
LONG = bool(os.environ.get("EXHAUSTIVE"))
WORLDS = {**SMALL, **LARGE} if LONG else SMALL


@pytest.mark.timeout(7200 if LONG else 120)
@pytest.mark.parametrize("name", WORLDS)
def test_each_end_is_told_in_turn_and_from_every_state_both_come_up(name: str) -> None:
    world = WORLDS[name]
    explorer = Explorer(
        world, most=1_000_000 if LONG else 5000, calm=world.calm, often=1, same=lambda end, now: (now, frozen(end))
    )
    assert explorer.run().states > 10
