"""Worlds under hypothesis: chaos with every safety rule watched, then calm, then recovery in time.

The rules draw faults and let time pass; the auditor looks at every message, notice and write (`sim.invariants`). At
the end all faults end, and the mesh must become whole within deadlines made of the peers' own timers. A failure leaves
a report, of the smallest example that hypothesis found, and prints how `ictp2p sim replay` plays it again.

`make campaign` runs many more examples: `WORLDS=500 pytest tests/sim/test_world_machine.py`.
"""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from ictp2p.core.meetings import Meetings
from ictp2p.gossip.election import Election, Past
from sim import Breach, World, report
from sim.command import main
from sim.faults import (
    Calm,
    ClockSkew,
    Crash,
    CrashOnSave,
    Cut,
    DiskFull,
    Fault,
    ForgetConnections,
    Heal,
    Join,
    KillLeader,
    Leave,
    LinkFlap,
    Loss,
    Partition,
    Pause,
    ResetConnections,
    Restart,
    Resume,
    SetBandwidth,
    SetDelay,
    SlowNode,
)
from sim.invariants.recovery import Recovery
from sim.scenario_file import opened, read
from sim.stage import Stage

NAMES = ("a", "b", "c", "d")
WORKERS = 2
LEFT = Path("runs/sim-worlds.json")
clusters = st.integers(0, len(NAMES) - 1)
"""Which of those that there are, counted round and round: so whatever is drawn means somebody."""
hosts = st.integers(0, 2 * len(NAMES) - 1)
MEETING = {"local": 1.5, "lan": 6.0}
"""Virtual seconds in which clusters have leaders, and know of each other: before that one that is cut off, and whose
seed leaves, is known to nobody, and may find nobody again."""
hows = st.sampled_from(("blackhole", "reset"))
seconds = st.floats(0.01, 4.0).map(lambda x: round(x, 2))


class Worlds(RuleBasedStateMachine):
    """One to four clusters, and what may happen to them."""

    left = LEFT
    recovers = True

    def __init__(self) -> None:
        super().__init__()
        self.stage: Stage | None = None
        self.document: dict[str, Any] = {}
        self.pace = 0.0
        """Seconds that pass after each fault."""

    @initialize(
        count=st.integers(1, len(NAMES)),
        workers=st.integers(1, WORKERS),
        hidden=st.frozensets(st.integers(1, len(NAMES) - 1)),
        profile=st.sampled_from(sorted(MEETING)),
        pace=st.sampled_from((1.0, 0.3, 0.0)),
        seed=st.integers(0, 2**32),
    )
    def begin(self, count: int, workers: int, hidden: Set[int], profile: str, pace: float, seed: int) -> None:
        """`hidden` clusters cannot be dialed; the first one, which founds the mesh, always can."""
        self.pace = pace
        self.document = {
            "run": {"profile": profile, "compute": 1.0, "spare": True},
            "links": {"delay": 0.02},
            "cluster": [{"name": name, "workers": workers, "nat": n in hidden} for n, name in enumerate(NAMES[:count])],
            "expect": {"recovery": True},
        }
        self.stage = Stage(seed)
        opened(self.document, self.stage)
        self._let(MEETING[profile])

    # ------------------------------------------------------------ what happens

    @rule(seconds=seconds)
    def train(self, seconds: float) -> None:
        self._let(seconds)

    @rule(host=hosts, disk=st.sampled_from(("kept", "kept", "lost")), power=st.booleans())
    def crash(self, host: int, disk: Any, power: bool) -> None:
        self._inject(Crash(self._host(host), disk, power))

    @rule(host=hosts, nth=st.integers(1, 4), written=st.booleans())
    def crash_while_saving(self, host: int, nth: int, written: bool) -> None:
        self._inject(CrashOnSave(self._host(host), nth, written))

    @rule(host=hosts, nth=st.integers(1, 4))
    def fill_disk(self, host: int, nth: int) -> None:
        self._inject(DiskFull(self._host(host), nth))

    @rule(cluster=clusters, disk=st.sampled_from(("kept", "lost")), power=st.booleans())
    def kill_leader(self, cluster: int, disk: Any, power: bool) -> None:
        self._inject(KillLeader(self._cluster(cluster), disk, power))

    @rule(host=hosts, power=st.booleans())
    def restart(self, host: int, power: bool) -> None:
        self._inject(Restart(self._host(host), power))

    @rule(host=hosts)
    def pause(self, host: int) -> None:
        self._inject(Pause(self._host(host)))

    @rule(host=hosts)
    def resume(self, host: int) -> None:
        self._inject(Resume(self._host(host)))

    @rule(a=clusters, b=clusters, one_way=st.booleans(), how=hows)
    def cut(self, a: int, b: int, one_way: bool, how: Any) -> None:
        self._inject(Cut(*self._pair(a, b), one_way, how))

    @rule(cluster=clusters, how=hows)
    def partition(self, cluster: int, how: Any) -> None:
        self._inject(Partition((self._cluster(cluster),), how))

    @rule(a=clusters, b=clusters)
    def reset(self, a: int, b: int) -> None:
        self._inject(ResetConnections(*self._pair(a, b)))

    @rule(a=clusters, b=clusters, share=st.floats(0.1, 0.9), how=hows)
    def forget(self, a: int, b: int, share: float, how: Any) -> None:
        self._inject(ForgetConnections(*self._pair(a, b), share, how))

    @rule(a=clusters, b=clusters, down=seconds, up=seconds)
    def flap(self, a: int, b: int, down: float, up: float) -> None:
        self._inject(LinkFlap(*self._pair(a, b), 2, down, up))

    @rule()
    def heal(self) -> None:
        self._inject(Heal())

    @rule(a=clusters, b=clusters, bandwidth=st.floats(1e5, 1e9))
    def set_bandwidth(self, a: int, b: int, bandwidth: float) -> None:
        self._inject(SetBandwidth(*self._pair(a, b), bandwidth))

    @rule(a=clusters, b=clusters, delay=st.floats(0.001, 0.2), loss=st.floats(0, 0.1))
    def change_link(self, a: int, b: int, delay: float, loss: float) -> None:
        self._inject(SetDelay(*self._pair(a, b), delay, delay / 10))
        self._inject(Loss(*self._pair(a, b), loss))

    @rule(host=hosts, offset=st.floats(0, 1000), rate=st.floats(0.95, 1.05))
    def skew(self, host: int, offset: float, rate: float) -> None:
        self._inject(ClockSkew(self._host(host), offset, rate))

    @rule(host=hosts, factor=st.floats(1, 4))
    def slow(self, host: int, factor: float) -> None:
        self._inject(SlowNode(self._host(host), 0.001, factor))

    @rule(cluster=clusters)
    def join(self, cluster: int) -> None:
        if len(self.world.hosts) < 2 * len(NAMES):
            self._inject(Join(self._cluster(cluster)))

    @rule(host=hosts)
    def leave(self, host: int) -> None:
        """Not the last one that can be dialed: hidden clusters by themselves are no mesh.

        Nor the last that anybody knows: who was not let in yet will find nobody, and nobody knows of it.
        """
        name = self._host(host)
        public = (h for h in self.world.every_host() if not self.world.clusters[h.cluster].nat)
        if any(h.core is not None and h.core.connected() and h.name != name for h in public):
            self._inject(Leave(name))

    # ------------------------------------------------------------ and what then

    def teardown(self) -> None:
        if self.stage is None:
            return
        with self.stage as stage:
            if self.recovers and stage.breach is None:
                self._watch(lambda: stage.world.inject(Calm()))
                self._watch(Recovery(stage.world).run)

    @property
    def world(self) -> World:
        assert self.stage is not None
        return self.stage.world

    def _host(self, number: int) -> str:
        names = list(self.world.hosts)
        return names[number % len(names)]

    def _cluster(self, number: int) -> str:
        names = list(self.world.clusters)
        return names[number % len(names)]

    def _pair(self, a: int, b: int) -> tuple[str, str]:
        return self._cluster(a), self._cluster(b)

    def _inject(self, fault: Fault) -> None:
        self._watch(lambda: self.world.inject(fault))
        self._let(self.pace)

    def _let(self, seconds: float) -> None:
        self._watch(lambda: self.world.run_for(seconds))

    def _watch(self, act: Any) -> None:
        """Do something to the world; a breach leaves a report before it is told."""
        stage = self.stage
        assert stage is not None
        try:
            act()
        except Breach as breach:
            stage.breach = str(breach)
            note(f"again: ictp2p sim replay {self._leave_report(stage)}")
            raise

    def _leave_report(self, stage: Stage) -> Path:
        world = stage.world
        calm = [at for at, fault in world.history if isinstance(fault, Calm)]
        run = {**self.document["run"], "seconds": calm[0] if calm else world.now}
        document = {**self.document, "run": run, "fault": world.plan().to_list()}
        told = report.document(read(document, "worlds"), stage, {})
        self.left.parent.mkdir(parents=True, exist_ok=True)
        report.save(told, self.left)
        return self.left


EXAMPLES = int(os.environ.get("WORLDS", "8"))
Worlds.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=15 if EXAMPLES < 50 else 40,
    deadline=None,
    derandomize=EXAMPLES < 50,
    suppress_health_check=list(HealthCheck),
)
TestWorlds = pytest.mark.timeout(60 + 30 * EXAMPLES)(Worlds.TestCase)


def test_a_planted_bug_shrinks_to_one_fault_and_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mutation: a peer forgets its term with its process, and hears nobody who remembers: it takes an office twice."""
    monkeypatch.setattr(Past, "decode", classmethod(lambda cls, stored: cls()))
    monkeypatch.setattr(Election, "seen", lambda self, term, leader, now, told=False: [])
    monkeypatch.setattr(Meetings, "_recall_own", lambda self, record, *, lives: None)

    class Planted(Worlds):
        left = tmp_path / "planted.json"
        recovers = False

        @initialize(count=st.integers(1, len(NAMES)), seed=st.integers(0, 2**32))
        def begin(self, count: int, seed: int) -> None:  # type: ignore[override]
            super().begin(count, 1, frozenset(), "local", 1.0, seed)

    with pytest.raises(Breach, match="E1") as raised:
        run_state_machine_as_test(
            Planted,
            settings=settings(
                max_examples=30,
                stateful_step_count=8,
                deadline=None,
                derandomize=True,
                database=None,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert "again: ictp2p sim replay" in "".join(raised.value.__notes__)
    told = report.load(Planted.left)
    assert len(told["document"]["cluster"]) == 1
    assert len(told["plan"]) <= 2
    assert main(["replay", str(Planted.left), "--quiet", "--exact"]) == 1
    shown = capsys.readouterr().out
    assert "The same course" in shown
    assert "E1 at" in shown
