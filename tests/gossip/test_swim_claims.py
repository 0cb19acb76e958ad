"""Who may say what of whom: records, accusations, refutations, and what is done about each."""

from __future__ import annotations

import hashlib
import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.messages import (
    MAX_INCARNATION,
    Ack,
    Dead,
    Delta,
    Digest,
    Displaced,
    Doubled,
    Gossip,
    MemberCleared,
    MemberUpdated,
    Ping,
    Record,
    Sight,
    Status,
    Suspect,
    SwimState,
)
from ictp2p.gossip.swim import Swim
from ictp2p.machine import Send
from tests.gossip.swim_group import LAN, genuine, machine, notices, record, sealed, sends, settled, started


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
        while len(pinged) < 2 * (len(old) + 1):  # every second turn belongs to the charge
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
