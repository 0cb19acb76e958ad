"""Everybody is watched, by one member always and by a few in doubt; and what follows for the time of a verdict."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ictp2p.core.overlay import Overlay
from ictp2p.gossip.guards import GUARDS, Guards
from ictp2p.gossip.messages import MemberFailed, MemberSuspected, Ping, Record, Status
from ictp2p.gossip.profile import SwimProfile
from ictp2p.gossip.suspicion import limits
from ictp2p.gossip.table import Table
from ictp2p.types import ClusterId
from tests.gossip.swim_group import LAN, Net, settled

NAMES = st.sets(st.text("abcdef", min_size=1, max_size=4), min_size=2, max_size=24)


def guards(me: str, names: Iterable[str], suspects: Iterable[str] = (), accuser: str = "?") -> Guards:
    """The ring as `me` sees it, with these members, some of whom this accuser suspects."""
    table = Table(LAN)
    for name in names:
        table.put(Record(name, 1, 0, b""), Status.ALIVE, 0.0)
    for name in suspects:
        table.suspect(name, 1, accuser, 0.0)
    return Guards(me, table)


# --- who watches whom


@given(NAMES)
def test_everybody_is_watched_by_one_other(names: set[str]) -> None:
    charges = [guards(name, names).charge() for name in names]
    assert sorted(filter(None, charges)) == sorted(names)
    assert all(guards(name, names).charge() != name for name in names)


@given(NAMES, st.data())
def test_whoever_follows_a_suspect_has_another_guard(names: set[str], data: st.DataObject) -> None:
    suspects = data.draw(st.sets(st.sampled_from(sorted(names)), max_size=len(names) - 2))
    trusted = names - suspects
    assert {guards(name, names, suspects).charge() for name in trusted} == trusted


@given(NAMES, st.data())
def test_a_suspect_is_asked_by_as_many_as_are_wanted_and_then_by_nobody(names: set[str], data: st.DataObject) -> None:
    suspect = data.draw(st.sampled_from(sorted(names)))
    others = names - {suspect}
    asking = {name for name in others if guards(name, names, [suspect]).doubted() == suspect}
    assert len(asking) == (min(GUARDS, len(others)) if len(names) >= 4 else 0), "a tiny group confirms nothing"
    assert not any(guards(name, names, [suspect], accuser=name).doubted() for name in others), "it has spoken already"


def test_nobody_watches_where_there_is_nobody_to_watch() -> None:
    assert guards("a", ["a"]).charge() is None
    assert guards("a", ["a", "b"], ["b"]).charge() is None


@given(NAMES)
def test_in_a_sparse_mesh_the_charge_is_a_neighbour(names: set[str]) -> None:
    clusters = {ClusterId(name) for name in names}
    for me in clusters:
        picks = Overlay(me, complete=2).picks(clusters - {me}, ())
        assert guards(me, clusters).charge() in picks


# --- what it is good for


@settings(max_examples=40, deadline=None)
@given(size=st.integers(2, 24), seed=st.integers(0, 2**32), moment=st.floats(0.0, 8.0))
def test_a_crash_is_suspected_within_three_intervals_and_known_after_the_shortest_suspicion(
    size: int, seed: int, moment: float
) -> None:
    profile = SwimProfile.lan()
    net = settled(size, profile, seed, warm=8.0 + moment, delay=0.005)
    assume(all(swim.health == 0 for swim in net.swims.values()))
    crashed_at, victim = net.now, net.rng.choice(net.names)
    net.crash(victim)
    news = 8 * profile.gossip_interval
    net.run(3 * profile.probe_interval + limits(size, profile)[0] + news)
    suspected = min(when for when, _, n in net.told(MemberSuspected) if n.member == victim and when > crashed_at)
    assert suspected <= crashed_at + 3 * profile.probe_interval + 0.1, "the turn before, the turn, the failed probe"
    assert {who for _, who, n in net.told(MemberFailed) if n.member == victim} == set(net.up())


def pings(net: Net, asker: str, seconds: float) -> list[str]:
    """Whom a member asks within so many seconds."""
    asked: list[str] = []
    usual = net._send

    def noted(source: str, to: str, message: object) -> None:
        if source == asker and isinstance(message, Ping):
            asked.append(to)
        usual(source, to, message)  # type: ignore[arg-type]

    net._send = noted  # type: ignore[method-assign,assignment]
    net.run(seconds)
    return asked


@settings(max_examples=20, deadline=None)
@given(size=st.integers(2, 16), seed=st.integers(0, 2**32))
def test_the_charge_is_asked_every_second_turn_and_the_others_in_their_round(size: int, seed: int) -> None:
    net = settled(size, LAN, seed, delay=0.005)
    asked = pings(net, "n00", 4.0 * size * LAN.probe_interval)
    charge = guards("n00", net.names).charge()
    assert any(set(asked[phase::2]) == {charge} for phase in (0, 1))
    assert set(asked) == set(net.names) - {"n00"}
