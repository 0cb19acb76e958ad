"""Nobody can hold a record that its owner has not made, or go back, without being seen."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ictp2p.gossip.messages import Status
from sim import World
from sim.invariants import gossip
from tests.interrupts import places

Broken = Callable[[], list[str]]


@pytest.fixture(autouse=True)
def _quiet(world: World, broken: Broken) -> None:
    world.auditor.sweep()
    assert broken() == []


def _doctor(world: World, **changes: int) -> None:
    """Change the record of cluster b that a holds."""
    core = world.hosts["a/0"].core
    member = core.m.mesh.members["b"]
    core.m.mesh._table.put(msgspec.structs.replace(member.record, **changes), Status.ALIVE, world.now)


@pytest.mark.parametrize("field", ["incarnation", "sequence"])
def test_g3_a_record_that_is_newer_than_any_that_was_made(world: World, broken: Broken, field: str) -> None:
    record = world.hosts["a/0"].core.m.mesh.members["b"].record
    _doctor(world, **{field: getattr(record, field) + 1000})
    world.auditor.sweep()
    assert broken() == ["G3"]


def test_g3_a_record_of_who_is_dead(world: World, broken: Broken) -> None:
    record = world.hosts["a/0"].core.m.mesh.members["b"].record
    world.crash("b/0", power=True)
    world.auditor.sweep()
    assert broken() == []
    _doctor(world, sequence=record.sequence + 1000)
    world.auditor.sweep()
    assert broken() == ["G3"]


@pytest.mark.parametrize(("field", "found"), [("sequence", []), ("incarnation", ["G3"])])
def test_g3_a_record_that_its_owner_made_as_it_left(world: World, broken: Broken, field: str, found: list[str]) -> None:
    """Regression: it was nobody's, for whoever leaves after a timer has handled no message since."""
    record = world.hosts["a/0"].core.m.mesh.members["b"].record
    world.hosts["b/0"].core.leave(world.now)
    world.crash("b/0")
    _doctor(world, **{field: getattr(record, field) + 1})
    world.auditor.sweep()
    assert broken() == found


def test_g3_a_record_of_a_signer_who_never_led(world: World, broken: Broken) -> None:
    _doctor(world, key=b"k" * 32)  # type: ignore[arg-type]
    world.auditor.sweep()
    assert broken() == ["G3"]


def test_g3_a_view_that_goes_back(world: World, broken: Broken) -> None:
    record = world.hosts["a/0"].core.m.mesh.members["b"].record
    _doctor(world, incarnation=record.incarnation - 1)
    world.auditor.sweep()
    assert broken() == ["G3"]


def test_g3_an_owner_that_goes_back(world: World, broken: Broken) -> None:
    table = world.hosts["b/0"].core.m.mesh
    own = table.record
    table._ledger.own = msgspec.structs.replace(own, incarnation=own.incarnation - 1)
    world.auditor.delivering(world.hosts["b/0"])
    assert broken() == ["G3"]


def test_g3_an_owner_makes_again_what_it_made_as_it_died_and_told_nobody(world: World, broken: Broken) -> None:
    """Regression: a disk was full, and the term of the first was lost with the process that could not save it."""
    host = world.hosts["b/0"]
    table = host.core.m.mesh
    own = table.record
    table._ledger.own = msgspec.structs.replace(own, sequence=own.sequence + 1)
    world.auditor.ending(host)
    table._ledger.own = own
    world.auditor.delivering(host)
    assert broken() == []


def test_what_is_looked_at_before_a_message_does_not_grow_with_the_world(world: World) -> None:
    """It was each host's records, before every message: 5 % of what an audited world of sixteen clusters took."""
    host = world.hosts["a/0"]

    def looked() -> int:
        world.auditor.delivering(host)
        return len(places(lambda: world.auditor.delivering(host), gossip))

    few = looked()
    for name in "defgh":
        world.cluster(name, workers=1)
    world.run_until(lambda: all(host.leads for host in world.hosts.values()), within=30)
    world.auditor.sweep()
    assert looked() == few
