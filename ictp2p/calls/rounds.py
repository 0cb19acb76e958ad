"""`all_reduce`, `broadcast` and `barrier`: one round of the mesh each; `parts` has the calls of two.

The leader brings its cluster's contribution and hands the result on while it arrives; the followers take it
(`sync.two_level.stream`). Nobody's tensors are written before the mesh has committed the round.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import torch
from torch import Tensor

from ictp2p.calls.chronicle import Past, Unseen
from ictp2p.calls.heads import Heads
from ictp2p.calls.runner import Answer, Deadline
from ictp2p.calls.telling import as_told, tell_failure, tell_success
from ictp2p.calls.tensors import Addend, Bundle, local_sum, name_of
from ictp2p.collectives.plan import decode
from ictp2p.collectives.running.digest import EMPTY, ResultDigest
from ictp2p.errors import IctError, LocalGroupError, MeshMismatch, PeerClosed, RoundAborted, RoundMissed
from ictp2p.runtime.reduction import Outcome
from ictp2p.sync.cluster.heal import broadcast_bytes
from ictp2p.sync.mesh import Group, RoundRequest
from ictp2p.sync.rounds.wording import in_words
from ictp2p.sync.two_level.stream import Kind, Publisher, Verdict, follow
from ictp2p.sync.values import FIRST_ROUND, Open, Participant, Spec, StateRef
from ictp2p.training.mesh import TrainingMesh
from ictp2p.types import ClusterId, PeerId

NO_BASE = StateRef(0, b"", ())
"""What a round that is not about the shared state starts from."""
_NEWS = 1.0
"""Seconds to learn of the attempt that we were refused in; its decision and the refusal travel side by side."""
_OLD = 0
"""Number of the attempt of what this group is handed: none that it has brought anything to."""
_BEAT = 0.25
"""Seconds after which followers hear again that their leader waits."""


class Completed(msgspec.Struct, frozen=True, array_like=True):
    """A round that every participant has the result of."""

    round: int
    """Its number; the same everywhere."""
    clusters: tuple[ClusterId, ...]
    """Whose contributions are in it."""
    seconds: float
    """From READY to the decision, at this cluster's leader."""
    bytes_sent: int
    """By this cluster's leader."""
    bytes_received: int
    """By this cluster's leader."""
    plan: str
    """Kind of the schedule."""
    reason: str
    """Why that one."""
    workers: tuple[PeerId, ...] = ()
    """Those of this cluster whose tensors are in it."""


class RoundCall:
    """What these calls have in common. Subclasses give the specification and the contribution."""

    asks_state = False
    alike = True
    """Whether every participant ends with the same bytes, so that these can be voted on and checked."""
    adds_up = False
    """Whether every worker's tensors are to be in the result; else it is right also for who came too late to it."""
    among: tuple[ClusterId, ...] = ()
    """For whom alone it is, if not for whoever comes: with others in it a round commits, and nothing has moved."""

    def __init__(self, mesh: TrainingMesh, past: Past, spec: Spec, weight: float, nbytes: int) -> None:
        self._mesh = mesh
        self._past = past
        self._spec = spec
        self._nbytes = nbytes
        self.weight = weight
        self.text = in_words(spec)
        self.fingerprint = hashlib.blake2b(msgspec.msgpack.encode(spec), digest_size=32).digest()

    def act(self, group: Group, heads: Heads, deadline: Deadline) -> Answer:
        """Take part in a round, as leader or follower; see `runner.Call`."""
        result = self._past.peer.empty(self._nbytes)
        weight = math.fsum(head.weight for head in heads.all)
        self._past.chronicle.acts(group.members)
        inputs = self._contribution(group, weight)
        if group.rank == 0:
            encoded = self._lead(group, inputs, weight, result, deadline)
        else:
            encoded = self._follow(group, result)
        return Answer(self.fingerprint, encoded, result)

    def accept(self, answer: Answer) -> Completed:
        """Write the result into the caller's tensors.

        Raises:
            RoundMissed: a mate has handed it over, and this worker's tensors had to be in it and are not; or they are
                those of a former life, which made this call before this one made its last.
        """
        done = msgspec.msgpack.decode(answer.encoded, type=Completed)
        if done.round < self._past.chronicle.settled:
            raise RoundMissed(f"round {done.round} was decided before this worker's last call: its mates are elsewhere")
        self._past.chronicle.settle(done.round)  # it may have been handed over by a mate
        came_later = done.round == self._past.chronicle.absent  # what it made before it was stopped may be in it
        if self.adds_up and (came_later or self._past.peer.id not in done.workers):
            raise RoundMissed(f"round {done.round} was decided without this worker: its mates are ahead of it")
        self._deliver(answer.memory)
        return done

    # ------------------------------------------------------------ for subclasses

    def _contribution(self, group: Group, weight: float) -> Sequence[Tensor]:
        """What this cluster brings to the round: flat, only read."""
        return ()

    def _outputs(self, result: Tensor) -> Sequence[Tensor]:
        """The result's memory as the round needs it."""
        return ()

    def _brought(self) -> tuple[int, int]:
        """The bytes of the result that do not arrive, because we bring them."""
        return 0, self._nbytes

    def _place(self, element: int) -> int:
        """Where in the result an element of the round goes."""
        return element

    def _deliver(self, result: Tensor) -> None:
        """Write the result into the caller's tensors."""

    def _was_for_others(self, encoded: bytes) -> bool:
        """Whether a round was committed with others than those whom this is for alone: then nothing has moved."""
        return bool(self.among) and msgspec.msgpack.decode(encoded, type=Completed).clusters != self.among

    # ------------------------------------------------------------ the leader

    def _lead(self, group: Group, inputs: Sequence[Tensor], weight: float, result: Tensor, deadline: Deadline) -> bytes:
        publisher = Publisher(group, result)
        try:
            done, digest = self._take_part(group, inputs, weight, result, publisher, deadline)
        except PeerClosed:
            raise
        except RoundAborted as error:  # another worker leads by now: the next roster will say so
            raise LocalGroupError(str(error)) from error
        except IctError as error:
            tell_failure(group, publisher, error)
            raise
        self._past.chronicle.settle(done.round)
        encoded = msgspec.msgpack.encode(done)
        tell_success(group, publisher, Verdict(Kind.COMMIT, done.round, digest), encoded)
        self._keep(digest, result)
        return encoded

    def _take_part(
        self,
        group: Group,
        inputs: Sequence[Tensor],
        weight: float,
        result: Tensor,
        publisher: Publisher,
        deadline: Deadline,
    ) -> tuple[Completed, bytes]:
        """Have the result of a round that this cluster is in, and its digest: of one that ended unseen, if there is."""
        try:
            outcome = self._round(inputs, weight, result, publisher, deadline)
        except RoundMissed:
            unseen = self._past.chronicle.answer(self._spec)
            if unseen is None or not self.alike:
                raise
            return self._recover(unseen, result, publisher, deadline)
        return _completed(outcome, group.members), outcome.digest

    def _recover(
        self, unseen: Unseen, result: Tensor, publisher: Publisher, deadline: Deadline
    ) -> tuple[Completed, bytes]:
        opened, close = unseen.opened, unseen.close

        def idle() -> None:
            deadline.check()
            publisher.wait()

        if self._nbytes and close.digest != EMPTY:
            self._mesh.wait_for(self._past.peer.fetch_answer(opened, close, result), idle)
        publisher.restart(_OLD, opened.participants)
        publisher.data(0, self._nbytes)
        clusters = tuple(p.cluster for p in opened.participants)
        kind = decode(opened.plan).kind
        done = Completed(close.round, clusters, 0.0, 0, self._nbytes, kind, opened.reason, unseen.workers)
        return done, close.digest

    def _digest(self, result: Tensor) -> ResultDigest:
        """What is voted on `result`: of nothing, if it is another one for each participant."""
        return ResultDigest([result.numpy().data] if self.alike else [])

    def _keep(self, digest: bytes, result: Tensor) -> None:
        if self.alike and self._nbytes and digest != EMPTY:
            self._past.peer.hold_answer(digest, result)

    def _round(
        self,
        inputs: Sequence[Tensor],
        weight: float,
        result: Tensor,
        publisher: Publisher,
        deadline: Deadline,
    ) -> Outcome:
        outputs = self._outputs(result)
        item, arrived, voted = outputs[0].itemsize if outputs else 1, 0, self._digest(result)

        def progress(start: int, stop: int) -> None:
            nonlocal arrived
            arrived += stop - start
            first, last = self._place(start) * item, self._place(stop) * item
            publisher.data(first, last)
            voted.arrived(first, last)

        def finish() -> bytes:
            if arrived < self._spec.elements:
                publisher.data(*self._brought())
            return voted.digest()

        def idle() -> None:
            self._past.chronicle.refuse_if_missed()
            deadline.check()
            publisher.wait()

        def restarted(attempt: int, parts: Sequence[Participant]) -> None:
            nonlocal arrived
            self._past.chronicle.refuse_if_missed()
            arrived = 0
            voted.restart()
            publisher.restart(attempt, parts)

        self._past.chronicle.refuse_if_missed()
        if self._past.chronicle.answer(self._spec) is not None:  # of this call, made again: nobody has stood for it
            raise RoundMissed("a round was decided with this cluster, of which this call has no answer")
        request = RoundRequest(
            spec=self._spec,
            base=NO_BASE,
            weight=weight if self._spec.op == "avg" else 1.0,
            inputs=inputs,
            outputs=outputs,
            finish=finish,
            progress=progress,
            restarted=restarted,
            idle=idle,
            among=self.among,
            newcomer=self._past.chronicle.newcomer,
        )
        return self._stand(request, publisher, deadline)

    def _stand(self, request: RoundRequest, publisher: Publisher, deadline: Deadline) -> Outcome:
        """Have a round, whatever the others are at before: a newcomer stands until they come to this call."""
        while True:
            before = self._past.chronicle.opened
            try:
                return self._mesh.round(request)
            except MeshMismatch as error:
                newcomer = self._past.chronicle.newcomer
                others = self._outlast(before, publisher, deadline)
                if not others:
                    raise
                if not newcomer:
                    raise RoundMissed(f"the other clusters are at {others}, this one is at {self.text}") from error
                deadline.check()
            except RoundMissed:
                if not self._past.chronicle.newcomer:
                    raise  # a newcomer was promised no round yet, so it has missed none but what it may be in
                deadline.check()

    def _outlast(self, before: Open | None, publisher: Publisher, deadline: Deadline) -> str:
        """Wait for the end of the round that the others are in instead; what they call there, if it is another call.

        That round is accounted for by what this call comes to: if it were committed later it would be taken for one
        more that was missed, and the next call be refused as well. A newcomer, which is anywhere in its program, stands
        again: its call may be what the others come to next. Else one refused call after the other would find them
        where it is not.
        """
        chronicle = self._past.chronicle
        opened, newcomer = chronicle.opened_after(before, _NEWS), chronicle.newcomer
        if opened is None:
            return ""
        while not (ended := chronicle.ended(opened.round, _BEAT)) and not deadline.over:
            publisher.wait()
        if ended and not newcomer:
            chronicle.settle(opened.round)
        elsewhere = (opened.spec.kind, opened.spec.name) != (self._spec.kind, self._spec.name)
        return in_words(opened.spec) if elsewhere else ""

    # ------------------------------------------------------------ the followers

    def _follow(self, group: Group, result: Tensor) -> bytes:
        complete, voted = False, self._digest(result)

        def seen(whole: bool) -> None:
            nonlocal complete
            complete = whole

        def restarted(attempt: int, parts: Sequence[Participant]) -> None:
            self._past.chronicle.told(attempt, parts, group.members)
            seen(False)
            voted.restart()

        try:
            verdict = follow(group, result, lambda: seen(True), restarted, voted.arrived)
            encoded = broadcast_bytes(group, b"", 0)
        except LocalGroupError:
            if complete:  # it may be decided, and nobody else of this cluster may be left who has it
                self._keep(voted.digest(), result)
            raise
        if verdict.kind is not Kind.COMMIT:
            raise as_told(encoded)
        moved = bool(self._spec.elements) and not self._was_for_others(encoded)
        if moved and self.alike and voted.digest() != verdict.digest:
            raise LocalGroupError(f"what leader {group.members[0]} streamed is not what the mesh committed")
        self._past.chronicle.settle(verdict.version)
        self._keep(verdict.digest, result)
        return encoded


class SumCall(RoundCall):
    """A round that adds up what all workers bring, whoever gets the result.

    Args:
        mesh: the training side.
        past: of earlier calls.
        addend: what this worker brings.
        kind: of the round, and so who gets what (`Spec.kind`).
        name: of the call; the others must bring the same.
        nbytes: how much of the result comes here.
        codec: how elements travel.
    """

    adds_up = True

    def __init__(
        self,
        mesh: TrainingMesh,
        past: Past,
        addend: Addend,
        *,
        kind: Literal["reduce", "collect", "scatter"],
        name: str,
        nbytes: int,
        codec: str = "none",
    ) -> None:
        bundle = self._bundle = addend.bundle
        self._dtype = addend.dtype
        spec = Spec(kind, name, name_of(bundle.tensors[0]), bundle.elements, addend.op, codec, bundle.brief)
        super().__init__(mesh, past, spec, addend.weight, nbytes)

    def _contribution(self, group: Group, weight: float) -> Sequence[Tensor]:
        """What the workers of a cluster bring together: their tensors' sum, each times its share in a mean."""
        if group.size == 1:
            return self._bundle.readable()
        flat = self._bundle.copied().view(self._dtype)
        local_sum(group, flat, self.weight / weight if self._spec.op == "avg" else None)
        return self._bundle.parts(flat.view(torch.uint8))


class AllReduce(SumCall):
    """The mean or sum of every worker's tensors."""

    def __init__(self, mesh: TrainingMesh, past: Past, addend: Addend, codec: str = "none") -> None:
        nbytes = addend.bundle.nbytes
        super().__init__(mesh, past, addend, kind="reduce", name="all_reduce", nbytes=nbytes, codec=codec)

    def _outputs(self, result: Tensor) -> Sequence[Tensor]:
        return self._bundle.parts(result)

    def _deliver(self, result: Tensor) -> None:
        self._bundle.deliver(result)


class Broadcast(RoundCall):
    """A copy of one cluster's tensors, which are its leader's."""

    def __init__(self, mesh: TrainingMesh, past: Past, bundle: Bundle, root: ClusterId) -> None:
        self._bundle = bundle
        spec = Spec("broadcast", f"broadcast@{root}", "uint8", bundle.nbytes, "sum", "none", bundle.brief)
        super().__init__(mesh, past, spec, 1.0, bundle.nbytes)

    def _contribution(self, group: Group, weight: float) -> Sequence[Tensor]:
        return [self._bundle.copied()] if group.rank == 0 else ()

    def _outputs(self, result: Tensor) -> Sequence[Tensor]:
        return [result]

    def _deliver(self, result: Tensor) -> None:
        self._bundle.deliver(result)


class Barrier(RoundCall):
    """Nothing but everybody's presence; before another call, so that all know who takes part."""

    def __init__(self, mesh: TrainingMesh, past: Past, before: str = "", brief: bytes = b"") -> None:
        name = before + FIRST_ROUND if before else "barrier"
        super().__init__(mesh, past, Spec("barrier", name, "uint8", 0, "sum", "none", brief), 1.0, 0)


def _completed(outcome: Outcome, workers: Sequence[str]) -> Completed:
    return Completed(
        outcome.round,
        outcome.participants,
        outcome.seconds,
        outcome.bytes_sent,
        outcome.bytes_received,
        outcome.plan,
        outcome.reason,
        tuple(map(PeerId, workers)),
    )
