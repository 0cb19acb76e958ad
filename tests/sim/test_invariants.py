"""The auditor sees what is planted."""

from __future__ import annotations

import msgspec
import pytest

from ictp2p.routing.algebra import Distance
from ictp2p.routing.babel import RouteChanged
from ictp2p.routing.table import Choice
from ictp2p.sync.acceptor import Acceptor
from ictp2p.sync.agreement import Decided
from ictp2p.types import PeerId
from sim import Breach, World
from sim.ledger import Ledger, Unit


@pytest.fixture
def world():
    with World(3) as made:
        for name in "abc":
            made.cluster(name, workers=1)
        made.run_until(made.settled, within=30)
        yield made


def _rules(world: World) -> list[str]:
    return [finding.rule for finding in world.auditor.findings]


def test_two_values_for_one_slot_and_a_decision_without_a_quorum(world: World) -> None:
    host = world.hosts["a/0"]
    slot, value = host.core.m.rounds.tip
    world.auditor.notice(host, Decided(slot, msgspec.structs.replace(value, author=PeerId("f" * 32))))
    assert _rules(world) == ["A1"]
    forged = msgspec.structs.replace(value, round=value.round + 5)
    world.auditor.notice(host, Decided(slot + 1, forged))
    assert "A6" in _rules(world)


def test_a_breach_stops_the_world_and_names_the_seed(world: World) -> None:
    world.auditor.complain("A1", "planted")
    with pytest.raises(Breach, match=r"A1 at .*planted[\s\S]*seed 3"):
        world.run_for(1)


def test_a_routing_loop_is_seen(world: World) -> None:
    for name, other in (("a/0", "b"), ("b/0", "a")):
        core = world.hosts[name].core
        core.m.routes.table.chosen["c", 0] = Choice(other, Distance(1, 1), 2)
    world.auditor.notice(world.hosts["a/0"], RouteChanged("c", 0, "b", 2))
    assert "R1" in _rules(world)


def test_a_promise_that_is_not_kept_on_disk_is_seen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: acceptors accept in memory only."""
    real = Acceptor.accept

    def forgetful(self: Acceptor, ballot: object, value: object) -> object:
        persist = real(self, ballot, value)  # type: ignore[arg-type]
        return None if persist is None else msgspec_free(persist)

    def msgspec_free(persist: object) -> object:
        return type(persist)("elsewhere", persist.value)  # type: ignore[attr-defined, call-arg]

    monkeypatch.setattr(Acceptor, "accept", forgetful)
    with pytest.raises(Breach, match="A6"):
        world.run_for(20)


def test_an_average_that_is_wrong_is_seen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: everybody computes the same wrong sum."""
    from ictp2p.collectives import execute

    real = execute.all_reduce

    async def wrong(plan, me, inputs, outputs, *rest, **named):
        stats = await real(plan, me, inputs, outputs, *rest, **named)
        outputs[0][0] += 1
        return stats

    monkeypatch.setattr(execute, "all_reduce", wrong)
    with pytest.raises(Breach, match="A4"):
        world.run_for(20)


def test_work_that_is_counted_twice_or_lost_is_seen() -> None:
    complaints: list[str] = []
    ledger = Ledger(lambda rule, text: complaints.append(rule))
    unit = Unit("a", "a/0", 1)
    ledger.dropped("a/0", [unit], 3, seen=False)
    assert (complaints, ledger.lost) == ([], [unit])
    ledger.dropped("a/0", [unit], 3, seen=True)
    assert complaints == ["A10"]
    ledger.included[unit] = 2
    ledger.kept("a/0", [unit], 3)
    assert complaints == ["A10", "A10"]
    ledger.applied("a/0", 9, b"x", None)  # type: ignore[arg-type]
    assert complaints[-1] == "A8"


def test_an_honest_world_gives_no_findings(world: World) -> None:
    world.run_for(20)
    assert world.auditor.findings == []
    assert world.auditor.checks > 50
