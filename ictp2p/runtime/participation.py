"""A leader's part in a round, from READY to the decision: the machine's notices, bound to tensors and connections.

`Rounds` decides; `execute` moves bytes; this joins them for the one contribution that a leader has standing. An
attempt that fails is reported with whom it failed on and costs nothing: the inputs were not touched, and they
stand for the next attempt. The caller waits in one place, `reduce`, and learns of attempts only by `restarted`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import torch

from ictp2p.collectives import plan
from ictp2p.collectives.channel import CollectiveTimeout, Links, ParticipantLost
from ictp2p.collectives.codecs.prices import check_name
from ictp2p.collectives.running import execute
from ictp2p.collectives.running.advance import Advance
from ictp2p.collectives.running.attempt import ExecuteProfile
from ictp2p.collectives.running.digest import EMPTY, result_digest
from ictp2p.concurrency.blocking import blocking
from ictp2p.core.grouping import check_groups
from ictp2p.core.packets import Channel
from ictp2p.core.planning import check_roots
from ictp2p.errors import (
    IctError,
    LocalProtocolError,
    MeshMismatch,
    NetworkError,
    NoQuorum,
    PeerClosed,
    RoundAborted,
    RoundError,
    RoundMissed,
)
from ictp2p.machine import Effects, Notice
from ictp2p.runtime.data_phase import Brought, DataPhase, check_kind
from ictp2p.runtime.driver import Driver
from ictp2p.runtime.reduction import Outcome, Reduction, Standing
from ictp2p.sync.agreement.quorum_watch import QuorumLost, QuorumRegained
from ictp2p.sync.rounds import notices
from ictp2p.sync.rounds.machine import Contribution
from ictp2p.sync.rounds.wording import apart
from ictp2p.sync.values import Close, Open
from ictp2p.telemetry import Telemetry
from ictp2p.types import ClusterId, PeerId


class Participation:
    """One leader's rounds, one at a time.

    Args:
        me: this peer.
        cluster: whom it speaks for.
        driver: runs the stack.
        links: the bulk connections.
        telemetry: told what happens.
        profile: deadlines of the data phase.
        doubt: told of each with whom an attempt has failed.
    """

    def __init__(
        self,
        me: PeerId,
        cluster: ClusterId,
        driver: Driver,
        links: Links,
        telemetry: Telemetry,
        profile: ExecuteProfile,
        doubt: Callable[[PeerId], None] = lambda _: None,
    ) -> None:
        self._me = me
        self._cluster = cluster
        self._driver = driver
        self._rounds = driver.core.m.rounds
        self._telemetry = telemetry
        self._data = DataPhase(me, cluster, links, profile)
        self._doubt = doubt
        self._standing: Standing | None = None
        self._lost: QuorumLost | None = None

    async def reduce(self, work: Reduction) -> Outcome:
        """Stand READY with `work` until a round commits it.

        Raises:
            ConfigError: there is no such codec.
            RoundMissed: a round was decided without this contribution; for a "sync" round the state moved on.
            RoundAborted: this peer does not lead its cluster (any more).
            MeshMismatch: the other clusters reduce something else, or come to other results round after round.
            NoQuorum: nothing can be decided, and `work` is not patient.
            LocalProtocolError: another contribution is standing.
            PeerClosed: the peer was closed.
        """
        check_name(work.spec.codec)
        if self._standing is not None:
            raise LocalProtocolError(
                "another round of this peer is still under way: are there two policies, or calls in several threads?"
            )
        if not self._driver.core.leading:
            raise RoundAborted(f"this peer does not lead cluster {self._cluster}")
        loop = asyncio.get_running_loop()
        standing = self._standing = Standing(work, self._driver.clock(), loop.create_future())
        try:
            self._stand(work)
            self._despair()
            return await standing.decided
        finally:
            await self._put_down(standing)
            del standing  # as in `LoopThread.wait`

    def _stand(self, work: Reduction) -> None:
        term = self._driver.core.m.election.term
        contribution = Contribution(
            self._cluster,
            self._me,
            term,
            work.weight,
            work.spec,
            work.base,
            note=work.note,
            slack=work.slack,
            newcomer=work.newcomer,
        )
        self._call(lambda now: self._rounds.ready(contribution, now))

    async def _put_down(self, standing: Standing) -> None:
        """However it ended: no task, no claim on the caller's tensors and no READY outlives the call.

        An error that the machine did not tell leaves the contribution standing there. The others would take it into
        every attempt, which fails here for want of it and accuses nobody; so they would go on aborting together.
        """
        self._standing = None
        decided = standing.decided
        if not decided.done() or decided.cancelled() or decided.exception() is not None:
            self._call(self._rounds.withdraw)  # at once: while the attempt ends, another contribution may be brought
        standing.end_attempt()
        cancelled = False
        while standing.ending:
            try:
                await asyncio.wait(standing.ending)
            except asyncio.CancelledError:
                cancelled = True  # once nothing of it claims the tensors any more
        if cancelled:
            raise asyncio.CancelledError

    # ------------------------------------------------------------ what the machine tells

    def notice(self, notice: Notice) -> None:
        """Take a notice of the rounds machine."""
        match notice:
            case notices.RoundOpened(open=opened):
                self._opened(opened)
            case notices.RoundCommitted(open=opened, close=close, holding=holding):
                self._committed(opened, close, holding)
            case notices.RoundAborted(open=opened, close=close):
                self._aborted(opened, close.reason if close else "it was decided elsewhere")
            case notices.RoundPassed(round=number):
                self._fail(RoundMissed(f"round {number} was decided without cluster {self._cluster}"))
            case notices.OddOneOut(rounds=rounds, camps=camps):
                words = f"{rounds} rounds in a row were decided without cluster {self._cluster}"
                self._fail(MeshMismatch(f"{words}: {apart(camps)}"))
            case notices.StateStale(ref=ref):
                self._fail(RoundMissed(f"the mesh is at version {ref.version} of the state, not at this cluster's"))
            case notices.SpecRejected(reason=reason):
                self._fail(MeshMismatch(reason))
            case QuorumLost():
                self._lost = notice
                self._despair()
            case QuorumRegained():
                self._lost = None

    def deposed(self) -> None:
        """This peer leads its cluster no longer: another one speaks for it."""
        self._fail(RoundAborted(f"another peer leads cluster {self._cluster} now"))

    def closed(self, error: PeerClosed | None = None) -> None:
        """The peer is being closed, or has stopped by itself with `error`."""
        self._fail(error or PeerClosed("the peer was closed while a round was under way"))

    def _fail(self, error: IctError) -> None:
        if self._standing is not None and not self._standing.decided.done():
            self._standing.decided.set_exception(error)

    def _despair(self) -> None:
        """Nothing can be decided for now: end the wait of who does not want to wait for that."""
        lost, standing = self._lost, self._standing
        if lost is not None and standing is not None and not standing.work.patient:
            missing = ", ".join(lost.missing) or "none of them by name"
            self._fail(NoQuorum(f"the {len(lost.voters)} voters cannot decide: missing are {missing}"))

    def _opened(self, opened: Open) -> None:
        chosen = plan.decode(opened.plan)
        clusters = [p.cluster for p in opened.participants]
        self._telemetry.event(
            "round_opened",
            round=opened.round,
            attempt=opened.attempt,
            participants=clusters,
            plan=chosen.kind,
            reason=opened.reason,
        )
        standing = self._standing
        if standing is None or standing.work.spec != opened.spec:
            self._report_failure(opened, "no such contribution stands here", ())
            return
        wrong = (
            plan.check_codec(chosen, opened.spec.codec)
            or check_groups(chosen, opened.spec, opened.state.digest, opened.participants)
            or check_kind(chosen, opened.spec)
            or check_roots(chosen, opened.spec, opened.participants)
        )
        if wrong is not None:
            self._report_failure(opened, wrong, ())
            return
        standing.opened, standing.opened_at, standing.plan = opened, self._driver.clock(), chosen.kind
        if standing.work.restarted is not None:
            standing.work.restarted(opened.attempt, opened.participants)
        standing.end_attempt()
        standing.attempt = asyncio.get_running_loop().create_task(self._attempt(standing, opened, chosen))

    def _committed(self, opened: Open, close: Close, holding: bool) -> None:
        standing = self._standing
        if standing is None or standing.decided.done():
            return
        if not holding or not standing.is_in(opened):
            self._fail(RoundMissed(f"round {opened.round} committed before this cluster held its result"))
            return
        stats = standing.stats or execute.Stats(0, 0, 0.0, 0)
        outcome = Outcome(
            round=opened.round,
            attempt=opened.attempt,
            participants=tuple(p.cluster for p in opened.participants),
            state=close.state,
            digest=close.digest,
            seconds=self._driver.clock() - standing.began,
            bytes_sent=stats.bytes_sent,
            bytes_received=stats.bytes_received,
            plan=standing.plan,
            reason=opened.reason,
        )
        self._telemetry.event(
            "round_committed",
            round=outcome.round,
            attempt=outcome.attempt,
            participants=list(outcome.participants),
            seconds=self._driver.clock() - standing.opened_at,
            bytes_sent=outcome.bytes_sent,
            bytes_received=outcome.bytes_received,
            plan=outcome.plan,
            reason=outcome.reason,
            version=close.state.version,
            digest=close.digest.hex(),
        )
        standing.decided.set_result(outcome)

    def _aborted(self, opened: Open, reason: str) -> None:
        standing = self._standing
        self._telemetry.event(
            "round_aborted",
            round=opened.round,
            attempt=opened.attempt,
            participants=[p.cluster for p in opened.participants],
            seconds=self._driver.clock() - standing.opened_at if standing else 0.0,
            reason=reason,
        )
        if standing is not None:
            standing.end_attempt()

    # ------------------------------------------------------------ one attempt

    async def _attempt(self, standing: Standing, opened: Open, chosen: plan.Plan) -> None:
        if standing.ending:
            await asyncio.wait(standing.ending)  # they must let go of the tensors first
        try:
            digest = await self._tried(standing, opened, chosen)
        except (ParticipantLost, CollectiveTimeout) as error:
            self._report_failure(opened, str(error), error.suspects)
        except Exception as error:
            # Whatever it is, the others must not wait for us; and if it is no error of the mesh, the caller must know.
            self._report_failure(opened, f"{type(error).__name__}: {error}", ())
            if not isinstance(error, NetworkError | RoundError) and not standing.decided.done():
                standing.decided.set_exception(error)
        else:
            self._call(lambda now: self._rounds.completed(opened.round, opened.attempt, digest, now))

    async def _tried(self, standing: Standing, opened: Open, chosen: plan.Plan) -> bytes:
        """Have the result, or see to it that another attempt does not hang on what this one did."""
        try:
            return await self._hold_result(standing, opened, chosen)
        except BaseException:
            for each in opened.participants:
                self._doubt(each.leader)
            raise

    async def _hold_result(self, standing: Standing, opened: Open, chosen: plan.Plan) -> bytes:
        """Have the result in the outputs, and give its digest."""
        work = standing.work
        if work.among and work.among != tuple(p.cluster for p in opened.participants):
            return EMPTY
        if opened.spec.elements:
            told = work.progress or _unheard if chosen.kind == plan.GROUPS else self._progress(standing, opened, chosen)
            brought = Brought(work.inputs, work.outputs, told, work.holds)
            standing.stats = await self._data.run(opened, chosen, brought)
        if work.finish is not None:
            return await work.finish()
        if not opened.spec.elements:
            return EMPTY
        return await blocking(_digest_of, work.outputs)

    def _progress(self, standing: Standing, opened: Open, chosen: plan.Plan) -> Callable[[int, int], None]:
        advance = Advance(chosen.results(chosen.participants.index(self._me)))

        def advanced() -> None:
            self._call(lambda now: self._rounds.progressed(opened.round, opened.attempt, advance.least, now))

        def progress(start: int, stop: int) -> None:
            if standing.opened is not opened:  # an attempt that has still to end: the next one begins from nothing
                return
            whole, least = advance.add(start, stop)
            if least:
                advanced()
            if whole:
                self._telemetry.event(
                    "reduce_progress", round=opened.round, attempt=opened.attempt, fraction=advance.whole
                )
            if standing.work.progress is not None:
                standing.work.progress(start, stop)

        if advance.least == 1:  # no result comes here, so the attempt's pace will not be seen
            advanced()
        return progress

    def _report_failure(self, opened: Open, reason: str, suspects: Sequence[PeerId]) -> None:
        self._call(lambda now: self._rounds.failed(opened.round, opened.attempt, reason, tuple(suspects), now))

    def _call(self, act: Callable[[float], Effects]) -> None:
        self._driver.call(Channel.ROUNDS, act)


def _unheard(_start: int, _stop: int) -> None:
    """Nobody wants to hear of results."""


def _digest_of(tensors: Sequence[torch.Tensor]) -> bytes:
    """Hash tensors' bytes, in order."""
    flat = [tensor.detach().contiguous().view(-1).view(torch.uint8) for tensor in tensors]
    return result_digest(*(each.numpy().data for each in flat))
