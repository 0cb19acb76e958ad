"""Worlds under hypothesis: chaos with every safety rule watched, then calm, then progress must follow.

The rules draw faults; the auditor looks at every event (see `sim.invariants`). At the end all faults end, and within
`PATIENCE` seconds all clusters must agree on who is who and be in a new version of the state. A failure prints the
seed and the plan that replay it.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sim import World
from sim.faults import (
    ClockSkew,
    Crash,
    CrashOnSave,
    Cut,
    Heal,
    KillLeader,
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

PATIENCE = 60.0
CLUSTERS = ("a", "b", "c")
HOSTS = tuple(f"{cluster}/{number}" for cluster in CLUSTERS for number in range(2))
clusters, hosts = st.sampled_from(CLUSTERS), st.sampled_from(HOSTS)
hows = st.sampled_from(("blackhole", "reset"))


class Worlds(RuleBasedStateMachine):
    """Three clusters of two workers, and what may happen to them."""

    world: World

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.world = World(seed, spare_state=True)
        for name in CLUSTERS:
            self.world.cluster(name)
        self.world.run_until(self.world.settled, within=30, what="formation")

    @rule(seconds=st.floats(0.01, 5.0))
    def train(self, seconds: float) -> None:
        self.world.run_for(seconds)

    @rule(host=hosts, power=st.booleans())
    def crash(self, host: str, power: bool) -> None:
        self.world.inject(Crash(host, power=power))

    @rule(host=hosts, nth=st.integers(1, 4), written=st.booleans())
    def crash_while_saving(self, host: str, nth: int, written: bool) -> None:
        self.world.inject(CrashOnSave(host, nth, written=written))

    @rule(cluster=clusters)
    def kill_leader(self, cluster: str) -> None:
        self.world.inject(KillLeader(cluster))

    @rule(host=hosts)
    def restart(self, host: str) -> None:
        self.world.inject(Restart(host))

    @rule(host=hosts)
    def pause(self, host: str) -> None:
        self.world.inject(Pause(host))

    @rule(host=hosts)
    def resume(self, host: str) -> None:
        self.world.inject(Resume(host))

    @rule(a=clusters, b=clusters, one_way=st.booleans(), how=hows)
    def cut(self, a: str, b: str, one_way: bool, how: str) -> None:
        self.world.inject(Cut(a, b, one_way=one_way, how=how))  # type: ignore[arg-type]

    @rule(cluster=clusters, how=hows)
    def partition(self, cluster: str, how: str) -> None:
        self.world.inject(Partition((cluster,), how=how))  # type: ignore[arg-type]

    @rule(a=clusters, b=clusters)
    def reset(self, a: str, b: str) -> None:
        self.world.inject(ResetConnections(a, b))

    @rule()
    def heal(self) -> None:
        self.world.inject(Heal())

    @rule(a=clusters, b=clusters, delay=st.floats(0.001, 0.2), loss=st.floats(0, 0.1), bandwidth=st.floats(1e5, 1e9))
    def change_link(self, a: str, b: str, delay: float, loss: float, bandwidth: float) -> None:
        for fault in (SetDelay(a, b, delay, delay / 10), Loss(a, b, loss), SetBandwidth(a, b, bandwidth)):
            self.world.inject(fault)

    @rule(host=hosts, offset=st.floats(0, 1000), rate=st.floats(0.95, 1.05))
    def skew(self, host: str, offset: float, rate: float) -> None:
        self.world.inject(ClockSkew(host, offset, rate))

    @rule(host=hosts, factor=st.floats(1, 4))
    def slow(self, host: str, factor: float) -> None:
        self.world.inject(SlowNode(host, cost=0.001, factor=factor))

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def holds(self) -> None:
        self.world.run_for(0.001)  # raises what any event has broken

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        try:
            if not world.auditor.findings:
                world.calm()
                version = world.version()
                world.run_until(lambda: world.version() > version and world.settled(), within=PATIENCE, what="progress")
        finally:
            world.close()


Worlds.TestCase.settings = settings(
    max_examples=10,
    stateful_step_count=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestWorlds = Worlds.TestCase
