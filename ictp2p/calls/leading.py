"""A leader's part in one call: it stands for the round, brings what its cluster does, and hands on what comes of it.

It has three ends. The round is committed, and followers are told so behind the last of its bytes. It was committed
before, unseen by this peer, as its answer then shows: that is handed on instead, and nothing is brought again. Or the
others are at another call, which is an error for the whole cluster, unless it is a newcomer: that stands again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from torch import Tensor

from ictp2p.calls.chronicle import Unseen
from ictp2p.calls.completed import Completed
from ictp2p.calls.deadline import Deadline
from ictp2p.calls.telling import tell_failure, tell_success
from ictp2p.collectives.plan import decode
from ictp2p.collectives.running.digest import EMPTY
from ictp2p.errors import IctError, LocalGroupError, MeshMismatch, PeerClosed, RoundAborted, RoundMissed
from ictp2p.runtime.reduction import Outcome
from ictp2p.sync.mesh import Group, RoundRequest
from ictp2p.sync.rounds.wording import in_words
from ictp2p.sync.two_level.stream import Kind, Publisher, Verdict
from ictp2p.sync.values import Open, Participant, StateRef
from ictp2p.types import PeerId

if TYPE_CHECKING:
    from ictp2p.calls.round_call import RoundCall

NO_BASE = StateRef(0, b"", ())
"""What a round that is not about the shared state starts from."""
_NEWS = 1.0
"""Seconds to learn of the attempt that we were refused in; its decision and the refusal travel side by side."""
_OLD = 0
"""Number of the attempt of what this group is handed: none that it has brought anything to."""
_BEAT = 0.25
"""Seconds after which followers hear again that their leader waits."""


class Leader:
    """Of one cluster, in one call.

    Args:
        call: what it is.
        group: the cluster's.
        inputs: what the cluster brings, flat.
        weight: what that counts.
        result: memory for what comes of it.
        deadline: of the call.
    """

    def __init__(
        self,
        call: RoundCall,
        group: Group,
        inputs: Sequence[Tensor],
        weight: float,
        result: Tensor,
        deadline: Deadline,
    ) -> None:
        self._call = call
        self._chronicle = call.past.chronicle
        self._group = group
        self._inputs = inputs
        self._weight = weight
        self._result = result
        self._outputs = call.outputs(result)
        self._itemsize = self._outputs[0].itemsize if self._outputs else 1
        self._deadline = deadline
        self._publisher = Publisher(group, result)
        self._voted = call.digest(result)
        self._arrived = 0
        """Elements of this attempt."""

    def lead(self) -> bytes:
        """Have the call take place; give what it came to, as it is told.

        Raises:
            LocalGroupError: the group broke, or another worker leads by now.
            IctError: the call failed, and the followers were told so.
        """
        try:
            done, digest = self._take_part()
        except PeerClosed:
            raise
        except RoundAborted as error:  # another worker leads by now: the next roster will say so
            raise LocalGroupError(str(error)) from error
        except IctError as error:
            tell_failure(self._group, self._publisher, error)
            raise
        self._chronicle.settle(done.round)
        encoded = msgspec.msgpack.encode(done)
        tell_success(self._group, self._publisher, Verdict(Kind.COMMIT, done.round, digest), encoded)
        self._call.keep(digest, self._result)
        return encoded

    def _take_part(self) -> tuple[Completed, bytes]:
        """Have the result of a round that this cluster is in, and its digest: of one that ended unseen, if there is."""
        try:
            outcome = self._round()
        except RoundMissed:
            unseen = self._chronicle.answer(self._call.spec)
            if unseen is None or not self._call.alike:
                raise
            return self._recover(unseen)
        return _completed(outcome, self._group.members), outcome.digest

    def _recover(self, unseen: Unseen) -> tuple[Completed, bytes]:
        opened, close, nbytes = unseen.opened, unseen.close, self._call.nbytes
        if nbytes and close.digest != EMPTY:
            self._call.mesh.wait_for(self._call.past.peer.fetch_answer(opened, close, self._result), self._wait)
        self._publisher.restart(_OLD, opened.participants)
        self._publisher.data(0, nbytes)
        clusters = tuple(p.cluster for p in opened.participants)
        kind = decode(opened.plan).kind
        done = Completed(close.round, clusters, 0.0, 0, nbytes, kind, opened.reason, unseen.workers)
        return done, close.digest

    def _round(self) -> Outcome:
        call, chronicle = self._call, self._chronicle
        chronicle.refuse_if_missed()
        if chronicle.answer(call.spec) is not None:  # of this call, made again: nobody has stood for it
            raise RoundMissed("a round was decided with this cluster, of which this call has no answer")
        request = RoundRequest(
            spec=call.spec,
            base=NO_BASE,
            weight=self._weight if call.spec.op == "avg" else 1.0,
            inputs=self._inputs,
            outputs=self._outputs,
            finish=self._finish,
            progress=self._progress,
            restarted=self._restarted,
            idle=self._idle,
            among=call.among,
            newcomer=chronicle.newcomer,
        )
        return self._stand(request)

    def _stand(self, request: RoundRequest) -> Outcome:
        """Have a round, whatever the others are at before: a newcomer stands until they come to this call."""
        while True:
            before = self._chronicle.opened
            try:
                return self._call.mesh.round(request)
            except MeshMismatch as error:
                newcomer = self._chronicle.newcomer
                others = self._outlast(before)
                if not others:
                    raise
                if not newcomer:
                    raise RoundMissed(
                        f"the other clusters are at {others}, this one is at {self._call.text}"
                    ) from error
                self._deadline.check()
            except RoundMissed:
                if not self._chronicle.newcomer:
                    raise  # a newcomer was promised no round yet, so it has missed none but what it may be in
                self._deadline.check()

    def _outlast(self, before: Open | None) -> str:
        """Wait for the end of the round that the others are in instead; what they call there, if it is another call.

        That round is accounted for by what this call comes to: if it were committed later it would be taken for one
        more that was missed, and the next call be refused as well. A newcomer, which is anywhere in its program, stands
        again: its call may be what the others come to next. Else one refused call after the other would find them
        where it is not.
        """
        chronicle = self._chronicle
        opened, newcomer = chronicle.opened_after(before, _NEWS), chronicle.newcomer
        if opened is None:
            return ""
        while not (ended := chronicle.ended(opened.round, _BEAT)) and not self._deadline.over:
            self._publisher.wait()
        if ended and not newcomer:
            chronicle.settle(opened.round)
        elsewhere = (opened.spec.kind, opened.spec.name) != (self._call.spec.kind, self._call.spec.name)
        return in_words(opened.spec) if elsewhere else ""

    # ------------------------------------------------------------ while the round is under way

    def _restarted(self, attempt: int, parts: Sequence[Participant]) -> None:
        self._chronicle.refuse_if_missed()
        self._arrived = 0
        self._voted.restart()
        self._publisher.restart(attempt, parts)

    def _progress(self, start: int, stop: int) -> None:
        self._arrived += stop - start
        first, last = self._call.place(start) * self._itemsize, self._call.place(stop) * self._itemsize
        self._publisher.data(first, last)
        self._voted.arrived(first, last)

    def _finish(self) -> bytes:
        if self._arrived < self._call.spec.elements:
            self._publisher.data(*self._call.brought())
        return self._voted.digest()

    def _idle(self) -> None:
        self._chronicle.refuse_if_missed()
        self._wait()

    def _wait(self) -> None:
        self._deadline.check()
        self._publisher.wait()


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
