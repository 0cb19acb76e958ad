"""The contract of the machine: exchanges, what is published, errors, and the same run for the same seed."""

from __future__ import annotations

import pytest

from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.gossip.messages import (
    LAST_SEQUENCE,
    MAX_INCARNATION,
    MAX_PAYLOAD,
    Dead,
    Delta,
    Digest,
    Entry,
    Gossip,
    MemberFailed,
    MemberSuspected,
    Ping,
    Status,
    SwimState,
)
from tests.gossip.swim_group import LAN, machine, notices, record, sends, settled, started


def test_dead_merges_as_suspect_on_exchange() -> None:
    swim = started("a", "b", "c")
    effects = swim.receive("c", Digest((Entry("b", 1, 0, Status.DEAD), Entry("c", 1, 0, Status.ALIVE))), 1.0)
    assert MemberSuspected("b") in notices(effects)
    assert MemberFailed("b") not in notices(effects)
    effects = started("a", "b", "c").receive("c", Delta(verdicts=(Entry("b", 1, 0, Status.DEAD),)), 1.0)
    assert notices(effects) == [MemberSuspected("b")]


def test_equal_digest_is_not_answered() -> None:
    swim = started("a", "b")
    digest = sends(swim.meet("b", 1.0))[0].message
    assert swim.receive("b", digest, 1.0) == []


def test_publish_spreads_and_is_checked() -> None:
    net = settled(4, LAN, 1)
    net.do("n00", lambda s, t: s.publish(b"new", t))
    net.do("n00", lambda s, t: s.publish(b"new", t))
    net.run(2)
    assert all(s.members["n00"].record.version == (1, 1) for s in net.swims.values())
    with pytest.raises(LocalProtocolError, match=str(MAX_PAYLOAD + 1)):
        net.swims["n00"].publish(b"x" * (MAX_PAYLOAD + 1), net.now)
    with pytest.raises(LocalProtocolError, match="passive"):
        machine("p").publish(b"", 0.0)
    with pytest.raises(LocalProtocolError, match="range"):
        machine("p").start(b"", MAX_INCARNATION + 1, 0.0)


def test_foreign_message_is_a_protocol_error() -> None:
    with pytest.raises(RemoteProtocolError, match="SwimState from b"):
        started("a", "b").receive("b", SwimState(()), 1.0)


def test_message_under_our_own_name_is_ignored() -> None:
    assert started("a", "b").receive("a", Ping(1), 1.0) == []


def test_the_dead_and_the_departed_are_forgotten_in_the_end() -> None:
    swim = started("a", "b", "c")
    swim.receive("c", Gossip((Dead("b", 1, "c"), record("c", 1, LAST_SEQUENCE))), 1.0)
    for now in range(0, int(LAN.forget_after) + 120, 30):
        swim.handle_timeout(float(now))
    assert sorted(swim.members) == ["a"]
    assert swim.receive("d", Gossip((record("c", 1, LAST_SEQUENCE),)), 5000.0) == [], "a goodbye brings nobody back"


def test_repr_tells_the_essentials() -> None:
    swim = started("a", "b", "c")
    assert repr(swim) == "<Swim a incarnation=1 present=3/3 health=0>"
    swim.stop()
    assert repr(swim) == "<Swim a passive present=2/2 health=0>"


def test_same_seed_gives_the_same_run() -> None:
    def trace(seed: int) -> tuple[object, ...]:
        net = settled(5, LAN, seed, loss=0.1, warm=60)
        return net.sent, net.bytes, tuple((t, who, repr(n)) for t, who, n in net.log)

    assert trace(3) == trace(3) != trace(4)
