"""Each rule of leadership is seen to be broken."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import msgspec
import pytest

from ictp2p.gossip.election import LeaderChanged
from ictp2p.sync.values import Open, Participant
from ictp2p.types import PeerId
from sim import World

Broken = Callable[[], list[str]]


def test_e1_an_office_that_is_taken_in_another_life(world: World, broken: Broken) -> None:
    host = world.hosts["a/0"]
    office = LeaderChanged(host.id, host.term)
    world.auditor.notice(host, office)
    assert broken() == [], "in one life it may be told twice"
    host.lives += 1
    world.auditor.notice(host, office)
    assert broken() == ["E1"]


def _binding(world: World, *parts: tuple[str, int]) -> Open:
    world.run_for(5)
    opened = [value for value in world.auditor.agreement.values.values() if isinstance(value, Open)][-1]
    participants = tuple(Participant("a", PeerId(leader * 32), term, 1.0) for leader, term in parts)
    return msgspec.structs.replace(opened, participants=participants)


def test_e2_an_attempt_that_binds_a_cluster_twice(world: World, broken: Broken) -> None:
    world.auditor.leadership.bound(900, _binding(world, ("7", 8), ("8", 8)))
    assert broken() == ["E2"]


@pytest.mark.parametrize(("leader", "term", "rule"), [("9", 8, []), ("1", 9, []), ("f", 7, ["E3"]), ("7", 8, ["E3"])])
def test_e3_claims_that_fall(
    world: World, broken: Broken, monkeypatch: pytest.MonkeyPatch, leader: str, term: int, rule: list[str]
) -> None:
    host = world.hosts["a/0"]
    monkeypatch.setattr(world, "host_of", lambda peer: host if peer[0] == "8" else None)
    world.auditor.leadership.bound(900, _binding(world, ("8", 8)))
    world.auditor.leadership.bound(901, _binding(world, (leader, term)))
    assert broken() == rule


def test_e3_is_not_owed_once_the_disk_is_lost_that_knew(world: World, broken: Broken) -> None:
    world.auditor.leadership.bound(900, _binding(world, ("8", 8)))
    world.auditor.leadership.bound(901, _binding(world, ("1", 1)))
    assert broken() == []


@pytest.mark.parametrize(("gone", "rule"), [(True, []), (False, ["E3"])])
def test_e3_is_not_owed_to_a_leader_that_has_left(
    world: World, broken: Broken, monkeypatch: pytest.MonkeyPatch, gone: bool, rule: list[str]
) -> None:
    former, newcomer = _binding(world, ("8", 8)), _binding(world, ("1", 1))
    holder = SimpleNamespace(gone=gone, awake=True)
    monkeypatch.setattr(world, "host_of", lambda peer: holder if peer[0] == "8" else None)
    monkeypatch.setattr(world, "joined", lambda host, other: host is holder)
    world.auditor.leadership.bound(900, former)
    world.auditor.leadership.bound(901, newcomer)
    assert broken() == rule


@pytest.mark.parametrize(
    ("returned", "met", "restarted", "rule"),
    [
        (False, False, True, []),
        (True, False, True, []),
        (True, True, True, ["E3"]),
        (False, False, False, ["E3"]),
    ],
)
def test_e3_is_not_owed_while_nobody_is_there_who_could_know_of_the_higher_claim(
    world: World,
    broken: Broken,
    monkeypatch: pytest.MonkeyPatch,
    returned: bool,
    met: bool,
    restarted: bool,
    rule: list[str],
) -> None:
    former, newcomer = _binding(world, ("8", 8)), _binding(world, ("1", 1))
    holder = SimpleNamespace(gone=False, awake=returned)
    monkeypatch.setattr(world, "host_of", lambda peer: holder if peer[0] == "8" else None)
    monkeypatch.setattr(world, "joined", lambda host, other: host is holder and met)
    world.auditor.leadership.bound(900, former)
    for host in world.running():
        host.lives += restarted
    world.auditor.leadership.bound(901, newcomer)
    assert broken() == rule


def test_e3_is_not_owed_by_a_rival_that_led_all_the_time_on_its_side_of_a_cut(
    world: World, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it knew of the higher claim, whose holder it could not follow, and all others had restarted since."""
    former, newcomer = _binding(world, ("8", 8)), _binding(world, ("1", 1))
    rival, *others = world.running()
    holder = SimpleNamespace(gone=False, awake=True)
    monkeypatch.setattr(world, "host_of", lambda peer: holder if peer[0] == "8" else rival)
    monkeypatch.setattr(world, "joined", lambda host, other: False)
    world.auditor.leadership.bound(900, former)
    for host in others:
        host.lives += 1
    world.auditor.leadership.bound(901, newcomer)
    assert broken() == []


@pytest.mark.parametrize(("asleep", "rule"), [(True, []), (False, ["E3"])])
def test_e3_is_not_owed_while_all_are_paused_who_could_know_of_the_higher_claim(
    world: World, broken: Broken, monkeypatch: pytest.MonkeyPatch, asleep: bool, rule: list[str]
) -> None:
    """Regression: one that was paused before the claim was made, and has not run since, passed for a witness of it."""
    former, newcomer = _binding(world, ("8", 8)), _binding(world, ("1", 1))
    holder = SimpleNamespace(gone=False, awake=not asleep)
    monkeypatch.setattr(world, "host_of", lambda peer: holder if peer[0] == "8" else None)
    monkeypatch.setattr(world, "joined", lambda host, other: host is holder)
    world.auditor.leadership.bound(900, former)
    for host in world.running():
        if asleep:
            world.pause(host.name)
    world.auditor.leadership.bound(901, newcomer)
    assert broken() == rule


@pytest.mark.parametrize(("heard", "rule"), [(False, []), (True, ["E3"])])
def test_e3_is_not_owed_by_a_coordinator_that_has_not_heard_of_its_rival(
    world: World, broken: Broken, monkeypatch: pytest.MonkeyPatch, heard: bool, rule: list[str]
) -> None:
    former, newcomer = _binding(world, ("8", 8)), _binding(world, ("1", 1))
    rival = world.running()[0]
    assert rival.core is not None
    rival.core.m.election.term = 8 if heard else 7
    assert rival.id is not None
    newcomer = msgspec.structs.replace(newcomer, author=rival.id)
    holder = SimpleNamespace(gone=False, awake=True)
    monkeypatch.setattr(world, "host_of", lambda peer: holder if peer[0] == "8" else rival)
    monkeypatch.setattr(world, "joined", lambda host, other: True)
    world.auditor.leadership.bound(900, former)
    world.auditor.leadership.bound(901, newcomer)
    assert broken() == rule
