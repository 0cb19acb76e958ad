"""How findings reach whoever runs a world."""

from __future__ import annotations

import pytest

from sim import Breach, World


def test_a_breach_stops_the_world_and_names_the_seed(world: World) -> None:
    world.auditor.complain("A1", "planted")
    with pytest.raises(Breach, match=r"A1 at .*planted[\s\S]*seed 3"):
        world.run_for(1)


def test_a_waived_rule_is_noted_and_a_world_without_an_audit_complains_of_nothing() -> None:
    with World(3, waive=("A1",)) as world:
        world.auditor.complain("A1", "planted")
        assert [finding.rule for finding in world.auditor.waived] == ["A1"]
        world.run_for(1)
    with World(3, audit=False) as world:
        world.auditor.complain("A1", "planted")
        world.run_for(1)
        assert world.auditor.findings == []


def test_an_honest_world_gives_no_findings(world: World) -> None:
    world.run_for(20)
    assert world.auditor.findings == []
    assert world.auditor.checks > 500


def test_every_host_of_a_large_world_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    with World(3) as world:
        for n in range(5):
            world.cluster(f"c{n}", workers=4, train=False)
        world.run_for(0.1)
        looked: list[str] = []
        monkeypatch.setattr(world.auditor.gossip, "look", lambda host: looked.append(host.name))
        world.auditor.sweep()
        assert len(looked) == 16
        world.auditor.sweep()
        assert set(looked) == set(world.hosts)
