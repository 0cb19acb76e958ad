"""Leaving: final in its incarnation, told to everybody, and never taken for a failure."""

from __future__ import annotations

from ictp2p.gossip.messages import (
    LAST_SEQUENCE,
    Dead,
    Gossip,
    MemberFailed,
    MemberJoined,
    MemberLeft,
    Ping,
    Status,
    Suspect,
)
from tests.gossip.swim_group import LAN, genuine, notices, record, sends, settled, started


def test_leaving_is_never_reported_as_failure() -> None:
    for seed in range(20):
        for size in (2, 4, 16):
            # Of two, nobody could repeat a goodbye that is lost; its connection delivers it before it ends.
            net = settled(size, LAN, seed, loss=0.1 if size > 2 else 0.0)
            net.log.clear()
            net.do("n01", lambda s, t: s.leave(t))
            net.run(0.5)
            for name in net.names:
                net.do(name, lambda s, t: s.broken("n01", True, t))
            net.run(60)
            others = [n for n in net.names if n != "n01"]
            assert [n for _, _, n in net.told(MemberFailed) if n.member == "n01"] == [], f"seed {seed}"
            assert {who for _, who, _ in net.told(MemberLeft)} == set(others), f"seed {seed}"
            assert all("n01" not in net.swims[name].alive() for name in others)


def test_goodbye_is_final_in_its_incarnation_and_open_for_the_next() -> None:
    swim = started("a", "b")
    goodbye = record("b", 1, LAST_SEQUENCE)
    assert notices(swim.receive("b", Gossip((goodbye,)), 1.0)) == [MemberLeft("b")]
    assert swim.receive("c", Gossip((Suspect("b", 1, "c"), Dead("b", 1, "c"), record("b", 1, 5))), 2.0) == []
    assert swim.broken("b", True, 2.0) == []
    assert swim.members["b"].status is Status.LEFT
    back = record("b", 2)
    assert notices(swim.receive("b", Gossip((back,)), 3.0)) == [MemberJoined("b", back)]


def test_goodbye_of_a_suspect_and_of_the_dead_is_told() -> None:
    swim = started("a", "b", "c", "d")
    swim.broken("b", False, 1.0)
    swim.receive("d", Gossip((Dead("c", 1, "d"),)), 1.0)
    effects = swim.receive("d", Gossip((record("b", 1, LAST_SEQUENCE), record("c", 1, LAST_SEQUENCE))), 2.0)
    assert notices(effects) == [MemberLeft("b"), MemberLeft("c")]
    assert swim.suspects() == frozenset()


def test_leaver_tells_everybody_keeps_its_payload_and_falls_silent() -> None:
    swim = started("a", "b", "c")
    swim.publish(b"card", 0.5)
    effects = swim.leave(1.0)
    assert [s.to for s in sends(effects, Gossip)] == ["b", "c"]
    goodbye = sends(effects)[0].message.news[0]  # type: ignore[attr-defined]
    assert goodbye.left
    assert goodbye.payload == b"card"
    assert genuine(goodbye)
    assert not swim.active
    assert swim.next_timeout() is None
    assert swim.receive("b", Ping(1), 2.0) == []
    assert swim.leave(2.0) == []
