"""A worker's mesh (`sync.mesh.Mesh`) in a `policy_world.World`: rosters, the state, rounds with exact sums."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ictp2p.concurrency.threads import Thread, Threads
from ictp2p.errors import LocalGroupError, PeerClosed, RoundAborted, RoundMissed, StateError
from ictp2p.fsm import Fsm, Table
from ictp2p.sync.mesh import RoundRequest, RoundResult
from ictp2p.sync.rosters.roster import Roster
from ictp2p.sync.rounds import modules
from ictp2p.sync.rounds.pairs import pairs
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.two_level.flight import Withdrawn
from ictp2p.sync.values import Participant, Spec, StateRef
from ictp2p.types import ClusterId, PeerId
from tests.sync.fake_group import DEADLINE, FakeGroup, Killed

if TYPE_CHECKING:
    from tests.sync.policy_world import World


class FakeMesh:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.cluster_name = name.split("/")[0]
        self.cluster = ClusterId(self.cluster_name)
        self.site = world.clusters[self.cluster_name]
        self.machines: dict[str, Fsm] = {}
        """The tables that the training thread drives: what they do not have is an error of the worker."""

    @property
    def lineage(self) -> bytes:
        return self.world.lineage

    def roster_ready(self, ready: bool, device: torch.device | None = None) -> None:
        world, cluster = self.world, self.site
        with world.changed:
            world.late.pop(self.name, None)
            if not ready:
                world.leave(self.name)
                return
            cluster.ready.append(self.name)
            if cluster.roster is None:
                cluster.ready.sort()
                if len(cluster.ready) == cluster.expected:
                    world.renew(cluster, "the first")
            elif len(cluster.ready) == 1:
                world.renew(cluster, "all others were gone")
            else:
                cluster.pending = True

    def wait_roster(self, newer_than: tuple[int, int] | None) -> Roster:
        def there() -> bool:
            roster = self.site.roster
            return roster is not None and self.name in roster.members and roster.generation > (newer_than or (0, 0))

        with self.world.changed:
            if not self.world.changed.wait_for(lambda: there() or self.name in self.world.dead, DEADLINE):
                raise PeerClosed(f"{self.name} waited in vain for a roster after {newer_than}")
            if self.name in self.world.dead:
                raise Killed
            assert self.site.roster is not None
            return self.site.roster

    def roster_moves(self, generation: tuple[int, int]) -> bool:
        return self.site.pending and self.site.roster is not None and self.site.roster.members[0] == self.name

    def roster_boundary(self, step: int) -> None:
        with self.world.changed:
            if self.site.pending:
                self.world.renew(self.site, "a newcomer")

    def roster_failed(self, generation: tuple[int, int], reason: str) -> None:
        with self.world.changed:
            if self.site.roster is not None and self.site.roster.generation == generation:
                self.world.renew(self.site, reason)

    def open_group(self, roster: Roster) -> FakeGroup:
        with self.world.changed:
            if self.site.roster != roster or self.site.exchange is None:
                raise LocalGroupError("a newer roster came")
            return FakeGroup(self, roster, self.site.exchange)

    leaves = False
    left_together: bool | None = None

    def check_leaving(self) -> None:
        pass

    def leave_together(self, left: bool | None) -> None:
        self.left_together = left

    def serve_state(self, state: GlobalState) -> None:
        self.world.states[self.name] = state

    def first_state(self, spec: Spec, digest: bytes, idle: Callable[[], None]) -> StateRef:
        idle()
        with self.world.changed:
            if self.world.version == 0:
                self.world.version, self.world.digest = 1, digest
            self.world.met.add(self.cluster_name)
            self.world.changed.notify_all()
            assert self.world.changed.wait_for(lambda: self.world.met >= set(self.world.clusters), DEADLINE)
            return StateRef(self.world.version, self.world.digest, ())

    def decided_state(self) -> StateRef:
        return StateRef(self.world.version, self.world.digest, ())

    def fetch_state(self, ref: StateRef, state: GlobalState, idle: Callable[[], None]) -> None:
        idle()
        source = self._provider(ref)
        encoded = source.manifest(ref.digest)
        for index in state.expect(encoded, ref.digest):
            state.take(index, memoryview(source.chunk(ref.digest, index)))
        state.verified(ref.version)

    def _provider(self, ref: StateRef) -> GlobalState:
        """Whoever has committed that state; a decision may be known before its holders have acted on it."""
        for _ in range(int(DEADLINE / 0.01)):
            with self.world.changed:
                for _, state in sorted(self.world.states.items()):
                    if state.digest == ref.digest:
                        return state
                if self.world.digest != ref.digest:
                    raise StateError(f"version {ref.version} is gone")
                self.world.changed.wait(0.01)
        raise AssertionError(f"nobody came to hold version {ref.version}")

    def phase(self, table: Table, trigger: str) -> None:
        self.machines.setdefault(table.name, Fsm(table)).fire(trigger)

    def missing_state(self, ref: StateRef, reason: str, idle: Callable[[], None]) -> StateRef:
        idle()
        return self.decided_state()

    def contributed(self, state: StateRef, base: int) -> int:
        later = range(base + 1, state.version + 1)
        mine = [n for n in later if self.cluster_name in self.world.contributors.get(n, {self.cluster_name})]
        return sum(1 << state.version - n for n in mine)

    def background(self, run: Callable[[], None]) -> Thread:
        return Threads().start(run, self.name)

    def clock(self) -> float:
        return self.world.clock(self.name)

    def event(self, kind: str, **fields: object) -> None:
        self.world.events.append((self.name, kind, fields))

    def outer_round(self, request: RoundRequest) -> RoundResult:
        world, me = self.world, self.cluster_name
        world.fault(self.name, "outer_round")
        with world.changed:
            self._wait(lambda: all(world.rounds < after for after in world.late.values()), request)
            if request.base.digest != world.digest:
                return self._passed(request)
            number = world.rounds
            if me not in (members := self._members(number)):
                self._wait(lambda: world.rounds > number or all(map(world.gone, members)), request)
                if world.rounds == number:
                    world.members[number] = [me]
                raise RoundMissed(f"{me} was not in the round")
            world.contributions[me] = request
            world.weights.setdefault(number, {})[me] = request.weight
            world.changed.notify_all()
            begins = lambda: world.rounds > number or not self._lacking(members, world.contributions)  # noqa: E731
            try:
                self._wait(begins, request)
            except Withdrawn:
                if not begins():  # else others have it by now: it is as if the attempt had begun here a moment before
                    if world.contributions.get(me) is request:  # a leader that died takes nothing of its heir's along
                        del world.contributions[me]
                    raise
            if world.rounds > number:
                return self._passed(request)
            everyone = [name for name in members if name in world.contributions]
            held = [world.contributions[name] for name in everyone]
        parts = [
            Participant(ClusterId(n), PeerId("0" * 32), 0, r.weight, r.note)
            for n, r in zip(everyone, held, strict=True)
        ]
        request.restarted(1, parts)
        if number in world.restarts:
            request.outputs[0].fill_(float("nan"))
            request.progress(0, request.outputs[0].numel())
            request.finish()
            request.restarted(2, parts)
        if request.spec.grouping == "pairs":
            met = next(pair for pair in pairs(request.base.digest, [ClusterId(n) for n in everyone]) if me in pair)
            held = [r for n, r in zip(everyone, held, strict=True) if n in met]
        if request.spec.grouping == "modules":
            self._reduce_modules(request, dict(zip(everyone, held, strict=True)), parts)
        else:
            self._reduce(request, held)
        digest = request.finish()
        world.fault(self.name, "vote")
        return self._close(request, number, everyone, digest)

    def _members(self, number: int) -> list[str]:
        here = {name for name in self.world.clusters if not self.world.gone(name)}
        present = here - self.world.absent.get(number, set())
        return self.world.members.setdefault(number, sorted(present or here))

    def _lacking(self, members: list[str], done: dict[str, Any]) -> set[str]:
        return {name for name in members if name not in done and not self.world.gone(name)}

    def _wait(self, condition: Callable[[], bool], request: RoundRequest) -> None:
        ends = time.monotonic() + DEADLINE
        while not self.world.changed.wait_for(condition, 0.02):
            assert time.monotonic() < ends, "the round does not come about"
            self.world.changed.release()
            try:
                request.idle()
            finally:
                self.world.changed.acquire()

    def _passed(self, request: RoundRequest) -> RoundResult:
        mine = self.cluster_name in self.world.contributors.get(request.base.version + 1, set())
        if not mine:
            raise RoundMissed("the mesh went on")
        return RoundResult(self.decided_state(), mine)

    def _reduce(self, request: RoundRequest, held: list[RoundRequest]) -> None:
        """Sum weight times contribution in the order of the names, then divide once."""
        total = sum((1.0 if self.world.sums else r.weight) * r.inputs[0] for r in held)
        assert isinstance(total, Tensor)
        out = request.outputs[0]
        half = out.numel() // 2
        mean = total / (1.0 if self.world.sums else sum(r.weight for r in held))
        for start, stop in ((half, out.numel()), (0, half)):
            out[start:stop] = mean[start:stop]
            if stop > start:
                request.progress(start, stop)

    def _reduce_modules(self, request: RoundRequest, held: dict[str, RoundRequest], parts: list[Participant]) -> None:
        """Each module over those that hold it, and copies for who is behind; ranges that nobody sends are told too."""
        places = {p.cluster: modules.spans(modules.card_of(p)) for p in parts}
        (out,), me = request.outputs, self.cluster
        for group in modules.groups(parts):
            for key in group.keys if me in group.clusters else ():
                delta, state = places[me][key]
                if group.root is None:
                    total = sum(held[c].weight * held[c].inputs[0][places[c][key][0]] for c in group.clusters)
                    out[delta] = total / sum(held[c].weight for c in group.clusters)
                elif group.root != me:
                    out[state] = torch.cat([*held[group.root].holds(key)])
        request.progress(0, out.numel())

    def _close(self, request: RoundRequest, number: int, everyone: list[str], digest: bytes) -> RoundResult:
        world = self.world
        with world.changed:
            if world.rounds == number:  # a leader that died may have voted for the cluster already
                world.votes[self.cluster_name] = digest
                world.changed.notify_all()
            self._wait(lambda: self._closed(number, everyone, digest), request)
            if number in world.aborts:
                raise RoundAborted(f"round {number} was aborted")
            seconds = world.seconds(self.cluster_name)
            result = RoundResult(self.decided_state(), True, seconds)
        world.fault(self.name, "committed")
        return result

    def _closed(self, number: int, everyone: list[str], digest: bytes) -> bool:
        world = self.world
        if world.rounds == number and not self._lacking(everyone, world.votes):
            assert len(set(world.votes.values())) == 1, "the results differ"
            world.rounds += 1
            world.votes.clear()
            world.contributions.clear()
            if number not in world.aborts:
                world.version, world.digest = world.version + 1, digest
                world.contributors[world.version] = set(everyone)
            world.changed.notify_all()
        return world.rounds > number
