"""Observers of a whole control plane: how many, for how long, what each may ask, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.core import commands
from ictp2p.core.cards import PeerCard
from ictp2p.core.machines import CODECS
from ictp2p.core.packets import (
    STATUS_LIMIT,
    Channel,
    Greeting,
    Packet,
    StatusRefusal,
    StatusReply,
    StatusRequest,
    decode_packet,
    encode_packet,
)
from ictp2p.machine import Message
from ictp2p.types import ClusterId, PeerId
from ictp2p.wire import MAX_CONTROL_BODY
from tests.core.control_planes import Host, World, mesh

AT_ONCE, STAY = 16, 60.0
OBSERVERS = [PeerId(f"{n:032x}") for n in range(20)]


@dataclass
class Seen:
    """What one observer's connection has been given, and whether it is open."""

    told: list[Message] = field(default_factory=list)
    asked: int = 0
    since: float | None = None
    open: bool = True


class Gallery:
    """One peer of a mesh of its own, and those who look on."""

    def __init__(self) -> None:
        self.world = World()
        self.host: Host = mesh(self.world, "a", workers=1)["a"][0]
        self.seen: dict[PeerId, Seen] = {}

    def enter(self, peer: PeerId, cluster: str = "") -> None:
        self.seen[peer] = Seen()
        self.take(self.host.core.opened(peer, self.world.now))
        self.greet(peer, cluster)

    def greet(self, peer: PeerId, cluster: str = "") -> None:
        if self.seen[peer].since is None:
            self.seen[peer].since = self.world.now
        self.say(peer, Greeting(PeerCard(peer, ClusterId(cluster), "", bytes(32)), PeerId(""), 0))

    def say(self, peer: PeerId, message: Message) -> None:
        if self.seen[peer].open:
            packet = Packet(peer, ClusterId(""), self.world.id(self.host), 1, Channel.HELLO, encoded(message))
            self.take(self.host.core.receive(peer, encode_packet(packet), self.world.now))

    def ask(self, peer: PeerId) -> None:
        self.seen[peer].asked += 1
        self.say(peer, StatusRequest())

    def go(self, peer: PeerId) -> None:
        self.seen.pop(peer).open = False
        self.take(self.host.core.lost(peer, self.world.now))

    def wait(self, seconds: float) -> None:
        """Let time pass, looking at whatever is due."""
        end = self.world.now + seconds
        while (due := self.host.core.next_timeout()) is not None and due <= end:
            self.world.now = max(due, self.world.now)
            self.take(self.host.core.handle_timeout(self.world.now))
            later = self.host.core.next_timeout()
            assert later is None or later > self.world.now, "what is due is done"
        self.world.now = end

    def take(self, todo: list[commands.Command]) -> None:
        for command in todo:
            match command:
                case commands.Transmit(peer=peer, frame=frame) if peer in self.seen and self.seen[peer].open:
                    assert len(frame) < MAX_CONTROL_BODY
                    packet = decode_packet(frame)
                    self.seen[peer].told.append(CODECS[packet.channel].decode(packet.body))
                case commands.Hangup(peer=peer, gently=gently) if peer in self.seen:
                    self.seen[peer].open = False
                    assert gently == isinstance(self.seen[peer].told[-1], StatusRefusal)
                    self.take(self.host.core.lost(peer, self.world.now))
                case commands.StatusAsked(observer=observer):
                    self.take(self.host.core.tell_status(observer, b"{}", self.world.now))

    def here(self) -> list[PeerId]:
        return [peer for peer, seen in self.seen.items() if seen.open]

    def replies(self, peer: PeerId) -> list[StatusReply]:
        return [each for each in self.seen[peer].told if isinstance(each, StatusReply)]

    def refusals(self, peer: PeerId) -> list[StatusRefusal]:
        return [each for each in self.seen[peer].told if isinstance(each, StatusRefusal)]


def encoded(message: Message) -> bytes:
    return CODECS[Channel.HELLO].encode(message)


WHO = st.sampled_from(OBSERVERS)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["enter", "enter", "enter", "ask", "greet", "go"]), WHO),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 20.0, 61.0])),
)


@given(steps=st.lists(STEPS, max_size=80))
@settings(deadline=None)
def test_observers_are_few_stay_for_a_moment_ask_once_and_are_told_why_they_go(
    steps: list[tuple[str, PeerId | float]],
) -> None:
    """Regression: whoever held the token and greeted as an observer could open any number, which stayed for ever."""
    gallery = Gallery()
    for peer in OBSERVERS[: AT_ONCE - 1]:
        gallery.enter(peer)
    for act, what in steps:
        if act == "wait" or (what in gallery.seen) != (act == "enter"):
            getattr(gallery, act)(what)
        assert len(gallery.here()) <= AT_ONCE
        for peer in gallery.here():
            since = gallery.seen[peer].since
            assert since is not None
            assert gallery.world.now <= since + STAY
            assert gallery.seen[peer].asked == len(gallery.replies(peer)) <= 1
        for peer in gallery.seen:
            if not gallery.seen[peer].open and gallery.seen[peer].asked < 2:
                assert len(gallery.refusals(peer)) == 1
    assert gallery.host.core.connected() == [], "nobody counts on an observer"


def test_the_seventeenth_is_told_how_many_there_are_and_comes_in_once_one_has_gone() -> None:
    gallery = Gallery()
    for peer in OBSERVERS[: AT_ONCE + 1]:
        gallery.enter(peer)
    late = OBSERVERS[AT_ONCE]
    assert gallery.here() == OBSERVERS[:AT_ONCE]
    assert gallery.refusals(late)[0].reason.startswith("16 observers are looking on already")
    gallery.go(late)
    gallery.go(OBSERVERS[0])
    gallery.enter(late)
    gallery.ask(late)
    assert gallery.replies(late) == [StatusReply(b"{}", False)]


def test_who_stays_for_a_minute_is_sent_away() -> None:
    gallery, peer = Gallery(), OBSERVERS[0]
    gallery.enter(peer)
    gallery.wait(STAY - 0.1)
    assert gallery.here() == [peer]
    gallery.wait(0.2)
    assert gallery.here() == []
    assert gallery.refusals(peer)[0].reason == "an observer may stay for 60 s"


@pytest.mark.parametrize("surplus", [0, 1])
def test_a_status_that_is_too_long_is_refused_by_its_size(surplus: int) -> None:
    """Regression: its last parts were dropped, and the observer waited until its time was up."""
    gallery, peer = Gallery(), OBSERVERS[0]
    gallery.enter(peer)
    gallery.take(gallery.host.core.tell_status(peer, bytes(STATUS_LIMIT + surplus), gallery.world.now))
    if surplus:
        assert not gallery.replies(peer)
        assert gallery.refusals(peer)[0].reason == "the status has 8388609 bytes, and at most 8388608 are sent"
        assert not gallery.here()
    else:
        assert sum(len(each.document) for each in gallery.replies(peer)) == STATUS_LIMIT
        assert [each.more for each in gallery.replies(peer)].count(False) == 1


@pytest.mark.parametrize("clusters", [("", "b"), ("b", "")])
def test_who_greets_as_an_observer_and_as_a_member_is_neither(clusters: tuple[str, str]) -> None:
    gallery, peer = Gallery(), OBSERVERS[0]
    gallery.enter(peer, clusters[0])
    gallery.greet(peer, clusters[1])
    assert not gallery.here()


def test_a_member_does_not_ask_for_the_status() -> None:
    gallery, peer = Gallery(), OBSERVERS[0]
    gallery.enter(peer, "b")
    gallery.ask(peer)
    assert not gallery.replies(peer)
    assert not gallery.here()
