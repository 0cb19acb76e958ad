"""A process that was late itself: it takes none of those who spoke meanwhile for silent."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.hellos import Hello
from ictp2p.gossip.links import LinkChanged, LinkLost, Links
from ictp2p.machine import Send
from tests.gossip.linked import NO_PROBES, A, B, C, linked, notices, wait

INTERVAL = NO_PROBES.hello_interval
HOLD = NO_PROBES.hold * INTERVAL


@dataclass
class Sleeper:
    """A, which sleeps now and then, and B, which does not, until it dies."""

    sleeps: list[tuple[float, float]]
    """From and until when A does nothing, ascending."""
    way: float
    """Seconds of a message from one to the other."""
    unread: float
    """Seconds after A woke at which it reads what came meanwhile; 0: at once, before its timers are looked at."""
    death: float = inf
    told: list = field(default_factory=list)
    """When A said what of its link."""
    _count: Iterator[int] = field(default_factory=itertools.count)

    def run(self, until):
        ends = {A: Links(A, NO_PROBES), B: Links(B, NO_PROBES)}
        post: list = []
        for me in ends:
            self._execute(me, ends[me].connected(B if me == A else A, 0.0), 0.0, post)
        while True:
            due = [(self._awake(ends[A].next_timeout()), 1, A), (ends[B].next_timeout(), 1, B)]
            if self.death <= due[1][0]:
                due.pop()
            at, _, me = min(due)
            if post and post[0][:2] < (at, 1):
                at, _, _, me, hello = heapq.heappop(post)
                if at >= until:
                    return
                effects = [] if me == B and at >= self.death else ends[me].receive(B if me == A else A, hello, at)
            elif at >= until:
                return
            else:
                effects = ends[me].handle_timeout(at)
                assert ends[me].next_timeout() > at, "what was due is done: the driver's timer would spin"
            self._execute(me, effects, at, post)

    def _execute(self, me, effects, now, post):
        for effect in effects:
            if isinstance(effect, Send):
                at = now + self.way
                at = self._read(at) if me == B else at
                heapq.heappush(post, (at, 0, next(self._count), effect.to, effect.message))
            elif me == A:
                self.told.append((now, effect))

    def _awake(self, at):
        return next((end for start, end in self.sleeps if start <= at < end), at)

    def _read(self, at):
        while (awake := self._awake(at)) > at:
            at = awake + self.unread
        return at


@st.composite
def sleeps(draw):
    """Sleeps of any length, and between them time enough to read what came."""
    spans, now = [], 0.0
    for awake, asleep in draw(st.lists(st.tuples(st.floats(0.5, 20.0), st.floats(0.0, 200.0)), max_size=12)):
        spans.append((now + awake, now + awake + asleep))
        now += awake + asleep
    return spans


ways, unread = st.floats(0.001, 1.0), st.sampled_from([0.0, 0.001, 0.4])


@given(sleeps(), ways, unread)
def test_whoever_speaks_is_not_lost_however_long_and_often_we_sleep(sleeps, way, unread):
    world = Sleeper(sleeps, way, unread)
    world.run(until=(sleeps[-1][1] if sleeps else 0.0) + 10 * INTERVAL)
    assert [each for each in world.told if isinstance(each[1], LinkLost)] == []
    assert world.told, "it came up"


@given(sleeps(), ways, unread, st.floats(0.0, 400.0))
def test_who_is_dead_is_lost_within_the_hold_after_a_sleep_and_does_not_come_back(sleeps, way, unread, death):
    world = Sleeper(sleeps, way, unread, death)
    world.run(until=max(death, sleeps[-1][1] if sleeps else 0.0) + 10 * INTERVAL)
    if not world.told:
        return  # it died before it was up
    at, last = world.told[-1]
    assert isinstance(last, LinkLost), "it comes back by no sleep"
    before = [(start, end) for start, end in sleeps if start < at]
    heard = max([death + way, *(end for _, end in before)]) + unread
    assert at <= heard + HOLD + 1e-6
    asleep = sum(end - max(start, death) + INTERVAL for start, end in before if end > death)
    assert at <= death + way + unread + HOLD + asleep + 1e-6, "a sleep puts it off by itself and an interval"


def test_after_a_sleep_there_is_time_to_read_though_the_silence_was_nearly_long_enough():
    links = linked()
    wait(links, 14.9)
    resumed = links.next_timeout() + 100.0
    assert notices(links.handle_timeout(resumed), LinkLost) == []
    assert notices(wait(links, resumed + INTERVAL / 2), LinkLost) == []
    links.receive(B, Hello(2, INTERVAL, 60.0, resumed, 60.0), resumed + INTERVAL / 2)
    assert notices(wait(links, resumed + INTERVAL / 2 + HOLD - 0.1), LinkLost) == []


def test_what_was_read_before_we_saw_that_we_slept_counts_from_then_and_what_was_not_from_earlier():
    links = linked(neighbours=(B, C))
    wait(links, 10.0)
    links.receive(B, Hello(2, INTERVAL, 460.0, 9.4, 460.0), 500.0)
    assert notices(links.handle_timeout(500.0), LinkLost) == []
    assert notices(wait(links, 500.0 + HOLD - 0.1), LinkLost) == [LinkLost(C)]
    assert notices(wait(links, 500.0 + HOLD), LinkLost) == [LinkLost(B)]


def test_a_sleep_is_counted_once_though_it_was_slept_through_that_a_link_is_told_again():
    links = linked()
    wait(links, 10.0)
    assert notices(links.handle_timeout(500.0), LinkChanged)
    assert links.next_timeout() > 500.0
    links.handle_timeout(500.001)
    assert notices(wait(links, 500.0 + HOLD - 0.1), LinkLost) == [LinkLost(B)]


def test_sleep_is_no_loss_of_hellos():
    links = linked()
    assert notices(links.handle_timeout(60.0)) == []
    assert links.measurement(B, 60.0).loss == 0.0
    assert links.measurement(B, 60.0 + 1.5 * INTERVAL).loss == pytest.approx(0.5)


def test_a_lost_link_is_not_up_again_because_we_slept():
    links = linked()
    assert notices(wait(links, 15.0), LinkLost) == [LinkLost(B)]
    assert notices(links.handle_timeout(100.0), LinkChanged) == []


def test_a_little_late_is_in_time():
    links = linked()
    wait(links, 14.9)
    assert notices(links.handle_timeout(links.next_timeout() + INTERVAL / 2), LinkLost) == [LinkLost(B)]
