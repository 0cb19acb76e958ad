"""Links as their connections come and go: what is told, what is kept, and that delays stay within the truth."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ictp2p.errors import RemoteProtocolError
from ictp2p.gossip.hellos import Hello
from ictp2p.gossip.link_profile import LinkProfile
from ictp2p.gossip.links import LinkChanged, LinkLost, Links
from ictp2p.machine import Message, Send
from tests.gossip.linked import MIB, NO_PROBES, A, B, C, linked, move, notices


class TestConnection:
    def test_a_lost_connection_is_told_once(self):
        links = linked()
        assert links.disconnected(B, 2.0) == [LinkLost(B)]
        assert links.disconnected(B, 2.0) == []
        assert links.disconnected(C, 2.0) == []
        assert links.receive(B, Hello(2, 4.0, 60.0, 1.0, 60.0), 2.1) == [], "what was on its way is void"
        assert links.next_timeout() is None

    def test_a_new_connection_measures_delay_anew_and_remembers_bandwidth(self):
        links = linked()
        move(links, 10 * MIB, 2.0)
        links.disconnected(B, 3.0)
        links.connected(B, 4.0)
        measured = links.measurement(B, 4.0)
        assert (measured.srtt, measured.bandwidth_out) == (None, 10 * MIB)

    def test_a_connection_that_replaces_another_ends_the_link_first(self):
        effects = linked().connected(B, 2.0)
        assert notices(effects) == [LinkLost(B)]
        links = linked()
        links.connected(B, 2.0)
        assert links.measurement(B, 2.0).srtt is None

    def test_only_links_with_samples_outlast_their_connection(self):
        links = linked(neighbours=(B, C))
        move(links, 10 * MIB, 2.0)
        assert repr(links) == "<Links ams: bern up, cork up>"
        links.disconnected(B, 3.0)
        links.disconnected(C, 3.0)
        assert repr(links) == "<Links ams: bern down>"
        links.connected(C, 4000.0)
        links.disconnected(C, 4000.0)
        assert repr(links) == "<Links ams: none>"

    def test_the_first_hellos_follow_each_other_closely(self):
        links = Links(A, NO_PROBES)
        links.connected(B, 0.0)
        assert links.next_timeout() == 0.5
        assert links.handle_timeout(0.5) == [Send(B, Hello(2, 4.0, 0.5, None, None))]
        links = linked()
        links.handle_timeout(2.0)
        assert links.next_timeout() == 6.0

    def test_an_unchanged_link_is_told_again_each_minute(self):
        links = linked()
        told, sent = [], 0.9
        for second in range(2, 130):
            effects = links.receive(B, Hello(second, 1.0, 160.0, sent, 160.1 - (second - sent)), float(second))
            effects += links.handle_timeout(float(second))
            sent = next((e.message.sent for e in effects if isinstance(e, Send)), sent)
            told += [second for _ in notices(effects, LinkChanged)]
        assert told == [61, 121]

    def test_only_changes_that_matter_are_told(self):
        links = linked()
        assert notices(move(links, 100 * MIB, 2.0), LinkChanged)
        assert notices(move(links, 110 * MIB, 3.0), LinkChanged) == []
        assert notices(move(links, 180 * MIB, 4.0), LinkChanged) == []
        assert notices(move(links, 170 * MIB, 5.0), LinkChanged), "the median is now 40 % higher"
        assert notices(move(links, 100 * MIB, 5.0, direction="in"), LinkChanged)

    def test_a_microsecond_is_no_news(self):
        links = linked(rtt=0.0001)
        links.handle_timeout(2.0)
        assert notices(links.receive(B, Hello(2, 4.0, 60.0, 2.0, 60.0), 2.001)) == []

    def test_foreign_messages_and_half_echoes_are_refused(self):
        for message in (Message(), Hello(1, 4.0, 1.0, 1.0, None), Hello(1, 4.0, 1.0, None, 1.0)):
            with pytest.raises(RemoteProtocolError, match="cluster bern sent"):
                linked().receive(B, message, 2.0)

    @pytest.mark.parametrize(
        "fields",
        [
            [31, -1, 4.0, 0.0, None, None],
            [31, 1, 0.0, 0.0, None, None],
            [31, 1, 4.0, float("nan"), None, None],
            [31, 1, float("inf"), 0.0, None, None],
            [31, 1, 4.0, 0.0, 1e13, 0.0],
        ],
    )
    def test_the_decoder_refuses_what_cannot_be(self, fields):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=Hello)


# Two clusters under an adversarial scheduler: clocks apart, Hellos lost, repeated and overtaken, connections cut.


@dataclass
class World:
    seed: int
    loss: float
    offsets: dict
    least: float
    most: float
    queue: list = field(default_factory=list)
    links: dict = field(default_factory=dict)
    up: dict = field(default_factory=lambda: {A: False, B: False})
    epoch: int = 0
    cut: bool = False
    now: float = 0.0
    count: int = 0

    def clock(self, name):
        return self.now + self.offsets[name]

    def execute(self, name, effects):
        other = B if name == A else A
        for effect in effects:
            match effect:
                case Send(to, message):
                    assert to == other
                    self.send(name, to, message)
                case LinkChanged(neighbour, measured):
                    assert neighbour == other
                    self.up[name] = True
                    assert 2 * self.least - 5e-6 <= measured.min_rtt <= measured.srtt + 5e-6
                    assert measured.srtt <= 2 * self.most + 5e-6
                case LinkLost(neighbour):
                    assert neighbour == other
                    assert self.up[name], "a link was lost that was not up"
                    self.up[name] = False

    def send(self, source, to, message):
        self.count += 1
        dice = random.Random(f"{self.seed}/{self.count}")
        for _ in range(2 if dice.random() < 0.1 else 1):
            if dice.random() >= self.loss and not self.cut:
                at = self.now + dice.uniform(self.least, self.most)
                heapq.heappush(self.queue, (at, self.count, dice.random(), self.epoch, source, to, message))

    def run(self, until):
        while True:
            timers = [(links.next_timeout() - self.offsets[name], name) for name, links in self.links.items()]
            timer = min(timers, default=(until, ""))
            event = self.queue[0][0] if self.queue else until
            if min(timer[0], event) >= until:
                self.now = until
                return
            if event <= timer[0]:
                self.now, _, _, epoch, source, to, message = heapq.heappop(self.queue)
                if epoch == self.epoch:
                    self.execute(to, self.links[to].receive(source, message, self.clock(to)))
            else:
                self.now = max(self.now, timer[0])
                name = timer[1]
                # Half a microsecond: the test's own sums of clock offsets round, and must not seem early.
                clock = self.clock(name) + 5e-7
                self.execute(name, self.links[name].handle_timeout(clock))
                assert self.links[name].next_timeout() > clock, "what was due is done: the driver's timer would spin"

    def connect(self):
        self.epoch += 1
        for name, other in ((A, B), (B, A)):
            self.execute(name, self.links[name].connected(other, self.clock(name)))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.1, 40.0), st.sampled_from(["cut", "mend", "reconnect"])), max_size=8),
    st.sampled_from([0.0, 0.2, 0.5]),
    st.floats(-1000.0, 1000.0),
    st.floats(0.001, 0.2),
    st.floats(1.0, 10.0),
    st.integers(0, 2**32),
)
def test_delays_stay_within_the_truth_and_links_come_back(faults, loss, offset, least, spread, seed):
    assume(least * spread < 1.0)
    world = World(seed, loss, {A: 5000.0, B: 5000.0 + offset}, least, least * spread)
    world.links = {A: Links(A, NO_PROBES), B: Links(B, NO_PROBES)}
    world.connect()
    for pause, kind in faults:
        world.run(world.now + pause)
        match kind:
            case "cut":
                world.cut = True
            case "mend":
                world.cut = False
            case "reconnect":
                world.connect()
    world.cut = True
    world.run(world.now + 30.0)
    assert world.up == {A: False, B: False}, "silence was not noticed"
    world.cut, world.loss = False, 0.0
    world.run(world.now + 10.0)
    assert world.up == {A: True, B: True}, "a mended link did not come back"


def test_presets_keep_their_order():
    local, lan, wan = LinkProfile.local(), LinkProfile.lan(), LinkProfile.wan()
    assert local.hello_interval < lan.hello_interval < wan.hello_interval
    assert all(p.probe_bytes <= p.probe_credit for p in (local, lan, wan))
