"""A world of clusters, links and faults that runs real peers: the face of the simulator.

    from sim import World

    with World(seed=7) as world:
        world.cluster("a", workers=2, up=125e6, down=125e6)
        world.cluster("b", workers=2)
        world.link("a", "b", delay=0.04, bandwidth=50e6)
        world.run_until(lambda: world.version() >= 3, within=60)
        world.crash(world.leaders()["a"])
        world.run_until(lambda: world.version() >= 6, within=60)

Everything is a function of the seed and of the calls made. Hosts are named "cluster/number" ("a/0"), and each runs
one `ictp2p.async_peer.AsyncPeer`, unmodified, on its own address, disk, clock and generator. Times are true virtual
seconds, sizes bytes, rates bytes per second. After each advance the invariants are looked at; a breach raises
`sim.invariants.Breach`, whose message holds the seed, the fault plan and the last events.

How clusters and links are declared is in `sim.building`, what can be done to them in `sim.harm`, what a world knows
(`leaders()`, `members()`, `routes()`, `commits()`, `version()`) in `sim.view`. This module lets time pass.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from ictp2p.core.overlay import COMPLETE
from sim.faults import Fault
from sim.harm import Harm
from sim.invariants import Auditor, Breach, Finding
from sim.loop import apart
from sim.plan import FaultPlan, moment
from sim.supervisor import Supervisor

if TYPE_CHECKING:
    from types import TracebackType

SWEEP = 0.5
"""Seconds between two looks at what no notice announces."""
_TOLD = 40  # events in the message of a breach
_ENDING = 8  # rounds of the loop in which tasks that were cancelled end: each awaits a few things on its way out


class World(Harm):
    """See the module's docstring.

    Args:
        seed: of everything.
        profile: kind of network between clusters ("local", "lan", "wan") for clusters that name none.
        elide: let large payloads travel as sizes only; with workloads that are elided too.
        audit: look at the invariants.
        encrypt: seal bulk bytes, as in the real world; costs processor time and changes no timing.
        full_mesh: clusters up to which every two leaders keep a connection; in a larger mesh each keeps a few.
        spare_state: do not crash the last worker that holds the newest version of the state. The state lives in
            memory: when all who hold it are dead, the mesh goes back to an older version, and work is lost.
        spare_quorum: do not lose a disk without which no quorum of the voters is left: no mesh goes on from there.
        waive: rules whose breach is counted in `auditor.waived` and does not stop the world: for campaigns that look
            for something else than what is known already.
    """

    _closed = True
    """Whether nothing runs in it, or nothing yet."""

    def __init__(
        self,
        seed: int = 0,
        *,
        profile: str = "local",
        elide: bool = False,
        audit: bool = True,
        encrypt: bool = False,
        full_mesh: int = COMPLETE,
        spare_state: bool = False,
        spare_quorum: bool = False,
        waive: Collection[str] = (),
    ) -> None:
        super().__init__(seed, profile, elide=elide, audit=audit)
        self.auditor = Auditor(self, waive)
        self.supervisor = Supervisor(
            self, encrypt=encrypt, full_mesh=full_mesh, spare_state=spare_state, spare_quorum=spare_quorum
        )
        self.history: list[tuple[float, Fault]] = []
        """Faults that happened, and when."""
        self._closed = False
        _OPEN.add(self)

    # ------------------------------------------------------------ time

    def run_for(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            Breach: an invariant does not hold, or a peer raised what nobody caught.
        """
        self.run_to(self.now + seconds)

    def run_to(self, when: float) -> None:
        """Let time pass until exactly `when`; raises as `run_for`."""
        while self.now < when:
            self._advance(min(when, self.now + SWEEP))

    def run_until(
        self,
        condition: Callable[[], object],
        within: float,
        *,
        step: float = 0.05,
        what: str | Callable[[], str] = "",
        rule: str = "liveness",
    ) -> float:
        """Let time pass until `condition()` is true, looking every `step` seconds; give the seconds it took.

        Args:
            condition: called between two steps.
            within: seconds that it may take.
            step: seconds between two looks.
            what: the condition in words, for whoever reads that it did not come true; or what makes them then.
            rule: what is broken then.

        Raises:
            Breach: an invariant does not hold, or the condition did not come true `within` so many seconds.
        """
        began, swept = self.now, self.now
        while not condition():
            if self.now >= began + within:
                text = (what() if callable(what) else what) or getattr(condition, "__name__", "the condition")
                self._raise(Finding(rule, self.now, f"{text} did not come true within {within:g} s"))
            ahead = min(began + within, self.now + step)
            due = ahead >= swept + SWEEP
            self._advance(ahead, sweep=due)
            if due:
                swept = ahead
        return self.now - began

    def train(self, within: float) -> dict[str, Any]:
        """Let time pass until every program has ended, looking twice a second; give their results by host.

        Raises:
            Breach: an invariant does not hold, a program failed, or took longer than `within` seconds.
        """
        learners = [host for host in self.hosts.values() if self.clusters[host.cluster].program is not None]

        def ended() -> bool:
            return all(host.training is not None and host.training.over for host in learners)

        self.run_until(ended, within, step=SWEEP, what="the end of all programs")
        return {host.name: host.training.result for host in learners if host.training is not None}

    # ------------------------------------------------------------ faults

    def after(self, seconds: float, fault: Fault) -> None:
        """Let a fault happen in so many seconds from now.

        Raises:
            ConfigError: that is no time from now on.
        """
        self.at(moment(seconds, fault), lambda: self.inject(fault))

    def schedule(self, plan: FaultPlan) -> None:
        """Let a plan's faults happen, counted from now."""
        for seconds, fault in plan:
            self.after(seconds, fault)

    def then(self, seconds: float, fault: Fault) -> None:
        """Let a part of a fault happen in so many seconds; not in the plan, for the whole is there already."""
        self.at(seconds, lambda: self._apply(fault))

    def inject(self, fault: Fault) -> None:
        """Let a fault happen now."""
        self.history.append((self.now, fault))
        self._apply(fault)

    def plan(self) -> FaultPlan:
        """The faults that were injected so far, as a plan that does it again."""
        return FaultPlan.of(self.history)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Kill everything."""
        if self._closed:
            return
        self._closed = True
        _OPEN.discard(self)
        self.loop.perform(self.supervisor.close)
        for _ in range(_ENDING):
            self.loop.run_to(self.loop.now)
        self.loop.close()

    def __del__(self) -> None:
        """One that failed and was dropped is closed: a coroutine that is just dropped cannot await what closes it."""
        with apart():
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        up = f"{len(self.running())}/{len(self.hosts)}"
        return f"<World seed={self.seed} t={self.now:.3f} hosts={up} version={self.version()}>"

    # ------------------------------------------------------------ inside

    def _apply(self, fault: Fault) -> None:
        def act() -> None:
            self.trace.event("world", "fault", fault=fault)
            fault.apply(self)

        self.loop.perform(act)

    def _advance(self, when: float, *, sweep: bool = True) -> None:
        while True:
            self.loop.run_to(when)
            if self.loop.errors:
                self._raise(Finding("unhandled", self.now, self.loop.errors[0]))
            if sweep and self.audit:
                self.auditor.sweep()
            if self.auditor.findings and self.audit:
                self._raise(self.auditor.findings[0])
            if self.now >= when:
                return

    def _raise(self, finding: Finding) -> None:
        last = "\n".join(f"  {entry}" for entry in self.trace.entries[-_TOLD:])
        raise Breach(finding, f"seed {self.seed}, plan {self.plan().to_json()}\nlast events:\n{last}")


_OPEN: WeakSet[World] = WeakSet()
"""Worlds that nobody has closed."""


@atexit.register
def _close_all() -> None:
    """Later there are no threads any more in which what a world trains could end."""
    for world in list(_OPEN):
        world.close()
