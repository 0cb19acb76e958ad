"""Takes one call after the other to its end, in as many process groups as that takes.

A call is begun by the workers of a cluster together: they exchange heads (`heads`), bring whoever is behind up to
date, and only then let the call act. When the group breaks (a death, a newcomer, a deposed leader), they meet in the
next one and do the same: a call that had ended for some is handed over to the others, one that had not is begun again
from tensors that nobody has touched. So a follower that takes over as leader repeats its cluster's contribution.

The answer of the last call is kept until the next one has one, because whoever is behind needs it then. That the
cluster missed it is an answer, too, and that its call is not the mesh's: these hold for all of its workers, and one
whom the leader could not tell would be a call behind its mates for good, or wait for them in vain. What one worker
alone came to (its time is over, its peer is closed, it is interrupted) is no answer: its call may end well elsewhere.

A newcomer begins with its program's first call, and its mates are anywhere in theirs, be it between the two rounds of
one. If it is at another call than they, it leaves and comes again until they are at its. So a loop of several calls
takes some regroupings for each newcomer, and none of its mates has an error for it. Who slept through so many calls
that nobody has its answer is told so, and is a newcomer from then on: it may be anywhere, too.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec
import torch

from ictp2p.calls.chronicle import Chronicle, Unseen
from ictp2p.calls.deadline import Deadline
from ictp2p.calls.handing import Answer, receive, send
from ictp2p.calls.heads import Flag, Head, Heads, Place, exchange
from ictp2p.calls.telling import as_told, in_bytes
from ictp2p.errors import (
    Exhausted,
    IctError,
    LocalGroupError,
    MeshMismatch,
    PeerClosed,
    RoundMissed,
)
from ictp2p.sync.cluster.broadcasts import broadcast_bytes
from ictp2p.sync.mesh import Group
from ictp2p.sync.rosters.roster import Generation
from ictp2p.training.mesh import TrainingMesh
from ictp2p.wire import MALFORMED

R = TypeVar("R")
Result = TypeVar("Result", covariant=True)
_NOTHING = torch.empty(0, dtype=torch.uint8, device="cpu")
_PARTING = b"parting"
_NEWS = 1.0
"""Seconds to hear of a decision that a mate has heard of."""
_ASIDE, _MOST_ASIDE = 0.25, 4.0
"""Seconds that a newcomer stands aside at first while its mates are at another call, and at most; doubled each time.
Each time that it comes again costs them a group. More makes a newcomer miss the call that it waits for more often."""


class _Moved(Exception):
    """Everybody leaves the group before this call."""


class Call(Protocol, Generic[Result]):
    """One call, as the runner sees it."""

    fingerprint: bytes
    text: str
    """What it is, in words."""
    weight: float
    asks_state: bool

    def act(self, group: Group, heads: Heads, deadline: Deadline) -> Answer:
        """Do it, together with the other workers; nothing of the caller's is touched.

        Raises:
            LocalGroupError: the group broke; it may be tried again in the next.
            IctError: it failed for all workers.
        """
        ...

    def accept(self, answer: Answer) -> Result:
        """Write the answer into the caller's tensors."""
        ...


class Runner:
    """One worker's sequence of calls. To be used from one thread.

    Args:
        mesh: the peer.
        chronicle: the rounds that passed.
        deadline: begins the patience of one call.
    """

    def __init__(self, mesh: TrainingMesh, chronicle: Chronicle, deadline: Callable[[], Deadline]) -> None:
        self._mesh = mesh
        self._chronicle = chronicle
        self._deadline = deadline
        self._group: Group | None = None
        self._seen: Generation | None = None
        self._place = Place()
        self._fresh = True
        self._last: Answer | None = None
        self._ended = False
        self._aside = _ASIDE
        """Seconds that it stands aside next, if its mates are at another call than it, a newcomer."""
        self.lesson: Callable[[], Answer | None] = lambda: None
        """The shared state, for a newcomer that asks for it while the others are at something else."""
        self.version: Callable[[], int] = lambda: 0
        """Of that state."""

    def run(self, call: Call[R], deadline: Deadline | None = None) -> R:
        """Take a call to its end, within its patience, or by a deadline that it shares with others.

        Raises:
            RoundMissed: other clusters, or the rest of this one, went on without this call.
            MeshMismatch: the others call something else.
            RoundTimeout, NoQuorum: nothing was decided in time.
            LocalGroupError: no group could be formed in time.
            PeerClosed: the peer was closed.
        """
        deadline, self._ended = deadline or self._deadline(), False
        self._chronicle.begin()
        self._mesh.calls_ready(True)
        while True:
            try:
                group = self._group or self._regroup()
                if self._turn(group, call, deadline) and self._last is not None:
                    return _accept(call, self._last)
            except _Moved:
                self._moved()
            except LocalGroupError as error:
                self._broke(error)
                if deadline.over and not self._ended:
                    self._chronicle.give_up()
                    raise
                if deadline.over and self._last is not None:  # nobody came for it any more
                    return _accept(call, self._last)
            except RoundMissed:
                self._chronicle.settle()
                raise
            except BaseException as error:
                self._chronicle.give_up()
                if not isinstance(error, IctError) or isinstance(error, PeerClosed | Exhausted):  # nobody else has it
                    self._gave_up(error)
                raise

    def together(self) -> Callable[[Call[R]], R]:
        """Give what runs several calls that make one, and have one patience."""
        return functools.partial(self.run, deadline=self._deadline())

    def leave(self) -> None:
        """Leave the cluster's group. The next call joins it again."""
        self._drop()
        self._mesh.calls_ready(False)

    def end(self) -> None:
        """No call comes any more: nobody needs the answer of the last one."""
        self._last = None

    # ------------------------------------------------------------ one turn

    def _turn(self, group: Group, call: Call[R], deadline: Deadline) -> bool:
        """Get one step further in this group; whether the call has its answer and nobody here waits for it."""
        heads = exchange(group, self._head(group, call))
        if heads.moves:
            raise _Moved
        if self._level(group, heads, call):
            return False
        if heads.ended:
            return self._ended
        self._agree(group, heads, call, deadline)
        if heads.settled:
            self._chronicle.settle(heads.settled)
        if heads.known > heads.settled:  # who leads may have started since, and would miss it without a word
            self._chronicle.owe(heads.known, self._shown(group, heads), _NEWS, fresh=self._fresh)
        try:
            self._last = call.act(group, heads, deadline)
        except (RoundMissed, MeshMismatch) as error:  # a mate whom the leader could not tell is told in the next group
            self._fail(heads.here(group.generation), call, error)
            raise
        self._conclude(heads.here(group.generation))
        return False  # see once more whether everybody has it

    def _head(self, group: Group, call: Call[R]) -> Head:
        flags = Flag.MOVES if self._mesh.roster_moves(group.generation) else Flag.NONE
        flags |= Flag.FRESH if self._fresh else Flag.NONE
        flags |= Flag.STATE if call.asks_state and not self._ended else Flag.NONE
        flags |= Flag.ENDED if self._ended else Flag.NONE
        rounds, seen = (self._chronicle.settled, self._chronicle.known), self._chronicle.seen
        if seen is not None and seen.close.round == rounds[1]:
            flags |= Flag.SAW | (Flag.TOLD if seen.workers else Flag.NONE)
        return Head(self._place, self.version(), call.fingerprint, call.weight, flags, *rounds)

    def _shown(self, group: Group, heads: Heads) -> Unseen | None:
        """Have the round that is to be accounted for from a mate that has seen it whole; None if nobody has."""
        source = heads.witness
        if source is None:
            return None
        said = msgspec.msgpack.encode(self._chronicle.seen) if group.rank == source else b""
        try:
            shown = msgspec.msgpack.decode(broadcast_bytes(group, said, source), type=Unseen | None)
        except MALFORMED as error:
            raise LocalGroupError(f"what worker {group.members[source]} shows does not decode: {error}") from error
        return shown if shown is not None and shown.close.round == heads.known else None

    def _agree(self, group: Group, heads: Heads, call: Call[R], deadline: Deadline) -> None:
        """See that all workers make the same call.

        Raises:
            MeshMismatch: they do not, or this worker has just come and the others are at another.
            LocalGroupError: another worker has just come, and is at another.
        """
        if len({head.fingerprint for head in heads.all}) == 1:
            return
        if heads.strange:  # newcomers alone differ: their mates are to go on without them
            self._part(group, heads, call, deadline)
        leading = broadcast_bytes(group, call.text.encode(), 0).decode()
        others = [m for m, h in zip(group.members, heads.all, strict=True) if h.fingerprint != heads.all[0].fingerprint]
        raise MeshMismatch(
            f"this worker calls {call.text}, leader {group.members[0]} of its cluster calls {leading}; "
            f"workers that differ from it: {', '.join(others)}"
        )

    def _part(self, group: Group, heads: Heads, call: Call[R], deadline: Deadline) -> None:
        """Leave this group, as all do, but the newcomers for a while.

        All say once more that they are here. Who ends the group as soon as it knows cuts off others who do not know,
        and a newcomer that does not know comes again at once.
        """
        if group.rank not in heads.strange:
            group.all_gather(_PARTING)
            raise LocalGroupError(f"workers at another call: {', '.join(group.members[r] for r in heads.strange)}")
        with contextlib.suppress(LocalGroupError):
            group.all_gather(_PARTING)
        self._stand_aside(call, deadline)
        raise LocalGroupError("the others of the cluster are at another call")

    def _stand_aside(self, call: Call[R], deadline: Deadline) -> None:
        """Leave mates that are at another call to theirs for a while, and come again: they may be at this one by then.

        Who came again at once would be in their next group as well, and they would never get to a call.
        """
        self._drop()
        self._mesh.calls_yield(self._seen or (0, 0))
        deadline.sleep(self._aside, self._chronicle.wait)
        if deadline.over:
            raise MeshMismatch(f"this worker calls {call.text}, which the cluster that it has just joined never does")
        self._aside = min(2.0 * self._aside, _MOST_ASIDE)
        self._mesh.calls_ready(True)

    def _conclude(self, place: Place) -> None:
        self._place, self._fresh, self._ended = place, False, True

    def _fail(self, place: Place, call: Call[R], error: IctError) -> None:
        """The call that is in this place is over here, with an error; nobody gets an older answer for it."""
        self._last = Answer(call.fingerprint, in_bytes(error), _NOTHING, failed=True)
        self._place, self._fresh = place, False

    # ------------------------------------------------------------ bringing others up to date

    def _level(self, group: Group, heads: Heads, call: Call[R]) -> bool:
        """Bring whoever is behind up to date; whether there was anybody.

        Raises:
            RoundMissed: it is this worker, and nobody has its answer any more.
        """
        source = heads.giver
        if source is not None:
            self._hand(group, source, self._last, call, heads.needs, heads.newest)
        elif heads.teacher is not None:
            source = heads.teacher
            self._hand(group, source, self.lesson(), call, heads.taught, None)
        if heads.lost:
            missed = RoundMissed("the other workers of this cluster went on without this one")
            self._fail(heads.newest, call, missed)
            self._fresh, self._aside = True, _ASIDE  # its place is lost: it takes another as a newcomer does
            raise missed
        return source is not None or bool(heads.behind)

    def _hand(
        self, group: Group, source: int, answer: Answer | None, call: Call[R], wanted: bool, place: Place | None
    ) -> None:
        """Copy an answer from one rank to all, and take it for our own if it is wanted: of the call in a place.

        A lesson is of none that the others are at: who was taught is the newcomer that it was, anywhere in its program.
        """
        if group.rank == source:
            assert answer is not None, "who has ended a call has its answer"
            send(group, source, answer)
            return
        received = receive(group, source)
        if not wanted:
            return
        if received.fingerprint != call.fingerprint:
            mismatch = MeshMismatch(f"this worker calls {call.text}; the others of its cluster called something else")
            if place is not None:
                self._fail(place, call, mismatch)
            raise mismatch
        self._last, self._ended = received, True
        if place is not None:
            self._conclude(place)

    # ------------------------------------------------------------ the group

    def _regroup(self) -> Group:
        roster = self._mesh.wait_roster(self._seen)
        self._seen = roster.generation
        self._group = self._mesh.open_group(roster)
        return self._group

    def _moved(self) -> None:
        group = self._group
        self._drop()
        if group is not None and group.rank == 0:
            self._mesh.roster_boundary(self._place.call)

    def _broke(self, error: LocalGroupError) -> None:
        self._drop()
        if self._seen is not None:
            self._mesh.roster_failed(self._seen, str(error))

    def _gave_up(self, error: BaseException) -> None:
        """Let the others not wait for what this worker will not do, nor its own next call for a group that stands."""
        self._drop()
        if self._seen is not None and not isinstance(error, PeerClosed):
            with contextlib.suppress(PeerClosed):
                self._mesh.roster_failed(self._seen, f"{type(error).__name__} in a call")

    def _drop(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None


def _accept(call: Call[R], answer: Answer) -> R:
    if answer.failed:
        raise as_told(answer.encoded)
    return call.accept(answer)
