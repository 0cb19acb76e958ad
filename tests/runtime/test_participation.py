"""A leader's part in a round, on machines and connections of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ictp2p.collectives.channel import Receiver, Slots
from ictp2p.collectives.plan import BROADCAST, NO_PARENT, Plan, Share
from ictp2p.collectives.running.attempt import ExecuteProfile
from ictp2p.errors import MeshMismatch
from ictp2p.runtime.participation import Participation
from ictp2p.runtime.reduction import Reduction
from ictp2p.sync.agreement.quorum_watch import QuorumLost
from ictp2p.sync.rounds import notices
from ictp2p.sync.values import Close, Open, Participant, Spec, StateRef
from ictp2p.types import ClusterId, PeerId

ME, ROOT = PeerId("a" * 32), PeerId("b" * 32)
PLAN = Plan("star", (ME, ROOT), (Share(0, 4, 1, (1, NO_PARENT), (1, NO_PARENT)),), 2, 1.0, 1.0)
SPEC = Spec("reduce", "test", "float32", 4, "avg", "none")


class Wire:
    """Connections on which the test plays the root of the only share."""

    def __init__(self) -> None:
        self.slots = Slots(1 << 20)
        self.receivers: list[Receiver] = []

    async def attach(self, tag: bytes, receiver: Receiver, peers: Sequence[PeerId], **_: Any) -> Wire:
        self.receivers.append(receiver)
        return self

    def kick(self, peer: PeerId) -> None:
        """There is nothing that could pull."""

    def ahead(self, peer: PeerId) -> None:
        """Nothing is known."""

    def received(self, peer: PeerId) -> int:
        return 0

    def early(self, peer: PeerId) -> float:
        return 0.0

    def connections(self, peer: PeerId) -> int:
        return 1

    async def abort(self, reason: str, suspects: Sequence[PeerId], *, differ: bool = False) -> None:
        """There is nobody to tell."""

    def result(self, attempt: int, chunk: int, share: int = 0) -> None:
        receiver = self.receivers[attempt]
        place = receiver.destination(ROOT, False, share, chunk, 8)
        assert isinstance(place, memoryview)
        receiver.arrived(ROOT, False, share, chunk, place)


def opened(attempt: int, plan: Plan = PLAN, spec: Spec = SPEC) -> notices.RoundOpened:
    parts = (Participant("a", ME, 1, 1.0), Participant("b", ROOT, 1, 1.0))
    state = StateRef(0, b"", ())
    return notices.RoundOpened(Open(b"l", (ME,), state, ME, 1, attempt, spec, parts, plan.encode(), "", 9.0))


def part_of(
    wire: Wire,
    failed: list[str] | None = None,
    done: list[float] | None = None,
    doubted: list[PeerId] | None = None,
) -> Participation:
    machines: Any = SimpleNamespace()
    for name in ("ready", "withdraw", "progressed", "failed", "completed"):
        setattr(machines, name, lambda *_: [])
    if failed is not None:
        machines.failed = lambda round_, attempt, reason, *_: failed.append(f"{round_}.{attempt}: {reason}") or []
    if done is not None:
        machines.progressed = lambda round_, attempt, part, _now: done.append(part) or []
    rooms = SimpleNamespace(rounds=machines, election=SimpleNamespace(term=1))
    core = SimpleNamespace(leading=True, m=rooms)
    driver: Any = SimpleNamespace(core=core, clock=lambda: 0.0, call=lambda _, act: act(0.0))
    telemetry: Any = SimpleNamespace(event=lambda *_, **__: None)
    links: Any = wire
    doubt = (lambda _: None) if doubted is None else doubted.append
    return Participation(ME, ClusterId("a"), driver, links, telemetry, ExecuteProfile(), doubt)


async def test_what_an_attempt_still_brings_is_not_told_once_the_next_has_begun() -> None:
    wire, told = Wire(), []
    part = part_of(wire)
    work = Reduction(
        SPEC,
        [torch.ones(4)],
        [torch.zeros(4)],
        progress=lambda start, stop: told.append((start, stop)),
        restarted=lambda attempt, _: told.append(attempt),
    )
    standing = asyncio.get_running_loop().create_task(part.reduce(work))
    await asyncio.sleep(0)
    part.notice(opened(1))
    while not wire.receivers:
        await asyncio.sleep(0)
    wire.result(0, 0)
    assert told == [1, (0, 2)]
    part.notice(opened(2))
    wire.result(0, 1)  # before the loop has come to end it
    assert told == [1, (0, 2), 2]
    while len(wire.receivers) < 2:
        await asyncio.sleep(0)
    wire.result(1, 0)
    assert told[-1] == (0, 2)
    standing.cancel()
    await asyncio.wait([standing])


@pytest.mark.parametrize("ends", ["another attempt", "its caller", "a failure"])
async def test_whoever_was_in_an_attempt_that_came_to_nothing_is_doubted(ends: str) -> None:
    """Regression: the next attempt hung on the same dead connection, and so did each one after it."""
    wire, doubted = Wire(), list[PeerId]()
    part = part_of(wire, doubted=doubted)
    standing = asyncio.get_running_loop().create_task(part.reduce(Reduction(SPEC, [torch.ones(4)], [torch.zeros(4)])))
    await asyncio.sleep(0)
    part.notice(opened(1))
    while not wire.receivers:
        await asyncio.sleep(0)
    assert not doubted
    if ends == "another attempt":
        part.notice(opened(2))
    elif ends == "its caller":
        standing.cancel()
    else:
        wire.receivers[0].lost(ROOT, "gone", ())
    await passed(20)
    assert doubted == [ME, ROOT]
    standing.cancel()
    await asyncio.wait([standing])


async def test_a_plan_that_does_something_else_fails_the_attempt_and_not_the_caller() -> None:
    """Copied in place of summed, everybody would hold the same bytes, and they would be nobody's sum."""
    wire, failed = Wire(), list[str]()
    part = part_of(wire, failed)
    standing = asyncio.get_running_loop().create_task(part.reduce(Reduction(SPEC, [torch.ones(4)], [torch.zeros(4)])))
    await asyncio.sleep(0)
    up = (NO_PARENT, NO_PARENT)
    copies = replace(PLAN, kind=BROADCAST, shares=(replace(PLAN.shares[0], reduce_parents=up),))
    part.notice(opened(1, copies))
    await asyncio.sleep(0)
    assert failed == ["1.1: a plan of kind 'broadcast' does not do what a reduce is for"]
    assert not wire.receivers
    assert not standing.done()
    standing.cancel()
    await asyncio.wait([standing])


async def test_a_copy_from_another_cluster_than_the_one_named_fails_the_attempt() -> None:
    """All would hold the same bytes, and no digest tell that they are another's."""
    wire, failed = Wire(), list[str]()
    part = part_of(wire, failed)
    spec = replace(SPEC, kind="broadcast", name="broadcast@a")
    standing = asyncio.get_running_loop().create_task(part.reduce(Reduction(spec, [torch.ones(4)], [torch.zeros(4)])))
    await asyncio.sleep(0)
    copies = Share(0, 4, 1, (NO_PARENT, NO_PARENT), (1, NO_PARENT))
    part.notice(opened(1, replace(PLAN, kind=BROADCAST, shares=(copies,)), spec))
    await asyncio.sleep(0)
    assert failed == ["1.1: elements [0, 4) are not those of cluster b"]
    assert not wire.receivers
    standing.cancel()
    await asyncio.wait([standing])


@pytest.mark.parametrize(
    ("name", "roots", "said"),
    [("broadcast@b", (ROOT,), [0.5, 1.0]), ("all_gather", (ME, ROOT), [0.5, 1.0]), ("broadcast@a", (ME,), [1.0])],
    ids=["another's", "each its own", "our own"],
)
async def test_of_copies_those_are_waited_for_that_come_here(
    name: str, roots: tuple[PeerId, ...], said: list[float]
) -> None:
    """Of others nothing is told. Taken for not begun, an attempt nearly over would be given up for a wrong figure."""
    wire, done = Wire(), list[float]()
    part = part_of(wire, done=done)
    up, down = (NO_PARENT, NO_PARENT), {ME: (NO_PARENT, 0), ROOT: (1, NO_PARENT)}
    ours = [Share(4 * n, 4 * n + 4, (ME, ROOT).index(root), up, down[root]) for n, root in enumerate(roots)]
    copies = replace(PLAN, kind=BROADCAST, shares=tuple(ours))
    spec = replace(SPEC, kind="gather" if roots[1:] else "broadcast", name=name, elements=copies.elements)
    standing = asyncio.get_running_loop().create_task(
        part.reduce(Reduction(spec, [torch.ones(4)], [torch.zeros(copies.elements)]))
    )
    await asyncio.sleep(0)
    part.notice(opened(1, copies, spec))
    while not wire.receivers:
        await asyncio.sleep(0)
    for chunk in range(2 * (ROOT in roots)):
        wire.result(0, chunk, len(roots) - 1)
    assert done == said
    standing.cancel()
    await asyncio.wait([standing])


async def unfit() -> bytes:
    raise ValueError("the next state cannot be computed")


@pytest.mark.parametrize("end", ["no quorum", "deposed", "closed", "failed here", "cancelled", "committed"])
@pytest.mark.parametrize("bound", [True, False])
async def test_nothing_stands_for_a_caller_that_has_gone_on(end: str, bound: bool) -> None:
    """Regression: after `NoQuorum` the READY stood on, and every attempt of the others failed here, for ever."""
    part, said = part_of(Wire()), list[str]()
    part._rounds.ready = lambda *_: said.append("ready") or []  # type: ignore[method-assign, assignment]
    part._rounds.withdraw = lambda *_: said.append("withdraw") or []  # type: ignore[method-assign, assignment]
    spec = replace(SPEC, kind="barrier", elements=0)
    finish = unfit if end == "failed here" else None
    work = Reduction(spec, (), (), patient=False, finish=finish)
    standing = asyncio.get_running_loop().create_task(part.reduce(work))
    await asyncio.sleep(0)
    begun = replace(opened(1).open, spec=spec, plan=replace(PLAN, shares=()).encode())
    if bound or end in ("failed here", "committed"):
        part.notice(notices.RoundOpened(begun))
    if end == "no quorum":
        part.notice(QuorumLost((ME, ROOT), (ROOT,)))
    elif end == "deposed":
        part.deposed()
    elif end == "closed":
        part.closed()
    elif end == "cancelled":
        standing.cancel()
    elif end == "committed":
        head = (b"l", (ME,), StateRef(1, b"d", (ME,)), ME, 1, 1)
        part.notice(notices.RoundCommitted(begun, Close(*head, True, b"d", "", (ME,)), True))
    await asyncio.wait([standing])
    assert said == (["ready"] if end == "committed" else ["ready", "withdraw"])
    assert (standing.cancelled() or standing.exception() is not None) == (end != "committed")


class SlowWire(Wire):
    """Connections that need a while to bring to the others what an attempt that ends has still to say."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps
        self.holding = 0
        """Attempts that have not let go of the tensors."""
        self.most = 0
        self.cut_short = 0

    async def attach(self, tag: bytes, receiver: Receiver, peers: Sequence[PeerId], **_: Any) -> Wire:
        self.holding += 1
        self.most = max(self.most, self.holding)
        return await super().attach(tag, receiver, peers)

    async def abort(self, reason: str, suspects: Sequence[PeerId], *, differ: bool = False) -> None:
        try:
            await passed(self._steps)
        except asyncio.CancelledError:
            self.cut_short += 1
            raise
        finally:
            self.holding -= 1


async def passed(steps: int) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)


@given(
    ways=st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=5),
    steps=st.integers(0, 8),
)
@settings(deadline=None)
def test_an_attempt_that_ends_says_its_last_word_whole_and_the_next_waits_for_it(
    ways: list[tuple[bool, int]], steps: int
) -> None:
    """Regression: what ended an attempt was told twice, by its abort and by the next one, or by the caller's end."""

    async def main() -> None:
        wire = SlowWire(steps)
        part = part_of(wire)
        work = Reduction(SPEC, [torch.ones(4)], [torch.zeros(4)])
        standing = asyncio.get_running_loop().create_task(part.reduce(work))
        await asyncio.sleep(0)
        part.notice(opened(1))
        await passed(12)
        for number, (aborted, pause) in enumerate(ways, 1):
            if aborted:
                part.notice(notices.RoundAborted(opened(number).open, None))
                await passed(pause // 2)
            part.notice(opened(number + 1))
            await passed(pause)
        standing.cancel()
        await asyncio.wait([standing])
        assert (wire.holding, wire.most, wire.cut_short) == (0, 1, 0)

    asyncio.run(main())


async def test_who_is_cancelled_while_a_round_that_is_over_lets_go_of_its_tensors_is_cancelled() -> None:
    """Regression: it got what the round had come to, and one that goes from round to round went on for ever."""
    wire = SlowWire(5)
    part = part_of(wire)
    standing = asyncio.get_running_loop().create_task(part.reduce(Reduction(SPEC, [torch.ones(4)], [torch.zeros(4)])))
    await asyncio.sleep(0)
    part.notice(opened(1))
    await passed(3)
    assert wire.holding
    part.closed()
    await passed(2)
    assert not standing.done()
    standing.cancel()
    await asyncio.wait([standing])
    assert (standing.cancelled(), wire.holding, wire.cut_short) == (True, 0, 0)


async def test_who_is_the_odd_one_out_is_told_whom_it_differs_from_and_what_to_look_for() -> None:
    part = part_of(Wire())
    standing = asyncio.get_running_loop().create_task(part.reduce(Reduction(SPEC, [torch.ones(4)], [torch.zeros(4)])))
    await asyncio.sleep(0)
    part.notice(notices.OddOneOut(3, ((ClusterId("b"), ClusterId("c")), (ClusterId("a"),))))
    words = "3 rounds in a row were decided without cluster a: the results of a differ from that of b, c; look"
    with pytest.raises(MeshMismatch, match=words):
        await standing
