"""Calls of workers whose groups the test writes: each has a thread, and rounds are committed at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from ictp2p.calls.chronicle import Chronicle, Past
from ictp2p.calls.deadline import Deadline
from ictp2p.calls.handing import Answer
from ictp2p.calls.rounds import AllReduce, Barrier
from ictp2p.calls.runner import Runner
from ictp2p.calls.tensors import Addend, Bundle
from ictp2p.collectives.plan import one_shot_plan
from ictp2p.collectives.running.digest import result_digest
from ictp2p.errors import (
    Exhausted,
    IctError,
    LocalGroupError,
    MeshMismatch,
    NoQuorum,
    PeerClosed,
    RoundMissed,
    RoundTimeout,
)
from ictp2p.runtime.reduction import Outcome
from ictp2p.sync.agreement.chain import Decided
from ictp2p.sync.mesh import RoundRequest
from ictp2p.sync.values import Close, Open, Participant, StateRef
from ictp2p.types import ClusterId, PeerId
from tests.calls.test_chronicle import OTHER, closed, opened

A, B, C = (PeerId(letter * 32) for letter in "abc")
CLUSTER = ClusterId("a")
PATIENCE = 20.0
RESULT = 42.0
"""Of a round that somebody else has the result of."""
Job = Callable[[], Any]


class Meeting:
    """What the members of one group say to each other, turn by turn."""

    def __init__(self, number: int, *members: PeerId) -> None:
        self.generation, self.members = (1, number), members
        self._said: dict[int, dict[int, Any]] = {}
        self._changed = threading.Condition()
        self._over = False

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def swap(self, turn: int, rank: int, value: Any) -> list[Any]:
        with self._changed:
            said = self._said.setdefault(turn, {})
            if not self._over:
                said[rank] = value
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(said) == len(self.members) or self._over, PATIENCE)
            if len(said) < len(self.members):
                raise LocalGroupError("a member has gone")
            return [said[each] for each in range(len(self.members))]


class Group:
    """One member's side of it."""

    def __init__(self, meeting: Meeting, me: PeerId) -> None:
        self.generation, self.members = meeting.generation, meeting.members
        self.rank, self.size = meeting.members.index(me), len(meeting.members)
        self._meeting, self._turn = meeting, 0

    def _swap(self, value: Any) -> list[Any]:
        self._turn += 1
        return self._meeting.swap(self._turn, self.rank, value)

    def staging(self, elements: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(elements, dtype=dtype)

    def all_gather(self, data: bytes) -> list[bytes]:
        return self._swap(data)

    def all_reduce(self, tensor: Tensor) -> None:
        tensor.copy_(torch.stack(self._swap(tensor.clone())).sum(0))

    def broadcast(self, tensor: Tensor, root: int) -> None:
        tensor.copy_(self._swap(tensor.clone())[root])

    def close(self) -> None:
        self._meeting.end()


class Worker:
    """A runner, and a mesh that gives it the groups that the test wrote."""

    rounds = 0

    def __init__(self, me: PeerId, *meetings: Meeting) -> None:
        self.id, self._meetings = me, list(meetings)
        self.failed: list[str] = []
        self.yielded: list[tuple[int, int]] = []
        self.chronicle = Chronicle(me, CLUSTER)
        self.runner = Runner(self, self.chronicle, lambda: Deadline(PATIENCE, lambda: (True, "")))  # type: ignore[arg-type]

    def calls_ready(self, ready: bool) -> None: ...

    def calls_yield(self, generation: tuple[int, int]) -> None:
        self.yielded.append(generation)

    def hold_answer(self, digest: bytes, result: Tensor) -> None: ...

    def fetch_answer(self, opened: Open, close: Close, memory: Tensor) -> None:
        memory.copy_(torch.tensor([RESULT]).view(torch.uint8))

    def wait_for(self, future: object, idle: object) -> None:
        """It is here."""

    def roster_boundary(self, step: int) -> None: ...

    def empty(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def wait_roster(self, newer_than: object) -> Meeting:
        return self._meetings.pop(0)

    def open_group(self, roster: Meeting) -> Group:
        return Group(roster, self.id)

    def roster_moves(self, generation: object) -> bool:
        return False

    def roster_failed(self, generation: object, reason: str) -> None:
        self.failed.append(reason)

    def round(self, request: RoundRequest) -> Outcome:
        """Commit it, with its number added to the sum."""
        Worker.rounds += 1
        self.asked = request
        for output, given in zip(request.outputs, request.inputs, strict=True):
            output.copy_(given + Worker.rounds)
            request.progress(0, output.numel())
        request.restarted(1, ())
        digest, state = request.finish(), StateRef(0, b"", ())
        return Outcome(Worker.rounds, 1, (CLUSTER,), state, digest, 0.0, 0, 0, "star", "")

    def add(self, value: float) -> float | IctError:
        """Call `all_reduce`: what it came to, without the number of its round."""
        past: Any = Past(self.chronicle, self)  # type: ignore[arg-type]
        tensor, mesh = torch.tensor([value]), self
        try:
            done = self.runner.run(AllReduce(mesh, past, Addend(Bundle(tensor, written=True), "sum")))  # type: ignore[arg-type]
        except IctError as error:
            return error
        return tensor.item() - done.round

    def wait(self) -> None:
        past: Any = Past(self.chronicle, self)  # type: ignore[arg-type]
        self.runner.run(Barrier(self, past))  # type: ignore[arg-type]

    def leaves(self) -> None:
        """Its group breaks."""
        self.runner._drop()


def together(*jobs: Job) -> Sequence[Any]:
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda n=n, job=job: found.update({n: job()}), daemon=True)
        for n, job in enumerate(jobs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return [found[number] for number in range(len(jobs))]


def test_nobody_is_handed_an_older_answer_than_that_of_its_call() -> None:
    """Regression: who had been two calls behind had the answer from before, and gave it to who was one behind."""
    everybody, without_b, alone = Meeting(1, A, B, C), Meeting(2, A, C), Meeting(3, A)
    b_is_back, alone_again, c_is_back = Meeting(4, A, B), Meeting(5, A), Meeting(6, B, C)
    a = Worker(A, everybody, without_b, alone, b_is_back, alone_again)
    b, c = Worker(B, everybody, b_is_back, c_is_back), Worker(C, everybody, without_b, c_is_back)
    assert together(lambda: a.add(1.0), lambda: b.add(2.0), lambda: c.add(4.0)) == [7.0, 7.0, 7.0]
    a.leaves()  # b stands still
    assert together(lambda: a.add(1.0), lambda: c.add(4.0)) == [5.0, 5.0]
    a.leaves()  # and now c
    assert a.add(1.0) == 1.0
    a.leaves()
    _, (missed, _) = together(lambda: a.add(1.0), lambda: (b.add(2.0), b.leaves()))
    assert "went on without this one" in str(missed)
    c.leaves()  # a has gone for good, and c is one call behind
    ours, (missed, theirs) = together(lambda: b.add(2.0), lambda: (c.add(4.0), c.add(4.0)))
    assert "went on without this one" in str(missed)
    assert ours == theirs == 6.0


def test_a_newcomer_that_is_at_another_call_leaves_its_mates_to_theirs_and_comes_again() -> None:
    """Regression: all of them had `MeshMismatch`, at this call and at each after it."""
    mates, joined, again, later = Meeting(1, A, B), Meeting(2, A, B, C), Meeting(3, A, B), Meeting(4, A, B, C)
    a, b, c = Worker(A, mates, joined, again, later), Worker(B, mates, joined, again, later), Worker(C, joined, later)

    def calls(worker: Worker, value: float) -> list[Any]:
        first = worker.add(value)
        worker.leaves()  # for a newcomer
        worker.wait()
        worker.leaves()
        return [first, worker.add(value)]

    assert together(lambda: calls(a, 1.0), lambda: calls(b, 2.0), lambda: c.add(4.0)) == [[3.0, 7.0], [3.0, 7.0], 7.0]
    assert (a.yielded, b.yielded, c.yielded) == ([], [], [joined.generation])


class Lesson:
    """A call of a newcomer that asks for the state."""

    fingerprint, text, weight, asks_state = b"s" * 32, "sync_state", 1.0, True

    def accept(self, answer: Answer) -> bytes:
        return answer.encoded


def test_a_newcomer_that_was_shown_the_state_leaves_its_mates_to_theirs_all_the_same() -> None:
    """Regression: it counted the call that they had just ended for its own, and all had `MeshMismatch` at the next."""
    mates, joined, again, later = Meeting(1, A, B), Meeting(2, A, B, C), Meeting(3, A, B), Meeting(4, A, B, C)
    a, b, c = Worker(A, mates, joined, again, later), Worker(B, mates, joined, again, later), Worker(C, joined, later)

    def calls(worker: Worker, value: float) -> list[Any]:
        worker.runner.version = lambda: 1
        worker.runner.lesson = lambda: Answer(Lesson.fingerprint, b"the state", torch.empty(0, dtype=torch.uint8))
        found = [worker.add(value)]
        worker.leaves()  # for a newcomer
        worker.wait()
        worker.leaves()
        return [*found, worker.add(value)]

    def newcomer() -> list[Any]:
        call: Any = Lesson()
        return [c.runner.run(call), c.add(4.0)]

    found = together(lambda: calls(a, 1.0), lambda: calls(b, 2.0), newcomer)
    assert found == [[3.0, 7.0], [3.0, 7.0], [b"the state", 7.0]]


def test_who_slept_through_calls_is_a_newcomer_and_leaves_its_mates_to_theirs() -> None:
    """Regression: it counted with them, and all had `MeshMismatch` at each call of a loop of two, as it was between."""
    everybody, without = Meeting(1, A, B, C), [Meeting(number, A, B) for number in (2, 3, 4)]
    back, again, later = Meeting(5, A, B, C), Meeting(6, A, B), Meeting(7, A, B, C)
    a, b = (Worker(me, everybody, *without, back, again, later) for me in (A, B))
    c = Worker(C, everybody, back, later)

    def calls(worker: Worker, value: float) -> list[Any]:
        found = [worker.add(value)]
        for call in (worker.wait, lambda: found.append(worker.add(value)), worker.wait, lambda: None):
            worker.leaves()  # c stands still, and then comes back
            call()
        found.append(worker.add(value))
        worker.leaves()  # c has come to its barrier
        worker.wait()
        return found

    def sleeper() -> list[Any]:
        found = [c.add(4.0)]
        c.leaves()
        with pytest.raises(RoundMissed, match="went on without this one"):
            c.wait()
        c.leaves()
        c.wait()
        return found

    assert together(lambda: calls(a, 1.0), lambda: calls(b, 2.0), sleeper) == [[7.0, 3.0, 3.0], [7.0, 3.0, 3.0], [7.0]]


def test_a_round_that_a_cluster_missed_is_said_also_where_its_leader_has_started_since() -> None:
    """Regression: it knew of none, its mate only follows, and their calls went to the others' next ones for good."""
    first, second = Meeting(1, A, B), Meeting(2, A, B)
    b = Worker(B, first, second)
    assert together(lambda: Worker(A, first).add(1.0), lambda: b.add(2.0)) == [3.0, 3.0]
    b.leaves()
    missed, restarted = Worker.rounds + 1, Worker(A, second)
    for slot, value in enumerate((opened(missed, OTHER), closed(missed))):
        b.chronicle.notice(Decided(slot, value))
    restarted.chronicle.notice(Decided(2, opened(missed + 1, OTHER)))
    leader, follower = together(lambda: restarted.add(1.0), lambda: b.add(2.0))
    assert isinstance(leader, RoundMissed)
    assert str(follower) == f"at this cluster's leader: {leader}"
    assert f"round {missed} was decided without an answer" in str(leader)
    assert together(lambda: restarted.add(1.0), lambda: b.add(2.0)) == [3.0, 3.0]


def lost_by_its_leader(call: Callable[[Worker, float], Any]) -> Sequence[Any]:
    """What a call comes to at a leader that was started again when it had led it to its end, and at its mate."""
    first, second = Meeting(1, A, B), Meeting(2, A, B)
    leader, mate, restarted = Worker(A, first), Worker(B, first, second), Worker(A, second)
    together(lambda: call(leader, 1.0), lambda: call(mate, 2.0))
    mate.leaves()
    Worker.rounds += 1
    parts = (Participant(CLUSTER, A, 1, 1.0), Participant(ClusterId("b"), OTHER, 1, 1.0))
    begun = msgspec.structs.replace(opened(Worker.rounds, A), spec=leader.asked.spec, participants=parts)
    begun = msgspec.structs.replace(begun, plan=one_shot_plan((A, OTHER), begun.spec.elements).encode())
    digest = result_digest(torch.tensor([RESULT]).numpy().data)
    mate.chronicle.told(1, parts, (A, B))
    for slot, value in enumerate((begun, msgspec.structs.replace(closed(Worker.rounds), digest=digest))):
        mate.chronicle.notice(Decided(slot, value))
    restarted.chronicle.notice(Decided(2, opened(Worker.rounds + 1, OTHER)))
    found = together(lambda: call(restarted, 1.0), lambda: call(mate, 2.0))
    assert together(lambda: call(restarted, 1.0), lambda: call(mate, 2.0))[0] in (3.0, None), "they are in step"
    return found


def test_a_leader_that_was_started_again_has_the_answer_for_its_mates_by_what_they_saw() -> None:
    """Regression: all of them were told that they had missed a round that they were in."""
    missed, found = lost_by_its_leader(Worker.add)
    assert "was decided without this worker" in str(missed), "what its former life has made is none of its own"
    assert found == RESULT - Worker.rounds + 1  # of the round before the last
    assert lost_by_its_leader(lambda worker, value: worker.wait()) == [None, None]


def test_who_has_no_memory_for_a_call_lets_its_mates_not_wait_for_it() -> None:
    meeting, without, after = Meeting(1, A, B), Meeting(2, A), Meeting(3, A, B)
    a, b = Worker(A, meeting, without), Worker(B, meeting, after)

    def no_memory(nbytes: int) -> Tensor:
        raise Exhausted("no memory")

    b.empty = no_memory  # type: ignore[method-assign]
    found, error = together(lambda: a.add(1.0), lambda: b.add(2.0))
    assert found == 1.0
    assert isinstance(error, Exhausted)
    assert b.failed == ["Exhausted in a call"]


def failing(error: IctError, ours: Sequence[float], theirs: Sequence[float]) -> Sequence[Any]:
    """What the calls of a leader and its follower came to, if the second broke their group and failed at the leader."""
    first, second = Meeting(1, A, B), Meeting(2, A, B)
    a, b, commit, asked = Worker(A, first, second), Worker(B, first, second), Worker.round, list[RoundRequest]()

    def decide(request: RoundRequest) -> Outcome:
        asked.append(request)
        if len(asked) != 2:
            return commit(a, request)
        first.end()
        raise error

    def calls(worker: Worker, values: Sequence[float]) -> list[Any]:
        found = [worker.add(value) for value in values]
        worker.leaves()
        return found

    a.round = decide  # type: ignore[method-assign]
    return together(lambda: calls(a, ours), lambda: calls(b, theirs))


@pytest.mark.parametrize("kind", [MeshMismatch, RoundMissed])
def test_a_worker_whose_group_broke_is_told_of_what_ended_its_call_for_the_whole_cluster(kind: type[IctError]) -> None:
    """Regression: its call was paired with its mates' next one, which is another, or waited for it to its deadline."""
    error = kind("for the cluster")
    ours, (before, told, after) = failing(error, [1.0, 2.0, 4.0], [8.0, 16.0, 32.0])
    assert ours == [9.0, error, 36.0]
    assert (before, type(told), str(told), after) == (9.0, kind, "at this cluster's leader: for the cluster", 36.0)


@pytest.mark.parametrize("kind", [RoundTimeout, NoQuorum, PeerClosed, Exhausted])
def test_what_one_worker_alone_came_to_is_no_answer_for_its_mates(kind: type[IctError]) -> None:
    error = kind("for this worker")
    assert failing(error, [1.0, 2.0, 4.0], [8.0, 16.0]) == [[9.0, error, 20.0], [9.0, 20.0]]
