"""Each rule of rounds is seen to be broken."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ictp2p.collectives import plan
from ictp2p.collectives.channel import RoundTag
from ictp2p.collectives.planning.planner import LinkEstimate, PlanRequest
from ictp2p.collectives.planning.planner import plan as plan_for
from ictp2p.collectives.running import execute
from ictp2p.sync.rounds.notices import RoundOpened, StateAdvanced
from ictp2p.sync.values import Open
from ictp2p.types import PeerId
from sim import Breach, World

Broken = Callable[[], list[str]]


def _opened(world: World) -> Open:
    """The newest attempt that was decided."""
    world.run_for(5)
    return [value for value in world.auditor.agreement.values.values() if isinstance(value, Open)][-1]


def test_a2_a_version_that_is_told_twice(world: World, broken: Broken) -> None:
    host = world.hosts["a/0"]
    ref = host.core.m.rounds.tip[1].state
    world.auditor.notice(host, StateAdvanced(ref))
    assert broken() == ["A2"]


def test_a4_an_average_that_is_wrong(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: everybody computes the same wrong sum."""
    real = execute.all_reduce

    async def wrong(plan, me, inputs, outputs, *rest, **named):
        stats = await real(plan, me, inputs, outputs, *rest, **named)
        outputs[0][0] += 1
        return stats

    monkeypatch.setattr(execute, "all_reduce", wrong)
    with pytest.raises(Breach, match="A4"):
        world.run_for(20)


def test_a5_frames_of_an_attempt_that_nobody_decided(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: the attempt is left out of the tag, so that frames of the first attempt reach the second."""
    monkeypatch.setattr(RoundTag, "wire", lambda self: self.lineage + self.round.to_bytes(8, "big"))
    host = world.hosts["a/0"]
    monkeypatch.setattr(host, "collectives", lambda: [(world.hosts["b/0"].id, b"t" * 16)])
    with pytest.raises(Breach, match="A5"):
        world.run_for(20)


def test_e4_frames_of_who_is_not_bound(world: World, broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, host = _opened(world), world.hosts["a/0"]
    tag = RoundTag(opened.lineage, opened.round, opened.attempt, plan.decode(opened.plan).digest()).wire()
    monkeypatch.setattr(host, "collectives", lambda: [(world.hosts["b/0"].id, tag)])
    world.auditor.delivering(host)
    assert broken() == []
    monkeypatch.setattr(host, "collectives", lambda: [(PeerId("f" * 32), tag)])
    world.auditor.delivering(host)
    assert broken() == ["E4"]


def test_e4_frames_of_another_pair_of_the_same_round(
    world: World, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What binds a group binds its members: where a, b and c meet in pairs, c has no say in what a and b average."""
    opened, host = _opened(world), world.hosts["a/0"]
    links = {(a.id, b.id): LinkEstimate(1e8, 0.001) for a in world.running() for b in world.running() if a is not b}
    leaders = {part.cluster: part.leader for part in opened.participants}
    made = [plan_for(PlanRequest(tuple(leaders[c] for c in pair), 8, 4, links)).plan for pair in ("ab", "c")]
    whole = plan.Plan(plan.GROUPS, tuple(leaders.values()), (), 1, 1.0, 0.0, groups=tuple(made))
    paired = msgspec.structs.replace(opened, plan=whole.encode(), round=opened.round + 1)
    world.auditor.agreement.values[paired.lineage, 10**6] = paired
    tag = RoundTag(paired.lineage, paired.round, paired.attempt, made[0].digest()).wire()
    monkeypatch.setattr(host, "collectives", lambda: [(leaders["b"], tag)])
    world.auditor.delivering(host)
    assert broken() == []
    monkeypatch.setattr(host, "collectives", lambda: [(leaders["c"], tag)])
    world.auditor.delivering(host)
    assert broken() == ["E4"]


def test_e4_a_leader_that_takes_part_in_a_round_which_does_not_bind_it(world: World, broken: Broken) -> None:
    opened = _opened(world)
    others = tuple(part for part in opened.participants if part.cluster != "a")
    world.auditor.notice(world.hosts["a/0"], RoundOpened(msgspec.structs.replace(opened, participants=others)))
    assert broken() == ["E4"]
