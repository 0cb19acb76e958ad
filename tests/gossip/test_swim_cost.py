"""What membership costs beside a training thread: calls, messages, wakings; and whom news goes to."""

from __future__ import annotations

import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.gossip.messages import (
    Ack,
    Dead,
    Digest,
    Gossip,
    Ping,
)
from ictp2p.gossip.profile import SwimProfile
from ictp2p.gossip.swim import Swim
from ictp2p.machine import Effects, Send
from tests.gossip.swim_group import LAN, Net, keep_answering, record, sends, settled, started


def calls_per_timeout(size: int) -> float:
    """Count the Python calls that one machine makes per timeout, answered at once, with no news."""
    swim = started("a", *(f"m{i:03}" for i in range(size)))
    for now in range(1, 3 * size + 60):
        keep_answering(swim, float(now), except_for="nobody")
    calls = timeouts = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    for _ in range(4 * size):
        due = swim.next_timeout() or 0.0
        sys.setprofile(count)
        try:
            effects = swim.handle_timeout(due)
            for send in sends(effects, Ping):
                swim.receive(send.to, Ack(send.message.number), due)  # type: ignore[attr-defined]
        finally:
            sys.setprofile(None)
        timeouts += 1
    return calls / timeouts


def test_steady_state_costs_little_and_not_more_in_a_large_group() -> None:
    small, large = calls_per_timeout(4), calls_per_timeout(64)
    assert large < 60, large
    assert large < 1.5 * small + 10


def test_traffic_per_member_does_not_grow_with_the_group() -> None:
    def per_member(size: int) -> tuple[float, float]:
        net = settled(size, LAN, 0, warm=40)
        sent, size_before = net.sent, net.bytes
        net.run(120)
        return (net.sent - sent) / size / 120, (net.bytes - size_before) / size / 120

    for size in (4, 16, 48):
        messages, traffic = per_member(size)
        assert messages < 3.0, "a ping, an ack and seldom a digest per interval"
        assert traffic < 200 + 10 * size, "bytes per second: the digest's share grows, at 1/30 of its size"


def test_nothing_wakes_the_machine_between_probes() -> None:
    net = settled(8, LAN, 0, warm=30)
    swim = net.swims["n03"]
    woken = 0
    usual = swim.handle_timeout

    def counted(now: float) -> Effects:
        nonlocal woken
        woken += 1
        return usual(now)

    swim.handle_timeout = counted  # type: ignore[method-assign]
    net.run(60)
    assert woken <= 60 / LAN.probe_interval + 60 / LAN.push_pull_interval + 1


def test_exchanges_pick_the_dead_too() -> None:
    swim = started("a", "b", "c")
    swim.receive("c", Gossip((Dead("b", 1, "c"),)), 0.0)
    digests: list[Send] = []
    for now in range(0, 61):
        digests += sends(swim.handle_timeout(float(now)), Digest)
        swim.heard("c", float(now))
    assert {"b", "c"} <= {s.to for s in digests}


def gossiped_to(swim: Swim, seconds: float) -> set[str]:
    """Who is told of a new record within so many seconds."""
    now, told = 1.0, set[str]()
    swim.publish(b"news", now)
    while now < 1.0 + seconds:
        now += 0.1
        told |= {send.to for send in sends(swim.handle_timeout(now), Gossip)}
    return told


def test_news_goes_to_those_that_are_near_and_to_all_if_none_of_them_is_there() -> None:
    others = ("b", "c", "d", "e", "f", "g", "h", "i")
    swim = started("a", *others)
    swim.near(("c", "e", "gone"))
    assert gossiped_to(swim, 5.0) == {"c", "e"}
    swim = started("a", *others)
    swim.near(("gone",))
    assert len(gossiped_to(swim, 5.0)) > 2


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(5, 24))
def test_news_reaches_everybody_though_each_gossips_with_four_beside_it_on_a_ring(seed: int, size: int) -> None:
    net = Net(size, SwimProfile.lan(push_pull_interval=1e6), seed)
    net.start()
    net.run(20.0)
    for index, name in enumerate(net.names):
        net.swims[name].near(net.names[(index + step) % size] for step in (-2, -1, 1, 2))
    net.do(net.names[0], lambda swim, now: swim.publish(b"news", now))
    net.run(15.0)
    assert {swim.members[net.names[0]].record.payload for swim in net.swims.values()} == {b"news"}


@given(st.floats(0.0, 300.0))
def test_who_is_alone_wakes_rarely_and_probes_who_comes_within_an_interval(came: float) -> None:
    swim, wakings, now = started("a"), 0, 0.0
    while (due := swim.next_timeout()) is not None and due <= came:
        now = due
        assert not sends(swim.handle_timeout(now))
        wakings += 1
    assert wakings <= 2 + came / (5 * LAN.probe_interval) + came / LAN.push_pull_interval
    effects = swim.receive("b", Gossip((record("b"),)), came)
    while not sends(effects, Ping):
        due = swim.next_timeout()
        assert due is not None
        assert due <= came + LAN.probe_interval
        effects = swim.handle_timeout(due)


@given(st.booleans(), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_details_gather_unless_something_presses(pressing: bool, seed: int) -> None:
    net = settled(12, LAN, seed, warm=60)
    before = net.sent
    net.do("n00", lambda s, t: s.publish(b"measured", t, detail=not pressing))
    net.run(3 * LAN.gossip_interval)
    heard = sum(s.members["n00"].record.payload == b"measured" for s in net.swims.values())
    assert heard > 6 or not pressing
    net.run(LAN.push_pull_interval + 40 * LAN.gossip_interval)
    assert net.agreed(), "the others hear it from digests at the latest"
    assert net.sent > before


def test_details_cost_a_large_group_less_than_half() -> None:
    def cost(detail: bool) -> int:
        net = settled(48, LAN, 1, warm=60)
        before = net.bytes
        for name in net.names:
            net.do(name, lambda s, t: s.publish(bytes(500), t, detail=detail))
            net.run(0.1)
        net.run(10.0)
        return net.bytes - before

    assert cost(True) < 0.6 * cost(False)
