"""A call that is one round of the mesh, from a worker's tensors and back to them.

The leader brings its cluster's contribution and hands the result on while it arrives (`leading`); the followers take it
(`sync.two_level.stream`). Nobody's tensors are written before the mesh has committed the round.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import msgspec
from torch import Tensor

from ictp2p.calls.chronicle import Past
from ictp2p.calls.completed import Completed
from ictp2p.calls.deadline import Deadline
from ictp2p.calls.handing import Answer
from ictp2p.calls.heads import Heads
from ictp2p.calls.leading import Leader
from ictp2p.calls.telling import as_told
from ictp2p.collectives.running.digest import EMPTY, ResultDigest
from ictp2p.errors import LocalGroupError, RoundMissed
from ictp2p.sync.cluster.broadcasts import broadcast_bytes
from ictp2p.sync.mesh import Group
from ictp2p.sync.rounds.wording import in_words
from ictp2p.sync.two_level.stream import Kind, follow
from ictp2p.sync.values import Participant, Spec
from ictp2p.training.mesh import TrainingMesh
from ictp2p.types import ClusterId


class RoundCall:
    """One call (`runner.Call`). Subclasses give the specification and the contribution.

    Args:
        mesh: the training side.
        past: of earlier calls.
        spec: of the round.
        weight: of this worker's contribution.
        nbytes: how much of the result comes here.
    """

    asks_state = False
    alike = True
    """Whether every participant ends with the same bytes, so that these can be voted on and checked."""
    adds_up = False
    """Whether every worker's tensors are to be in the result; else it is right also for who came too late to it."""
    among: tuple[ClusterId, ...] = ()
    """For whom alone it is, if not for whoever comes: with others in it a round commits, and nothing has moved."""

    def __init__(self, mesh: TrainingMesh, past: Past, spec: Spec, weight: float, nbytes: int) -> None:
        self.mesh = mesh
        self.past = past
        self.spec = spec
        self.nbytes = nbytes
        self.weight = weight
        self.text = in_words(spec)
        self.fingerprint = hashlib.blake2b(msgspec.msgpack.encode(spec), digest_size=32).digest()

    def act(self, group: Group, heads: Heads, deadline: Deadline) -> Answer:
        """Take part in a round, as leader or follower; see `runner.Call`."""
        result = self.past.peer.empty(self.nbytes)
        weight = math.fsum(head.weight for head in heads.all)
        self.past.chronicle.acts(group.members)
        inputs = self._contribution(group, weight)
        if group.rank == 0:
            encoded = Leader(self, group, inputs, weight, result, deadline).lead()
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
        if done.round < self.past.chronicle.settled:
            raise RoundMissed(f"round {done.round} was decided before this worker's last call: its mates are elsewhere")
        self.past.chronicle.settle(done.round)  # it may have been handed over by a mate
        came_later = done.round == self.past.chronicle.absent  # what it made before it was stopped may be in it
        if self.adds_up and (came_later or self.past.peer.id not in done.workers):
            raise RoundMissed(f"round {done.round} was decided without this worker: its mates are ahead of it")
        self._deliver(answer.memory)
        return done

    # ------------------------------------------------------------ for subclasses, and who leads

    def _contribution(self, group: Group, weight: float) -> Sequence[Tensor]:
        """What this cluster brings to the round: flat, only read."""
        return ()

    def _deliver(self, result: Tensor) -> None:
        """Write the result into the caller's tensors."""

    def outputs(self, result: Tensor) -> Sequence[Tensor]:
        """The result's memory as the round needs it."""
        return ()

    def brought(self) -> tuple[int, int]:
        """The bytes of the result that do not arrive, because we bring them."""
        return 0, self.nbytes

    def place(self, element: int) -> int:
        """Where in the result an element of the round goes."""
        return element

    # ------------------------------------------------------------ what is voted on, and kept

    def digest(self, result: Tensor) -> ResultDigest:
        """What is voted on `result`: of nothing, if it is another one for each participant."""
        return ResultDigest([result.numpy().data] if self.alike else [])

    def keep(self, digest: bytes, result: Tensor) -> None:
        """Have the result for a mate, or another cluster, that is in the round and did not get it (`answers`)."""
        if self.alike and self.nbytes and digest != EMPTY:
            self.past.peer.hold_answer(digest, result)

    # ------------------------------------------------------------ the followers

    def _follow(self, group: Group, result: Tensor) -> bytes:
        complete, voted = False, self.digest(result)

        def seen(whole: bool) -> None:
            nonlocal complete
            complete = whole

        def restarted(attempt: int, parts: Sequence[Participant]) -> None:
            self.past.chronicle.told(attempt, parts, group.members)
            seen(False)
            voted.restart()

        try:
            verdict = follow(group, result, lambda: seen(True), restarted, voted.arrived)
            encoded = broadcast_bytes(group, b"", 0)
        except LocalGroupError:
            if complete:  # it may be decided, and nobody else of this cluster may be left who has it
                self.keep(voted.digest(), result)
            raise
        if verdict.kind is not Kind.COMMIT:
            raise as_told(encoded)
        moved = bool(self.spec.elements) and not self._was_for_others(encoded)
        if moved and self.alike and voted.digest() != verdict.digest:
            raise LocalGroupError(f"what leader {group.members[0]} streamed is not what the mesh committed")
        self.past.chronicle.settle(verdict.version)
        self.keep(verdict.digest, result)
        return encoded

    def _was_for_others(self, encoded: bytes) -> bool:
        """Whether a round was committed with others than those whom this is for alone: then nothing has moved."""
        return bool(self.among) and msgspec.msgpack.decode(encoded, type=Completed).clusters != self.among
