"""The peer as training sees it: blocking calls from the training thread, answered by the peer, wherever it lives.

`TrainingMesh` is the `sync.mesh.Mesh` that policies are written against. Nothing of it decides anything: rosters and
rounds are decided by the machines, at the peer; this hands requests in (`said`, `conversation`) and decisions out
(`heard`), builds the process group inside the cluster, and tells people what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch

from ictp2p.collectives.group.local import GroupTimeouts, LocalGroup
from ictp2p.concurrency.threads import Thread
from ictp2p.errors import (
    GroupUnbuilt,
    GroupUnmet,
    LibraryRefused,
    LocalGroupError,
    LocalProtocolError,
    RoundAborted,
    RoundMissed,
    StateError,
)
from ictp2p.fsm import RECEIVED_JOIN, REJOIN, Table
from ictp2p.handle import Asking, Ended, Handle, LeftOut, NewcomerWaits, News, Regrouped, WorkerGone
from ictp2p.runtime.life import Life
from ictp2p.runtime.reduction import Outcome
from ictp2p.sync.credits import contributed
from ictp2p.sync.mesh import Group, Receiver, RoundRequest, RoundResult
from ictp2p.sync.rosters.roster import Breach, Generation, Roster
from ictp2p.sync.rounds.notices import StateAdvanced
from ictp2p.sync.state.lent import Lent
from ictp2p.sync.values import Spec, StateRef
from ictp2p.training import succession
from ictp2p.training.conversation import IDLE, Conversation
from ictp2p.training.heard import Heard
from ictp2p.training.last_round import LastRound
from ictp2p.training.said import Said

if TYPE_CHECKING:
    from ictp2p.sync.state.global_state import GlobalState

T = TypeVar("T")

_NO_STATE = StateRef(0, b"", ())
_LOOK = 1.0
"""Seconds between two looks of who waits for a roster."""
_WORDS = 500
"""Characters of a reason that the others are told."""


class Openable(Group, Protocol):
    """A group whose members have still to meet."""

    def open(self) -> None:
        """Meet the other members. Raises `LocalGroupError`."""
        ...


class TrainingMesh:
    """See `sync.mesh.Mesh`.

    Args:
        peer: the peer.
        life: told what happens to this worker.
    """

    def __init__(self, peer: Handle, life: Life) -> None:
        self._peer = peer
        self._life = life
        self._said = Said(peer)
        self._heard = Heard(peer.threads.condition())
        self._last_round = LastRound(peer)
        self.global_state: GlobalState | None = None
        """What `serve_state` was given."""
        self.evict: Callable[[], None] = lambda: None
        """Ends the use of the group by collective calls, for a policy; set by them."""
        self._policy_in = False
        self._ready = False
        """Whether the machine knows that this worker wants into the group."""
        self.left_together: bool | None = None
        """Whether it may, with the ranks that hold the other shards of its model; None if there are none."""
        self._in_vain = False
        """Whether people were told that this worker is let into no group."""
        self._warned_of = 0
        """The newest version of the state of which people were told that nobody gives it to this worker."""
        peer.subscribe(self._hear)

    # ------------------------------------------------------------ rosters

    def roster_ready(self, ready: bool, device: torch.device | None = None) -> None:
        """Say that this training thread wants into, or leaves, the cluster's group, and what it computes on."""
        if ready:
            if self._policy_in:
                raise LocalProtocolError("a policy trains with this peer already: one model, one policy, one peer")
            self.evict()
        self._policy_in = ready
        self._wants(ready, device)

    def calls_ready(self, ready: bool) -> None:
        """The same for collective calls. There is one group, so a policy goes before them.

        A call waits longer for the workers of the last group, which a policy may have had: they should be in its sum.

        Raises:
            LocalProtocolError: a policy is using the group.
        """
        if self._policy_in:
            if ready:
                raise LocalProtocolError("a policy trains with this peer: collective calls have to wait until it ends")
            return
        self._wants(ready, calls=True)

    def calls_yield(self, generation: Generation) -> None:
        """Leave the others of a group to their call, and lead them no more; `calls_ready` says when it is back."""
        self._peer.attends("yields", generation)
        self.calls_ready(False)

    def wait_roster(self, newer_than: Generation | None) -> Roster:
        """Wait for a roster with this worker in it."""
        oldest = newer_than or (0, 0)
        patience = self._peer.config.local_timeouts.complete
        deadline = self._peer.clock() + patience
        roster = None
        while roster is None:
            newest = self._heard.newest
            self._peer.attends("waits", oldest)  # again with each that comes: it may leave out who stands still
            try:
                roster = self._next_roster(oldest, newest, deadline)
            except TimeoutError:
                self._waits_in_vain()
                why = "" if self._policy_in else "; no call is let in while its cluster trains with a policy"
                raise LocalGroupError(f"no roster newer than {oldest} came within {patience:g} s{why}") from None
        self._in_vain = False
        return roster

    def _next_roster(self, oldest: Generation, newest: Generation, deadline: float) -> Roster | None:
        """See `Heard.roster`; a worker that was asked to leave looks meanwhile whether it may wait."""
        while True:
            if self._policy_in:  # else a call waits, which has a deadline
                self.check_leaving()
            try:
                return self._heard.roster(oldest, newest, lambda: min(_LOOK, deadline - self._peer.clock()))
            except TimeoutError:
                if self._peer.clock() >= deadline:
                    raise

    def _waits_in_vain(self) -> None:
        """Tell people, once for each wait, that this worker is in no group; calls end by their own deadline."""
        if self._policy_in and not self._in_vain:
            self._in_vain = True
            seconds, leader = self._peer.config.local_timeouts.complete, self._peer.leader
            text = f"has waited {seconds:g} s for the process group of its cluster; leader {leader} lets it in between"
            self.event("warning", text=f"{text} two steps, so training may stand still there")

    def roster_moves(self, generation: Generation) -> bool:
        """Whether the group must change at the next step."""
        return self._heard.moves(generation)

    def roster_boundary(self, step: int) -> None:
        """Everybody stands at a step boundary: the leader may make the next roster."""
        self._life.heard(RECEIVED_JOIN, "committed")
        self._peer.boundary(step)

    def roster_failed(self, generation: Generation, reason: str) -> None:
        """A collective of that generation broke here."""
        self._life.happened("relevant_fault")
        self.event("group_failed", generation=list(generation), reason=reason)
        self._peer.failed(generation, Breach(words=reason[:_WORDS]))

    def open_group(self, roster: Roster) -> Group:
        """Build the group of a roster."""
        waits = self._peer.config.local_timeouts
        patience = GroupTimeouts(join=waits.form, operation=waits.complete)
        group = self._make_group(roster, patience)
        self._heard.keep(group)
        self._peer.attends("meets", roster.generation)
        try:
            group.open()
        except LocalGroupError as error:
            self._unopened(roster, error)
            raise
        self._peer.attends("met", roster.generation)
        self.event("collectives", library=roster.library, reason=roster.reason, size=group.size)
        self._life.heard(REJOIN, "group_down")
        self._life.heard(RECEIVED_JOIN, "group_down")
        self._life.grouped()
        if group.rank != 0:
            self._said.trains(True)
        return group

    @property
    def leaves(self) -> bool:
        """Whether this worker was asked to leave.

        Raises:
            PeerClosed: it has left.
        """
        self._heard.check()
        return self._last_round.asked

    def asked_to_leave(self) -> None:
        """It was."""
        self._last_round.asked = True

    def check_leaving(self) -> None:
        """See that what is waited for may still come before this worker leaves."""
        state = self.global_state
        self._last_round.check(trains=state is not None and state.version > 0)

    def leave_together(self, left: bool | None) -> None:
        """Have `Peer.drained` be what the ranks of a sharded model agree on; None for this worker alone again."""
        self.left_together = left

    def _unopened(self, roster: Roster, error: LocalGroupError) -> None:
        """Say how it failed, which is known here alone; `roster_failed` comes too late for it."""
        words = str(error.__cause__ or error)[:_WORDS]  # without the group's own name, which differs each time
        match error:
            case LibraryRefused():
                text = f"{roster.library} did not come up, the next group falls back to gloo: {error}"
                self.event("warning", text=text)
                self._peer.failed(roster.generation, Breach("broke", words, roster.library))
            case GroupUnbuilt():
                self._peer.failed(roster.generation, Breach("unbuilt", words))
            case GroupUnmet() if self._policy_in:  # calls come when the program makes them, however late that is
                self._peer.failed(roster.generation, Breach("unmet", words))

    # ------------------------------------------------------------ state

    def serve_state(self, state: GlobalState) -> None:
        """Answer other peers' questions for `state` from now on, and for what was held before until it is as far."""
        if self.global_state is not None and self.global_state is not state:
            state.succeed(self.global_state)
        self.global_state = state
        self._peer.serve_state(state)

    def first_state(self, spec: Spec, digest: bytes, idle: Callable[[], None]) -> StateRef:
        """Learn the agreed state; have ours adopted as version 1 if the mesh has none."""
        self._said.begins()
        agreed = self.offer(digest, idle)
        if agreed.digest == digest:
            self._said.trains(True)
        return agreed

    def take_part(self) -> None:
        """Have rounds wait for this cluster from now on."""
        self._said.trains(True)

    def offer(self, digest: bytes, idle: Callable[[], None]) -> StateRef:
        """Offer a state to begin with, and wait until there is an agreed one, ours or another's."""
        self._peer.offer(digest)
        while (agreed := self._news_of_state(0)).version == 0:
            idle()
        return agreed

    @property
    def lineage(self) -> bytes:
        """Which founding of the mesh its chain goes back to."""
        return self._peer.lineage

    def decided_state(self) -> StateRef:
        """The newest agreed state that this peer knows of."""
        return self._peer.agreed or _NO_STATE

    def fetch_state(self, ref: StateRef, state: Receiver, idle: Callable[[], None]) -> None:
        """Receive `ref` into `state`; if the mesh goes on meanwhile, it has to wait for us from then on.

        Else whoever takes longer to receive a state than the others take for a round would never catch up.
        """
        kept = succession.holder(self.global_state, ref)
        lent = Lent(state if kept is None else succession.heir(self.global_state, kept, state))
        try:
            if kept is None:
                self.wait_for(self._peer.fetch_state(ref, lent), idle)
            else:
                self.wait_for(succession.hand_on(self._peer.threads, kept, ref, lent), idle)
        except StateError:
            if self.decided_state().version > ref.version:
                self._said.trains(True)
            raise
        finally:
            lent.take_back()
        self._said.trains(True)

    def missing_state(self, ref: StateRef, reason: str, idle: Callable[[], None]) -> StateRef:
        """Nobody provides `ref`: wait a while for another decision; the state to ask for after that."""
        self.event("state_missing", version=ref.version, reason=reason)
        end = self._peer.clock() + self._peer.config.global_timeouts.connect
        while (agreed := self._news_of_state(ref.version)).version <= ref.version and self._peer.clock() < end:
            idle()
        if agreed.version <= ref.version:
            self._warn_of_lacking(ref.version, reason)
        return agreed

    def _news_of_state(self, version: int) -> StateRef:
        """The newest agreed state; one after that version, if it comes soon."""
        self._heard.pause(IDLE, unless=lambda: self.decided_state().version > version)
        return self.decided_state()

    def _warn_of_lacking(self, version: int, reason: str) -> None:
        """Tell people, once for each version, that this worker waits for a state that nobody gives it."""
        if version > self._warned_of:
            self._warned_of = version
            self.event("warning", text=f"waits to be given version {version} of the state, which nobody does: {reason}")

    def contributed(self, state: StateRef, base: int) -> int:
        """Which versions after `base` hold a contribution of this cluster; see `sync.credits.contributed`."""
        return contributed(state, self._peer.config.cluster_id, base)

    # ------------------------------------------------------------ rounds

    def round(self, request: RoundRequest) -> Outcome:
        """Take part in a round of any kind, through as many attempts as it takes; see `Participation.reduce`."""
        self._said.trains(True)
        return Conversation(self._peer, request).run()

    def outer_round(self, request: RoundRequest) -> RoundResult:
        """Take part in a round, through as many attempts as it takes."""
        try:
            outcome = self.round(request)
        except RoundMissed:
            agreed = self.decided_state()
            mine = self.contributed(agreed, request.base.version)
            if not mine or agreed.version <= request.base.version:
                raise
            return RoundResult(agreed, mine=mine)
        except RoundAborted as error:
            # Another worker leads, and what was brought here may yet be committed: it must not grow before that is
            # known, nor what was voted for be forgotten. The next group goes on with the same round.
            raise LocalGroupError(str(error)) from error
        return RoundResult(
            outcome.state,
            mine=1,
            seconds=outcome.seconds,
            sent=outcome.bytes_sent,
            received=outcome.bytes_received,
            reason=outcome.reason,
        )

    def background(self, run: Callable[[], None]) -> Thread:
        """Have something run beside the training thread."""
        return self._peer.threads.start(run, "ictp2p outer round")

    def clock(self) -> float:
        """Monotonic seconds."""
        return self._peer.clock()

    def event(self, kind: str, **fields: object) -> None:
        """Note something for telemetry."""
        self._peer.event(kind, **fields)

    def phase(self, table: Table, trigger: str) -> None:
        """Say what the training thread did."""
        self._life.did(table, trigger)

    def close(self) -> None:
        """End every wait with `PeerClosed`."""
        self._heard.close()

    # ------------------------------------------------------------ between the threads

    def _make_group(self, roster: Roster, patience: GroupTimeouts) -> Openable:
        return LocalGroup(roster, self._peer.id, patience, self._said.device)

    def _wants(self, ready: bool, device: torch.device | None = None, calls: bool = False) -> None:
        if ready:
            self._said.wants_in(device or torch.device("cpu"), calls)
        else:
            self._said.wants_out()

    def _hear(self, news: News) -> None:
        """On the peer's thread: what the machines decided."""
        match news:
            case Asking(ready=ready):
                if ready and not self._ready:  # whoever used the group before: its roster is not for this user
                    self._heard.asked_anew()
                self._ready = ready
            case Regrouped(roster=roster, well=well):
                self._life.heard(REJOIN, "commits_seen")
                self._life.heard(RECEIVED_JOIN, "advertised")
                if self._heard.drained(roster, well):
                    self._life.noticed()
                self._heard.regrouped(roster, mine=True)
            case LeftOut(roster=roster):
                missed = ("relevant_fault", "self_fault", "advertise_join") if self._ready else ()
                for trigger in missed:
                    self._life.happened(trigger)
                self._life.heard(REJOIN, "advertise_join")
                self._heard.regrouped(roster, mine=False)
                self._life.heard(REJOIN, "advertised")  # the machine answers a roster by its report
            case NewcomerWaits():
                self._life.happened("received_join")
                self._life.heard(RECEIVED_JOIN, "received_join")
                self._heard.newcomer()
            case StateAdvanced():
                self._heard.advanced()
            case Ended(error=error):
                self._heard.ended(error)
            case WorkerGone(worker=worker, status=status):
                self._heard.gone(worker, status)

    def wait_for(self, future: Future[T], idle: Callable[[], None]) -> T:
        """Wait for the peer, letting the caller show now and then that it lives."""
        try:
            while True:
                try:
                    return self._peer.wait(future, IDLE)
                except TimeoutError:
                    if future.done():
                        raise
                    idle()
        except BaseException:
            future.cancel()
            raise
        finally:
            del future  # as in `LoopThread.wait`
