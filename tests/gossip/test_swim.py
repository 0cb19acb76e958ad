"""The machine among its equals: N of them on a network of virtual time that loses, delays, partitions and pauses."""

from __future__ import annotations

import hashlib
import heapq
import math
import random
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.errors import LocalProtocolError, RemoteProtocolError
from ictp2p.gossip.messages import (
    LAST_SEQUENCE,
    MAX_INCARNATION,
    MAX_PAYLOAD,
    Ack,
    Dead,
    Delta,
    Digest,
    Displaced,
    Doubled,
    Entry,
    Gossip,
    MemberCleared,
    MemberFailed,
    MemberJoined,
    MemberLeft,
    MemberSuspected,
    MemberUpdated,
    Nack,
    Ping,
    PingRequest,
    Record,
    Sight,
    Status,
    Suspect,
    SwimMessage,
    SwimState,
)
from ictp2p.gossip.profile import SwimProfile
from ictp2p.gossip.suspicion import limits
from ictp2p.gossip.swim import Swim
from ictp2p.machine import Effects, Message, Notice, Send

LAN = SwimProfile.lan()
KNOWN_BY_ALL = {("lan", 4): 7.5, ("lan", 16): 10.5, ("wan", 4): 15.4, ("wan", 16): 20.5}
"""Published 99th percentiles, seconds from a crash until everybody knows: memberlist LAN, and our WAN set."""

_CODEC = msgspec.msgpack.Decoder(SwimMessage)


def sign(record: Record, key: bytes) -> bytes:
    return hashlib.blake2b(record.statement("test"), key=key, digest_size=16).digest()


def sealed(record: Record, key: bytes | None = None) -> Record:
    key = key or record.member.encode()
    return msgspec.structs.replace(record, key=key, signature=sign(record, key))


def genuine(record: Record) -> bool:
    """A key may sign for the member it begins with, so that a member may have several keys."""
    return record.key.startswith(record.member.encode()) and record.signature == sign(record, record.key)


def machine(me: str = "a", profile: SwimProfile = LAN, seed: int = 0, key: bytes | None = None) -> Swim:
    return Swim(me, profile, random.Random(seed), seal=lambda r: sealed(r, key), verify=genuine)


def record(member: str, incarnation: int = 1, sequence: int = 0, payload: bytes = b"") -> Record:
    return sealed(Record(member, incarnation, sequence, payload))


def sends(effects: Effects, kind: type[Message] | None = None) -> list[Send]:
    return [e for e in effects if isinstance(e, Send) and (kind is None or isinstance(e.message, kind))]


def notices(effects: Effects) -> list[Notice]:
    return [e for e in effects if isinstance(e, Notice)]


def started(me: str = "a", *others: str, profile: SwimProfile = LAN) -> Swim:
    """An active machine that knows `others`, each alive in incarnation 1, at time 0."""
    swim = machine(me, profile)
    swim.start(b"", 1, 0.0)
    if others:
        swim.receive(others[0], Gossip(tuple(record(name) for name in others)), 0.0)
    return swim


class Net:
    """N machines, one queue of events in virtual time. The same seed gives the same run."""

    def __init__(self, size: int, profile: SwimProfile, seed: int, *, delay: float = 0.02, loss: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.delay = delay
        self.loss = loss
        self.names = [f"n{i:02}" for i in range(size)]
        self.swims = {name: machine(name, profile, self.rng.getrandbits(32)) for name in self.names}
        self.log: list[tuple[float, str, Notice]] = []
        self.sent = 0
        self.bytes = 0
        self.crashed: set[str] = set()
        self.paused: dict[str, list[Callable[[], Effects]]] = {}
        self.blocked: Callable[[str, str], bool] = lambda _from, _to: False
        self.watch: Callable[[str], None] = lambda _name: None
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._armed: dict[str, float] = {}

    def start(self) -> None:
        """Everybody starts, and is connected to everybody."""
        for name in self.names:
            self.do(name, lambda s, t: s.start(b"hello", 1, t))
        for name in self.names:
            for other in self.names:
                if name < other:
                    self.do(name, lambda s, t, o=other: s.meet(o, t))

    def do(self, name: str, action: Callable[[Swim, float], Effects]) -> None:
        """Give one input to one machine now (after its pause, if it is paused)."""
        if name in self.crashed:
            return
        if name in self.paused:
            self.paused[name].append(lambda: action(self.swims[name], self.now))
            return
        self._execute(name, action(self.swims[name], self.now))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, event = heapq.heappop(self._queue)
            event()
        self.now = end

    def crash(self, name: str) -> None:
        self.crashed.add(name)

    def restart(self, name: str, incarnation: int) -> None:
        self.crashed.discard(name)
        self.swims[name] = machine(name, LAN, self.rng.getrandbits(32))
        self._armed.pop(name, None)
        self.do(name, lambda s, t: s.start(b"again", incarnation, t))

    def pause(self, name: str) -> None:
        self.paused[name] = []

    def resume(self, name: str) -> None:
        for action in self.paused.pop(name):
            self._execute(name, action())
        self._execute(name, self.swims[name].handle_timeout(self.now))

    def told(self, kind: type[Notice]) -> list[tuple[float, str, Any]]:
        return [entry for entry in self.log if isinstance(entry[2], kind)]

    def up(self) -> list[str]:
        return [name for name in self.names if name not in self.crashed]

    def agreed(self) -> bool:
        """Whether all who are up hold equal views of who is there, with equal records, and suspect nobody."""
        views = {
            (s.alive(), tuple(s.members[n].record.version for n in s.alive()), s.suspects())
            for s in (self.swims[name] for name in self.up())
        }
        return len(views) == 1 and not next(iter(views))[2]

    def _execute(self, name: str, effects: Effects) -> None:
        self.watch(name)
        for effect in effects:
            if isinstance(effect, Send):
                self._send(name, effect.to, effect.message)
            elif isinstance(effect, Notice):
                self.log.append((self.now, name, effect))
        self._arm(name)

    def _send(self, source: str, to: str, message: Message) -> None:
        wire = msgspec.msgpack.encode(message)
        self.sent += 1
        self.bytes += len(wire)
        if self.rng.random() < self.loss or self.blocked(source, to):
            return
        arrival = _CODEC.decode(wire)
        latency = self.delay * (0.5 + self.rng.random())
        self._at(self.now + latency, lambda: self.do(to, lambda s, t: s.receive(source, arrival, t)))

    def _arm(self, name: str) -> None:
        due = self.swims[name].next_timeout()
        if due is None or name in self.crashed:
            self._armed.pop(name, None)
        elif self._armed.get(name) != due:
            self._armed[name] = due
            self._at(max(due, self.now), lambda: self._fire(name, due))

    def _fire(self, name: str, due: float) -> None:
        if self._armed.get(name) != due or name in self.paused or name in self.crashed:
            return
        del self._armed[name]
        self._execute(name, self.swims[name].handle_timeout(self.now))

    def _at(self, when: float, event: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._queue, (when, self._serial, event))


def settled(
    size: int, profile: SwimProfile, seed: int, *, warm: float = 8.0, loss: float = 0.0, **options: float
) -> Net:
    """A group that has met (over fresh connections, which lose nothing) and then run for `warm` seconds."""
    net = Net(size, profile, seed, **options)
    net.start()
    net.run(1.0)
    net.loss = loss
    net.run(warm)
    return net


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


# --- noise, pauses, partitions


@pytest.mark.parametrize("size", [2, 3, 4, 16])
@pytest.mark.parametrize("name", ["local", "lan", "wan"])
def test_ten_percent_loss_buries_nobody(name: str, size: int) -> None:
    profile: SwimProfile = getattr(SwimProfile, name)()
    for seed in range(4 if size == 16 else 10):
        net = settled(size, profile, seed, delay=0.01, warm=200 * profile.probe_interval, loss=0.1)
        assert net.told(MemberFailed) == [], f"seed {seed}"
        net.loss = 0.0
        net.run(20 * profile.probe_interval)
        assert net.agreed(), f"seed {seed}"


@pytest.mark.parametrize("size", [3, 5])
def test_incarnations_never_fall_and_are_raised_by_their_owner_only(size: int) -> None:
    for seed in range(10):
        net = Net(size, LAN, seed)
        seen: dict[tuple[str, str], tuple[int, int]] = {}

        def check(viewer: str, net: Net = net, seen: dict[tuple[str, str], tuple[int, int]] = seen) -> None:
            for name, member in net.swims[viewer].members.items():
                own = net.swims[name].record
                assert own is not None
                assert seen.get((viewer, name), (0, 0)) <= member.record.version <= own.version
                seen[viewer, name] = member.record.version

        net.watch = check
        net.start()
        net.run(1.0)
        net.loss = 0.2
        for step in range(40):
            speaker = net.rng.choice(net.names)
            net.do(speaker, lambda s, t, step=step: s.publish(b"step %d" % step, t))
            net.run(3)
        assert max(s.record.incarnation for s in net.swims.values() if s.record) > 1, "nobody ever refuted: too calm"


def test_incarnation_stays_when_nobody_accuses() -> None:
    net = settled(8, LAN, 0, warm=300)
    assert {s.record.version for s in net.swims.values() if s.record} == {(1, 0)}
    assert net.told(MemberSuspected) == []


@pytest.mark.parametrize("name", ["lan", "wan"])
def test_stopped_process_is_found_and_refutes_when_it_goes_on(name: str) -> None:
    profile: SwimProfile = getattr(SwimProfile, name)()
    for size in (2, 4, 6):
        for seed in range(10):
            net = settled(size, profile, seed, warm=8 * profile.probe_interval)
            net.pause("n01")
            round_of_probes = 2 * size * profile.probe_interval
            net.run(round_of_probes + limits(size, profile)[1])
            others = [n for n in net.names if n != "n01"]
            assert {who for _, who, n in net.told(MemberFailed) if n.member == "n01"} == set(others)
            net.run(60)
            net.resume("n01")
            net.run(6 * profile.probe_interval)
            assert net.agreed(), f"size {size} seed {seed}: {net.swims}"
            assert len(net.swims["n00"].alive()) == size
            assert {n.member for _, _, n in net.told(MemberFailed)} == {"n01"}, "the stopped one buried somebody"


def test_pauses_shorter_than_the_shortest_suspicion_bury_nobody() -> None:
    for seed in range(20):
        net = settled(4, LAN, seed)
        for _ in range(10):
            victim = net.rng.choice(net.names)
            net.pause(victim)
            net.run(0.9 * limits(4, LAN)[0])
            net.resume(victim)
            net.run(5)
        assert net.told(MemberFailed) == [], f"seed {seed}"


@pytest.mark.parametrize(("left", "size"), [(1, 2), (1, 3), (1, 4), (2, 4), (3, 8), (8, 16)])
def test_views_are_equal_within_three_exchanges_after_a_partition_heals(left: int, size: int) -> None:
    for seed in range(6):
        net = settled(size, LAN, seed)
        side = set(net.names[:left])
        net.blocked = lambda a, b, side=side: (a in side) != (b in side)
        net.run(90)
        assert net.swims["n00"].alive() == tuple(sorted(side))
        net.do("n00", lambda s, t: s.publish(b"meanwhile", t))
        net.run(10)
        net.blocked = lambda _a, _b: False
        net.run(3 * LAN.push_pull_interval)
        assert net.agreed(), f"seed {seed}: {net.swims}"
        assert all(s.alive() == tuple(net.names) for s in net.swims.values())
        assert all(s.members["n00"].record.payload == b"meanwhile" for s in net.swims.values())


def test_healing_buries_nobody_again() -> None:
    for seed in range(20):
        net = settled(4, LAN, seed)
        net.blocked = lambda a, b: (a < "n02") != (b < "n02")
        net.run(60)
        net.blocked = lambda _a, _b: False
        healed_at = net.now
        net.do("n00", lambda s, t: s.meet("n02", t))
        net.run(60)
        assert net.agreed()
        assert [n for when, _, n in net.told(MemberFailed) if when > healed_at] == [], f"seed {seed}"


def test_one_blocked_pair_among_four_is_bridged_by_helpers() -> None:
    for seed in range(20):
        net = settled(4, LAN, seed)
        net.blocked = lambda a, b: {a, b} == {"n00", "n01"}
        net.run(120)
        assert net.told(MemberSuspected) == [], f"seed {seed}"
        assert [s.health for s in net.swims.values()] == [0] * 4


def test_only_helper_of_three_is_always_asked() -> None:
    """Drawing helpers at random offsets misses the only one now and then; then a blocked pair would be suspected."""
    for seed in range(100):
        swim = machine("a", LAN, seed)
        swim.start(b"", 1, 0.0)
        swim.receive("b", Gossip((record("b"), record("c"))), 0.0)
        effects: Effects = []
        while not sends(effects, PingRequest) and not notices(effects):
            effects = swim.handle_timeout(swim.next_timeout() or 0.0)
        assert len(sends(effects, PingRequest)) == 1, "it was asked before anybody was suspected"


# --- goodbyes


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


def keep_answering(swim: Swim, now: float, except_for: str) -> None:
    """Run `swim` until `now`, with every probe answered but those of one member."""
    while (due := swim.next_timeout()) is not None and due <= now:
        for send in sends(swim.handle_timeout(due), Ping):
            if send.to != except_for:
                swim.heard(send.to, due)


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


# --- our own lag


def test_late_machine_blames_itself() -> None:
    swim = started("a", "b")
    due = swim.next_timeout() or 0.0
    swim.handle_timeout(due)
    while not sends(effects := swim.handle_timeout(swim.next_timeout() or 0.0), Ping):
        pass
    asked_at = max(due, (swim.next_timeout() or 0.0) - LAN.probe_timeout)
    resumed = asked_at + 100.0
    effects = swim.handle_timeout(resumed)
    assert not notices(effects)
    assert swim.suspects() == frozenset()
    assert swim.health == 1
    for _ in range(5):
        assert not notices(swim.handle_timeout(resumed + 0.01)), "a whole probe timeout is left to read the answer"
    swim.heard("b", resumed + 0.1)
    assert swim.health == 0


def test_lag_told_by_the_driver_is_not_counted_twice() -> None:
    swim = started("a", "b")
    while not sends(swim.handle_timeout(swim.next_timeout() or 0.0), Ping):
        pass
    resumed = (swim.next_timeout() or 0.0) + 30.0
    swim.lagged(30.0, resumed)
    swim.lagged(30.0, resumed)
    swim.handle_timeout(resumed)
    assert swim.health == 1


def test_small_lag_is_nothing() -> None:
    swim = started("a", "b")
    swim.lagged(LAN.probe_timeout / 2, 10.0)
    swim.lagged(math.nan, 10.0)
    assert swim.health == 0


def test_running_suspicion_is_extended_by_our_own_pause() -> None:
    swim = started("a", "b")
    swim.broken("b", False, 1.0)
    verdict = 1.0 + limits(2, LAN)[0]
    assert not any(isinstance(n, MemberFailed) for n in notices(swim.handle_timeout(verdict + 50)))
    assert swim.suspects() == {"b"}


# --- who may say what


def test_forged_and_unsigned_records_are_ignored() -> None:
    swim = started("a", "b")
    forged = Record("b", 9, 0, b"evil", b"b", b"\0" * 16)
    by_another = sealed(Record("b", 9, 0, b"evil"), b"mallory")
    for fake in (forged, Record("b", 9, 0, b"evil"), by_another, Record("new", 1, 0, b""), record_of_other_scope()):
        before = dict(swim.members)
        swim_effects = swim.receive("b", Gossip((fake,)), 1.0) + swim.receive("b", Delta((fake,)), 1.0)
        assert swim_effects == []
        assert dict(swim.members) == before
    passive = machine("p")
    passive.absorb(SwimState((Sight(forged, Status.ALIVE),)), 1.0)
    assert dict(passive.members) == {}


def record_of_other_scope() -> Record:
    honest = Record("b", 9, 0, b"")
    signature = hashlib.blake2b(honest.statement("elsewhere"), key=b"b", digest_size=16).digest()
    return msgspec.structs.replace(honest, key=b"b", signature=signature)


def test_forged_record_is_not_passed_on() -> None:
    net = settled(4, LAN, 0)
    net.do("n00", lambda s, t: s.receive("n01", Gossip((Record("n02", 99, 0, b"evil"),)), t))
    net.run(60)
    assert all(s.members["n02"].record.incarnation == 1 for s in net.swims.values())


def test_accusation_of_an_unknown_incarnation_is_not_believed_and_its_record_is_asked_for() -> None:
    swim = started("a", "b", "c")
    for accusation in (Suspect("b", 2, "c"), Dead("b", 2, "c"), Suspect("stranger", 1, "c")):
        effects = swim.receive("c", Gossip((accusation,)), 1.0)
        assert effects == [Send("c", Delta(wanted=(accusation.member,)))]
    assert swim.members["b"].status is Status.ALIVE
    assert "stranger" not in swim.members
    assert swim.receive("c", Gossip((Suspect("b", 0, "c"), Dead("b", 0, "c"))), 1.0) == []


def test_accusation_of_ourselves_is_refuted_in_its_incarnation_only() -> None:
    swim = started("a", "b")
    effects = swim.receive("b", Gossip((Suspect("a", 1, "b"),)), 1.0)
    assert swim.record is not None
    assert swim.record.incarnation == 2
    assert swim.health == 1
    assert effects == [Send("b", Gossip((swim.record,)))]
    stale = swim.receive("b", Gossip((Dead("a", 1, "b"),)), 1.0)
    assert stale == [Send("b", Gossip((swim.record,)))]
    assert swim.record.incarnation == 2
    future = swim.receive("b", Gossip((Dead("a", MAX_INCARNATION, "b"),)), 1.0)
    assert [type(s.message) for s in sends(future)] == [Digest]
    assert swim.record.incarnation == 2


def test_a_newer_record_by_our_own_key_is_told_and_not_outbid() -> None:
    swim = started("a", "b")
    twin = record("a", 7, 3)
    assert swim.receive("b", Delta((twin,)), 1.0) == [Doubled(twin)]
    assert swim.record is not None
    assert swim.record.incarnation == 1


@given(
    lives=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    changes=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_of_two_processes_with_one_identity_exactly_one_finds_itself_doubled(
    lives: tuple[int, int], changes: tuple[int, int]
) -> None:
    twins = []
    for number, (life, times) in enumerate(zip(lives, changes, strict=True)):
        swim = Swim("a", LAN, random.Random(number), seal=sealed, verify=genuine)
        swim.start(b"%d" % number, life, 0.0)
        for change in range(times):
            swim.publish(b"%d, change %d" % (number, change), 0.0)
        twins.append(swim)
    records = [swim.record for swim in twins]
    found = [swim.receive("b", Gossip((other,)), 1.0) for swim, other in zip(twins, reversed(records), strict=True)]
    assert sum(effects != [] for effects in found) == 1


def test_forged_record_of_ourselves_neither_raises_us_nor_passes_for_a_successor() -> None:
    swim = started("a", "b")
    for key in (b"a", b"a-second-key"):
        forged = Record("a", 9, 0, b"", key, b"\0" * 16)
        assert swim.receive("b", Gossip((forged,)), 1.0) == []
    assert swim.record is not None
    assert swim.record.incarnation == 1


def test_new_payload_in_the_accused_incarnation_clears_nothing() -> None:
    swim = started("a", "b", "c", "d")
    swim.broken("b", False, 1.0)
    swim.receive("d", Gossip((Dead("c", 1, "d"),)), 1.0)
    update = record("b", 1, 1)
    assert notices(swim.receive("d", Gossip((update, record("c", 1, 1))), 1.0)) == [MemberUpdated("b", update)]
    assert (swim.members["b"].status, swim.members["c"].status) == (Status.SUSPECT, Status.DEAD)


def test_probe_accuses_the_incarnation_that_it_asked() -> None:
    swim = started("a", "b")
    while not sends(swim.handle_timeout(swim.next_timeout() or 0.0), Ping):
        pass
    swim.receive("c", Gossip((record("b", 2),)), swim.next_timeout() or 0.0)
    for _ in range(4):
        swim.handle_timeout(swim.next_timeout() or 0.0)
        assert swim.suspects() == frozenset()


def drain(swim: Swim, now: float) -> float:
    """Let all news be repeated as often as it may; return the time."""
    for _ in range(40):
        now += LAN.gossip_interval
        swim.handle_timeout(now)
        swim.heard("b", now)
        swim.heard("c", now)
        swim.heard("d", now)
    return now


def test_the_dead_that_speak_are_told_long_after_the_news_was_spent() -> None:
    swim = started("a", "b", "c", "d")
    swim.receive("c", Gossip((Dead("b", 1, "c"),)), 0.0)
    now = drain(swim, 0.0)
    assert sends(swim.receive("b", Ping(1), now)) == [Send("b", Ack(1, (Dead("b", 1, "a"),)))]


def test_news_goes_to_the_lately_dead_as_well_and_to_nobody_long_dead() -> None:
    def audience(dead_for: float) -> set[str]:
        swim = started("a", "b")
        swim.receive("b", Gossip((Dead("b", 1, "c"),)), 0.0)
        for now in range(int(dead_for)):
            swim.handle_timeout(float(now))
        swim.publish(b"new", dead_for)
        return {s.to for s in sends(swim.handle_timeout(dead_for), Gossip)}

    assert audience(5.0) == {"b"}
    assert audience(LAN.gossip_to_dead + 5.0) == set()


def test_every_wanted_confirmation_is_passed_on() -> None:
    swim = started("a", "b", "c", "d", "e", "f")
    heard: list[set[str]] = []
    now = 0.0
    for origin in ("c", "d", "e", "f", "c"):
        swim.receive("c", Gossip((Suspect("b", 1, origin),)), now)
        now += LAN.gossip_interval
        told = [n for s in sends(swim.handle_timeout(now), Gossip) for n in s.message.news]  # type: ignore[attr-defined]
        heard.append({n.origin for n in told if isinstance(n, Suspect)})
    assert heard[:3] == [{"c"}, {"d"}, {"e"}]
    assert heard[3] <= {"e"}, "a third confirmation is more than is wanted"


def test_newcomer_is_probed_in_the_current_round() -> None:
    for seed in range(20):
        swim = machine("a", LAN, seed)
        swim.start(b"", 1, 0.0)
        old = [f"m{i}" for i in range(8)]
        swim.receive("m0", Gossip(tuple(record(name) for name in old)), 0.0)
        pinged: list[str] = []
        while len(pinged) < len(old) + 1:
            if len(pinged) == 1:
                swim.receive("m0", Gossip((record("new"),)), swim.next_timeout() or 0.0)
            now = swim.next_timeout() or 0.0
            for send in sends(swim.handle_timeout(now), Ping):
                pinged.append(send.to)
                swim.heard(send.to, now)
        assert "new" in pinged, f"seed {seed}"


def test_successor_with_another_key_is_reported_and_not_outbid() -> None:
    swim = started("a", "b")
    successor = sealed(Record("a", 5, 0, b""), b"a-second-key")
    assert swim.receive("b", Gossip((successor,)), 1.0) == [Displaced(successor)]
    assert swim.receive("b", Gossip((successor,)), 2.0) == []
    assert swim.record is not None
    assert swim.record.incarnation == 1
    assert swim.members["a"].record is swim.record


def test_ping_of_a_suspect_tells_it_and_its_answer_clears_it() -> None:
    accuser, accused = started("a", "b", "c"), started("b", "a", "c")
    accuser.broken("b", False, 1.0)
    ping = next(s for s in sends(accuser.handle_timeout(accuser.next_timeout() or 0.0)) if s.to == "b")
    answers = sends(accused.receive("a", ping.message, 1.1))
    cleared = [e for s in answers for e in accuser.receive("b", s.message, 1.2)]
    assert MemberCleared("b") in cleared
    assert accuser.suspects() == frozenset()


def test_stranger_that_pings_is_answered_and_asked_who_it_is() -> None:
    swim = started("a")
    effects = swim.receive("z", Ping(5), 1.0)
    assert [type(s.message) for s in sends(effects)] == [Ack, Delta]
    assert sends(effects)[1].message == Delta(wanted=("z",))


# --- helpers


def test_helper_passes_the_answer_on() -> None:
    helper = started("h", "a", "b")
    asked = sends(helper.receive("a", PingRequest(41, "b"), 1.0), Ping)
    number = asked[0].message.number  # type: ignore[attr-defined]
    effects = helper.receive("b", Ack(number), 1.1)
    assert [(s.to, s.message.number) for s in sends(effects, Ack)] == [("a", 41)]  # type: ignore[attr-defined]


def test_helper_says_when_the_target_is_silent_to_it_as_well_and_a_late_answer_still_counts() -> None:
    helper = started("h", "a", "b")
    number = sends(helper.receive("a", PingRequest(41, "b"), 1.0), Ping)[0].message.number  # type: ignore[attr-defined]
    said: list[Send] = []
    while (due := helper.next_timeout()) is not None and due <= 1.0 + LAN.probe_timeout:
        said += sends(helper.handle_timeout(due), Nack)
    assert said == [Send("a", Nack(41))]
    assert sends(helper.receive("b", Ack(number), 1.6), Ack)[0].to == "a"


def test_helper_refuses_at_once_whom_it_does_not_know_and_answers_for_itself() -> None:
    helper = started("h", "a")
    assert helper.receive("a", PingRequest(1, "stranger"), 1.0) == [Send("a", Nack(1))]
    assert [type(s.message) for s in sends(helper.receive("a", PingRequest(2, "h"), 1.0))] == [Ack]


def test_flood_of_requests_is_bounded() -> None:
    helper = started("h", "a", "b")
    pings = [p for i in range(1000) for p in sends(helper.receive("a", PingRequest(i, "b"), 1.0), Ping)]
    assert len(pings) == 256


def test_health_falls_by_the_helpers_that_said_nothing() -> None:
    def health_after(nacks: int) -> int:
        swim = started("a", "b", "c", "d", "e")
        while True:
            effects = swim.handle_timeout(swim.next_timeout() or 0.0)
            requests = sends(effects, PingRequest)
            for request in requests[:nacks]:
                swim.receive(request.to, Nack(request.message.number), 1.0)  # type: ignore[attr-defined]
            if swim.suspects():
                return swim.health

    assert [health_after(n) for n in range(4)] == [3, 2, 1, 0]


# --- passive copies


def test_passive_copy_mirrors_and_answers_nobody() -> None:
    leader = started("a", "b", "c", "d")
    leader.broken("b", False, 1.0)
    leader.receive("d", Gossip((Dead("c", 1, "d"),)), 1.0)
    copy = machine("a", seed=1)
    effects = copy.absorb(leader.state(), 2.0)
    assert [type(n) for n in notices(effects)] == [MemberJoined, MemberSuspected, MemberJoined]
    assert copy.alive() == ("b", "d")
    assert copy.suspects() == {"b"}
    assert copy.members["c"].status is Status.DEAD
    assert copy.absorb(leader.state(), 3.0) == [], "nothing new, no notices"
    assert copy.receive("b", Ping(1), 3.0) == copy.handle_timeout(1e9) == copy.meet("b", 3.0) == []
    assert copy.broken("b", True, 3.0) == copy.heard("b", 3.0) == []
    assert copy.next_timeout() is None
    leader.receive("b", Gossip((record("b", 2),)), 4.0)
    leader.receive("d", Gossip((Dead("d", 1, "b"),)), 4.0)
    effects = copy.absorb(leader.state(), 4.0)
    assert notices(effects) == [MemberCleared("b"), MemberUpdated("b", record("b", 2)), MemberFailed("d")]


def test_passive_copy_keeps_what_is_newer() -> None:
    copy = machine("x")
    copy.absorb(SwimState((Sight(record("b", 2), Status.ALIVE),)), 1.0)
    assert copy.absorb(SwimState((Sight(record("b", 1), Status.DEAD),)), 2.0) == []
    assert copy.members["b"].status is Status.ALIVE


def test_copy_that_starts_speaks_in_a_greater_incarnation_and_chases_inherited_suspicions() -> None:
    leader = started("a", "b", "c")
    leader.broken("b", False, 1.0)
    heir = machine("a", key=b"a-heir")
    heir.absorb(leader.state(), 2.0)
    heir.start(b"mine", 1, 3.0)
    assert heir.record is not None
    assert heir.record.incarnation == 2
    assert "a" in heir.members
    assert heir.alive() == ("a", "b", "c")
    seen: list[Notice] = []
    while (due := heir.next_timeout()) is not None and due < 3.0 + limits(3, LAN)[1] + 1:
        seen += notices(heir.handle_timeout(due))
    assert MemberFailed("b") in seen


def test_stop_and_start_again_raises_the_incarnation() -> None:
    swim = started("a", "b")
    swim.stop()
    assert swim.alive() == ("b",)
    assert "a" not in swim.members
    assert swim.record is None
    swim.start(b"", 1, 5.0)
    assert swim.record is not None
    assert swim.record.incarnation == 2
    swim.start(b"", 1, 6.0)
    assert swim.record.incarnation == 3


def test_active_machine_takes_a_state_as_evidence() -> None:
    swim = started("a", "b")
    sights = (Sight(record("b"), Status.DEAD), Sight(record("c"), Status.ALIVE), Sight(record("a"), Status.DEAD))
    effects = swim.absorb(SwimState(sights), 1.0)
    assert notices(effects) == [MemberSuspected("b"), MemberJoined("c", record("c"))]
    assert swim.record is not None
    assert swim.record.incarnation == 2


# --- the rest of the contract


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


# --- any schedule


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(2, 6),
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.1, 0.3]),
    plan=st.lists(
        st.tuples(st.sampled_from(["cut", "heal", "pause", "break", "refuse", "publish", "lag"]), st.integers(0, 5)),
        max_size=10,
    ),
)
def test_after_any_trouble_everybody_agrees_again(
    size: int, seed: int, loss: float, plan: list[tuple[str, int]]
) -> None:
    net = settled(size, LAN, seed, loss=loss)
    for verb, number in plan:
        name = net.names[number % size]
        other = net.names[(number + 1) % size]
        if verb == "cut":
            net.blocked = lambda a, b, n=number % size: (a <= net.names[n]) != (b <= net.names[n])
        elif verb == "heal":
            net.blocked = lambda _a, _b: False
        elif verb == "pause":
            net.pause(name)
        elif verb == "publish":
            net.do(name, lambda s, t, n=number: s.publish(b"%d" % n, t))
        elif verb == "lag":
            net.do(name, lambda s, t: (s.lagged(2.0, t), [])[1])
        else:
            net.do(name, lambda s, t, o=other, r=verb == "refuse": s.broken(o, r, t))
        net.run(net.rng.random() * 20)
        for stopped in list(net.paused):
            net.resume(stopped)
    net.blocked = lambda _a, _b: False
    net.loss = 0.0
    net.run(3 * LAN.push_pull_interval)
    assert net.agreed(), net.swims
    assert len(net.swims["n00"].alive()) == size


# --- what it costs beside a training thread


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
