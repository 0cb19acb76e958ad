"""Each rule of rounds is seen to be broken."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ictp2p.collectives import execute, plan
from ictp2p.collectives.channel import RoundTag
from ictp2p.sync.notices import RoundOpened, StateAdvanced
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


def test_e4_a_leader_that_takes_part_in_a_round_which_does_not_bind_it(world: World, broken: Broken) -> None:
    opened = _opened(world)
    others = tuple(part for part in opened.participants if part.cluster != "a")
    world.auditor.notice(world.hosts["a/0"], RoundOpened(msgspec.structs.replace(opened, participants=others)))
    assert broken() == ["E4"]
