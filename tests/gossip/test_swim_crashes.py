"""Who is gone is found: by probes that nobody answers, and by the ends of connections."""

from __future__ import annotations

import math

import msgspec
import pytest

from ictp2p.gossip.messages import (
    MAX_MEMBERS,
    Dead,
    Digest,
    Gossip,
    MemberCleared,
    MemberFailed,
    MemberSuspected,
    Ping,
    PingRequest,
    Status,
    Suspect,
    SwimMessage,
)
from ictp2p.gossip.profile import SwimProfile
from ictp2p.gossip.suspicion import limits
from ictp2p.machine import Notice, Send
from tests.gossip.swim_group import LAN, keep_answering, notices, record, sends, settled, started

KNOWN_BY_ALL = {("lan", 4): 7.5, ("lan", 16): 10.5, ("wan", 4): 15.4, ("wan", 16): 20.5}
"""Published 99th percentiles, seconds from a crash until everybody knows: memberlist LAN, and our WAN set."""


# --- a crash


@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize(("name", "delay"), [("lan", 0.005), ("wan", 0.1)])
def test_crash_is_known_by_all_within_twice_the_published_p99(name: str, delay: float, size: int) -> None:
    profile: SwimProfile = getattr(SwimProfile, name)()
    for seed in range(30):
        net = settled(size, profile, seed, delay=delay, warm=8 * profile.probe_interval)
        assert net.agreed(), f"seed {seed}: {net.swims}"
        victim = net.rng.choice(net.names)
        crashed_at = net.now
        net.crash(victim)
        net.run(2 * KNOWN_BY_ALL[name, size])
        witnesses = {who for when, who, n in net.told(MemberFailed) if n.member == victim and when > crashed_at}
        assert witnesses == set(net.up()), f"seed {seed}"
        assert {n.member for _, _, n in net.told(MemberFailed)} == {victim}, f"seed {seed}: a false death"


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", ["local", "lan", "wan"])
def test_smallest_groups_find_a_crash_with_nobody_to_confirm_it(name: str, size: int) -> None:
    profile: SwimProfile = getattr(SwimProfile, name)()
    for seed in range(20):
        net = settled(size, profile, seed, delay=0.002, warm=8 * profile.probe_interval)
        net.crash("n00")
        # At worst a whole round of probes passes first, and the last of them fails.
        net.run((2 * size - 1 + 1) * profile.probe_interval + limits(size, profile)[0] + profile.gossip_interval)
        assert {who for _, who, n in net.told(MemberFailed) if n.member == "n00"} == set(net.up()), f"seed {seed}"


def test_survivors_of_two_crashes_at_once_agree() -> None:
    for seed in range(20):
        net = settled(5, LAN, seed)
        net.crash("n01")
        net.crash("n03")
        net.run(60)
        assert net.agreed()
        assert net.swims["n00"].alive() == ("n00", "n02", "n04")


def test_restarted_member_comes_back_in_its_new_incarnation() -> None:
    for seed in range(10):
        net = settled(4, LAN, seed)
        net.crash("n02")
        net.run(20)
        net.restart("n02", incarnation=1 << 32)
        net.do("n02", lambda s, t: s.meet("n00", t))
        net.run(3)
        assert net.agreed()
        assert all(s.members["n02"].record.incarnation == 1 << 32 for s in net.swims.values())


# --- evidence from connections


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_refused_connection_fails_a_member_within_a_second(size: int) -> None:
    for seed in range(20):
        net = settled(size, SwimProfile.local(), seed, delay=0.001, warm=2.0)
        net.crash("n01")
        crashed_at = net.now
        for name in net.up():
            net.do(name, lambda s, t: s.broken("n01", False, t))
        net.run(0.01)
        for name in net.up():
            net.do(name, lambda s, t: s.broken("n01", True, t))
        net.run(1.0 - (net.now - crashed_at))
        assert {who for _, who, _ in net.told(MemberFailed)} == set(net.up()), f"seed {seed}"
        suspected = [when for when, _, _ in net.told(MemberSuspected)]
        assert max(suspected) - crashed_at < 0.01


def test_broken_connection_is_a_suspicion_and_never_a_death() -> None:
    swim = started("a", "b", "c")
    effects = swim.broken("b", False, 10.0)
    assert notices(effects) == [MemberSuspected("b")]
    assert [(s.to, type(s.message)) for s in sends(effects)] == [("b", Ping), ("c", PingRequest)]
    assert Suspect("b", 1, "a") in sends(effects, Ping)[0].message.news  # type: ignore[attr-defined]
    assert swim.members["b"].status is Status.SUSPECT
    assert swim.suspects() == {"b"}
    assert "b" in swim.alive()
    assert swim.broken("b", False, 10.1) == [], "redials that fail do not alarm again"
    assert swim.broken("a", False, 10.0) == swim.broken("stranger", True, 10.0) == []


def test_reset_of_a_living_member_is_cleared_without_a_death() -> None:
    for seed in range(20):
        net = settled(4, LAN, seed)
        net.do("n00", lambda s, t: s.broken("n01", False, t))
        net.do("n01", lambda s, t: s.broken("n00", False, t))
        net.run(1.0)
        assert net.agreed()
        assert net.told(MemberCleared)
        assert not net.told(MemberFailed)


def test_late_refusal_counts_from_the_start_of_the_suspicion_but_not_as_our_own_lag() -> None:
    swim = started("a", "b", "c", "d", "e")
    swim.broken("b", False, 1.0)
    late = 1.0 + limits(5, LAN)[0] + 5.0
    for now in range(2, int(late)):
        keep_answering(swim, float(now), except_for="b")
    effects = swim.broken("b", True, late) + swim.handle_timeout(late)
    assert MemberFailed("b") in notices(effects)


def test_any_byte_heard_answers_a_probe() -> None:
    swim = started("a", "b")
    for now in range(1, 61):
        keep_answering(swim, float(now), except_for="nobody")
    assert swim.suspects() == frozenset()
    assert swim.health == 0


def test_silence_is_suspected_and_then_buried() -> None:
    swim = started("a", "b")
    seen: list[Notice] = []
    while (due := swim.next_timeout()) is not None and due < 10.0:
        seen += notices(swim.handle_timeout(due))
    assert seen == [MemberSuspected("b"), MemberFailed("b")]
    assert swim.alive() == ("a",)
    assert "b" in swim.members


def test_measured_round_trips_stretch_the_probe_within_reason() -> None:
    def suspected_after(srtt: float, rttvar: float) -> float:
        swim = started("a", "b")
        swim.measured("b", srtt, rttvar)
        while not swim.suspects():
            swim.handle_timeout(swim.next_timeout() or 0.0)
        return swim.members["b"].since

    usual = suspected_after(0.01, 0.001)
    assert usual <= 2 * LAN.probe_interval
    assert suspected_after(1.0, 0.25) == pytest.approx(usual - 1.0 + 2 * 2.0)
    assert suspected_after(1e9, 0.0) == pytest.approx(usual - 1.0 + 2 * 10 * LAN.probe_timeout)
    assert suspected_after(math.nan, 1.0) == suspected_after(-5.0, 0.0) == usual


def test_measurement_that_falls_again_restores_the_floor() -> None:
    swim, other = started("a", "b"), started("a", "b")
    swim.measured("b", 5.0, 0.0)
    swim.measured("b", 0.01, 0.0)
    for _ in range(5):
        assert swim.next_timeout() == other.next_timeout()
        now = swim.next_timeout() or 0.0
        assert swim.handle_timeout(now) == other.handle_timeout(now)


def test_workers_that_die_by_the_thousand_leave_digests_that_the_others_take() -> None:
    """Regression: those without a disk are others after each start, and were all named for an hour.

    A digest has room for so many, and whoever read one with more took it for a breach, and hung up.
    """
    swim = started("a", "b")
    for first in range(0, MAX_MEMBERS + 100, 100):
        names = [f"worker {number}" for number in range(first, first + 100)]
        swim.receive("b", Gossip(tuple(map(record, names))), 0.0)
        swim.receive("b", Gossip(tuple(Dead(name, 1, "b") for name in names)), 0.0)
    digests = list[Send]()
    while not digests:
        digests = sends(swim.handle_timeout(swim.next_timeout() or 0.0), Digest)
    for sent in digests:
        msgspec.msgpack.decode(msgspec.msgpack.encode(sent.message), type=SwimMessage)
