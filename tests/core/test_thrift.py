"""Two ends of a connection, in large meshes: what they say of their needs, and whether routes may lead over it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.core.commands import Hangup
from ictp2p.core.packets import Channel, Need, Parting
from ictp2p.core.thrift import Thrift
from ictp2p.types import PeerId

OTHERS = [PeerId(f"other{n}") for n in range(4)]
"""Whom either end is connected to as well, and picks: its foothold in the mesh."""


class End:
    """One peer, its connection to the other, and what it has sent there."""

    def __init__(self, name: str) -> None:
        self.me = PeerId(name)
        self.sent: list[Need | Parting] = []
        self.context: Any = SimpleNamespace(now=0.0, me=self.me, out=[], send=self._send)
        self.thrift = Thrift(self.context)
        self.silent = False

    def _send(self, channel: Channel, to: PeerId, message: Need | Parting) -> None:
        assert channel is Channel.HELLO
        if to not in OTHERS:
            self.sent.append(message)

    def pick(self, *picks: PeerId, greeted: tuple[PeerId, ...]) -> None:
        self.thrift.picked(frozenset(picks), crowded=not self.silent)
        self.thrift.settle([*OTHERS, *greeted], lambda peer: not self.silent)

    def handle(self, now: float) -> None:
        self.context.now = now
        self.thrift.handle_timeout()


class Pair:
    """Both ends."""

    def __init__(self) -> None:
        self.a, self.b = End("a"), End("b")
        self.now = 0.0

    def pick(self, end: End, *, wanted: bool, foothold: int = len(OTHERS)) -> None:
        other = self.b.me if end is self.a else self.a.me
        end.context.now = self.now
        end.pick(*OTHERS[:foothold], *([other] if wanted else []), greeted=(other,))

    def deliver(self) -> None:
        """Exchange what was sent."""
        for end, other in ((self.a, self.b), (self.b, self.a)) * 2:
            sent, end.sent = end.sent, []
            for message in sent:
                other.thrift.receive(end.me, message)

    def wait(self, seconds: float) -> None:
        """Let time pass at both ends, in steps."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.25
            for end in (self.a, self.b):
                end.handle(self.now)
            self.deliver()

    def serves(self) -> tuple[bool, bool]:
        return self.a.thrift.serves(self.b.me), self.b.thrift.serves(self.a.me)

    def parted(self) -> bool:
        return any(isinstance(command, Hangup) for end in (self.a, self.b) for command in end.context.out)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0.0, 12.0)), min_size=1, max_size=6))
def test_routes_lead_over_what_an_end_needs_and_what_none_needs_is_given_up(
    wishes: list[tuple[bool, bool, float]],
) -> None:
    pair = Pair()
    for *wanted, pause in [*wishes, (*wishes[-1][:2], 12.0)]:
        for end, wants in zip((pair.a, pair.b), wanted, strict=True):
            pair.pick(end, wanted=wants)
        pair.deliver()
        pair.wait(pause)
        if pair.parted():
            assert not any(wanted), "it was needed"
            return
    needed = any(wishes[-1][:2])
    assert pair.serves() == (needed, needed)
    assert needed, "nobody needs it, and it was not given up"


@pytest.mark.parametrize("wanted", [True, False])
def test_what_one_end_needs_the_other_hears_at_once(wanted: bool) -> None:
    pair = Pair()
    for end, wants in ((pair.a, wanted), (pair.b, False)):
        pair.pick(end, wanted=wants)
    pair.deliver()
    pair.wait(1.0)
    assert pair.serves() == (wanted, wanted)


def test_no_route_leads_anywhere_while_picks_change() -> None:
    pair = Pair()
    pair.pick(pair.a, wanted=True)
    pair.wait(0.25)
    assert not pair.a.thrift.serves(pair.b.me)
    pair.pick(pair.a, wanted=True, foothold=3)
    pair.wait(0.25)
    assert not pair.a.thrift.serves(pair.b.me), "the time began anew"
    pair.wait(0.25)
    assert pair.a.thrift.serves(pair.b.me)


def test_who_says_nothing_from_one_look_to_the_next_needs_the_connection() -> None:
    pair = Pair()
    pair.b.silent = True
    for end in (pair.a, pair.b):
        pair.pick(end, wanted=False)
    assert pair.b.thrift.serves(pair.a.me), "in a mesh that is complete every connection counts"
    pair.wait(5.0)
    assert not pair.a.thrift.serves(pair.b.me)
    pair.wait(6.0)
    assert pair.a.thrift.serves(pair.b.me)
    assert not pair.parted()


def test_who_has_no_foothold_keeps_what_it_has() -> None:
    pair = Pair()
    far = [PeerId(f"far{n}") for n in range(9)]
    pair.b.pick(*far, greeted=(pair.a.me,))
    pair.pick(pair.a, wanted=False)
    pair.wait(12.0)
    assert pair.serves() == (True, True)
    assert not pair.parted()
