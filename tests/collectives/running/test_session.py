"""One participant's part in a collective: what it takes and refuses, what it gives, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from ictp2p.collectives.channel import EARLY_CHUNKS, ParticipantLost, Slots
from ictp2p.collectives.codecs.schemes import scheme
from ictp2p.collectives.plan import BROADCAST, NO_PARENT, REDUCE, Plan, Share, check
from ictp2p.collectives.planning.schedules import star
from ictp2p.collectives.running.coding import Coder
from ictp2p.collectives.running.exchange import Exchange
from ictp2p.collectives.running.fitting import scaled
from ictp2p.collectives.running.flat import Flat
from ictp2p.collectives.running.lane import Piece
from ictp2p.collectives.running.session import Session
from ictp2p.errors import RemoteProtocolError
from ictp2p.types import PeerId
from tests.collectives.planning.drawn_plans import plans
from tests.collectives.running.sessions import Chunk, Cords, World, chunk_of, hand, opened

NAMES = tuple(PeerId(f"{n:032x}") for n in range(4))
TYPES = (torch.int32, torch.float32, torch.bfloat16)
STRANGER = PeerId("9" * 32)


@st.composite
def plans_of_all_kinds(draw: st.DrawFn) -> Plan:
    plan = draw(plans())
    kind = draw(st.sampled_from([plan.kind, BROADCAST, REDUCE]))
    shares = plan.shares
    if kind == BROADCAST:
        nothing = (NO_PARENT,) * len(plan.participants)
        shares = tuple(structs.replace(share, reduce_parents=nothing) for share in shares)
    elif kind == REDUCE:
        shares = tuple(structs.replace(share, broadcast_parents=share.reduce_parents) for share in shares)
    plan = structs.replace(plan, kind=kind, shares=shares)
    assert check(plan, plan.participants, plan.elements) is None
    return plan


CHANCES = st.integers(0, 2**32).map(random.Random)
"""Not hypothesis's own, which mostly draws the first of what may happen."""
worlds = given(plans_of_all_kinds(), st.sampled_from(TYPES), CHANCES)


def ran(
    plan: Plan,
    dtype: torch.dtype,
    chance: random.Random,
    look: Callable[[World], object],
    *,
    prepare: Callable[[World], object] = lambda world: None,
    steps: int | None = None,
) -> None:
    """Let so many things happen, or all, and look at what there is then."""

    async def act() -> None:
        world = World(plan, dtype, chance)
        prepare(world)
        left = steps
        while left != 0 and await world.step():
            left = None if left is None else left - 1
        look(world)

    asyncio.run(act())


@worlds
@settings(max_examples=200)
def test_any_interleaving_ends_everywhere_with_the_right_elements(
    plan: Plan, dtype: torch.dtype, chance: random.Random
) -> None:
    """Whatever was dropped of what came before its time: else somebody would wait for it for good."""

    def look(world: World) -> None:
        for node, session in enumerate(world.sessions):
            assert session.ended.done(), f"{node} waits for {session.owing()}"
            assert session.ended.exception() is None
            assert world.results[node].tolist() == world.expected(node)
            assert all(session.next_frame(peer) is None for peer in session.peers)
            assert not any(session.waiting_on(peer) for peer in session.peers)
            assert world.slots[node].lent == 0
        for pair in world.wires:
            assert world.sent[pair].keys() == world.got[pair] == world.owed(*pair)

    ran(plan, dtype, chance, look)


@worlds
def test_progress_is_told_of_each_result_once_and_when_it_is_there(
    plan: Plan, dtype: torch.dtype, chance: random.Random
) -> None:
    def prepare(world: World) -> None:
        for node, session in enumerate(world.sessions):
            session._progress = lambda start, stop, node=node: tell(world, node, start, stop)

    def tell(world: World, node: int, start: int, stop: int) -> None:
        world.told[node].append((start, stop))
        before = [s for s in plan.shares if plan.kind == REDUCE and s.root != node and s.stop <= start]
        offset = start - sum(s.stop - s.start for s in before)
        there = slice(offset, offset + stop - start)
        assert world.results[node][there].tolist() == world.expected(node)[there]

    def look(world: World) -> None:
        for node, told in enumerate(world.told):
            assert sorted(told) == world.spans(node)

    ran(plan, dtype, chance, look, prepare=prepare)


@worlds
def test_nothing_is_taken_but_what_is_owed_in_its_length(plan: Plan, dtype: torch.dtype, chance: random.Random) -> None:
    """Before each chunk others are offered; none of them leaves a trace."""

    def wrong(world: World, source: int, target: int, chunk: Chunk) -> None:
        session, names = world.sessions[target], world.names
        peak, lent = session.staging_peak, world.slots[target].lent
        for size in {0, len(chunk.body) - 1, len(chunk.body) + 1, 2 * len(chunk.body)}:
            expected = rf"{names[source]} sent {size} bytes for .*, expected {len(chunk.body)}"
            with pytest.raises(RemoteProtocolError, match=expected):
                session.destination(names[source], *chunk.key, size)
        for _ in range(4):
            sender = chance.choice([source, chance.randrange(len(names))])
            key = (
                chance.choice([chunk.partial, not chunk.partial]),
                chance.choice([chunk.share, chance.randrange(-1, len(plan.shares) + 1)]),
                chunk.index + chance.choice([-1, 0, 1, 2]),
            )
            due = world.owed(sender, target) - world.got[sender, target]
            if key not in due:
                with pytest.raises(RemoteProtocolError, match=f"participant {sender} sent "):
                    session.destination(names[sender], *key, len(chunk.body))
        assert (session.staging_peak, world.slots[target].lent) == (peak, lent)

    def prepare(world: World) -> None:
        world.offer = lambda *offered: wrong(world, *offered)

    def look(world: World) -> None:
        for node in range(len(world.names)):
            assert world.results[node].tolist() == world.expected(node)

    ran(plan, dtype, chance, look, prepare=prepare)


@worlds
def test_each_neighbours_rate_is_that_of_what_goes_to_it(plan: Plan, dtype: torch.dtype, chance: random.Random) -> None:
    """As it lies on the wire: sums of halves are twice as long, and of a result that stays only a receipt goes."""

    def look(world: World) -> None:
        for node, session in enumerate(world.sessions):
            for peer, rate in zip(session.exchange.neighbours, session.rates(), strict=True):
                carried = sum(world.sent[node, peer].values())
                assert rate == (pytest.approx(1.1 * carried / (plan.seconds or 1e-3)) if carried else None)

    ran(plan, dtype, chance, look)


@worlds
def test_what_was_moved_is_counted(plan: Plan, dtype: torch.dtype, chance: random.Random) -> None:
    def look(world: World) -> None:
        for node, session in enumerate(world.sessions):
            assert session.sent == sum(sum(world.sent[node, peer].values()) for peer in session.exchange.neighbours)
            if plan.kind != REDUCE:  # else receipts come, which are no longer than nothing
                came = sum(sum(world.sent[peer, node].values()) for peer in session.exchange.neighbours)
                assert session.received == came

    ran(plan, dtype, chance, look)


_COPIES = Plan("broadcast", tuple("0123"), (Share(0, 1, 1, (NO_PARENT,) * 4, (1, NO_PARENT, 1, 1)),), 1, 0.0, 0.0)


@given(plans_of_all_kinds(), st.sampled_from(TYPES), CHANCES, st.integers(0, 40), st.booleans())
@example(_COPIES, torch.int32, random.Random(473), 27, False)  # what went ahead is to be sent again
@settings(max_examples=200)
def test_a_neighbour_is_missed_while_anything_is_owed_or_unheard(
    plan: Plan, dtype: torch.dtype, chance: random.Random, steps: int, blamed: bool
) -> None:
    def look(world: World) -> None:
        node, peer = chance.choice([*world.wires] or [(0, 0)])
        session, over = world.sessions[node], world.returned(node)
        if node == peer or over or node not in world.begun:
            return
        to_come = world.owed(peer, node) - world.got[peer, node]
        to_go = world.owed(node, peer) - world.sent[node, peer].keys()
        silent = [n for n in session.exchange.neighbours if (node, n) not in world.heard]
        assert session.waiting_on(world.names[peer]) == (bool(to_come) and peer not in silent)
        owing = [n for n in session.exchange.neighbours if world.owed(n, node) - world.got[n, node]]
        assert session.owing() == [world.names[n] for n in silent or owing]
        suspects = [STRANGER, *chance.sample(world.names, chance.randrange(len(world.names) + 1))] if blamed else []
        session.lost(world.names[peer], "reset", suspects)
        if not (to_come or to_go or (peer in silent and world.sent[node, peer])):
            if session.ended.done():
                assert session.ended.exception() is None
                assert session.exchange.finished
            return
        failed(session, world, peer, suspects)

    def failed(session: Session, world: World, peer: int, suspects: list[PeerId]) -> None:
        error = session.ended.exception()
        assert isinstance(error, ParticipantLost)
        assert str(error) == f"{world.names[peer]}: reset"
        named = [name for name in world.names if name in suspects]
        assert list(error.suspects) == (named or [world.names[peer]])
        session.lost(world.names[peer], "again", ())
        assert session.ended.exception() is error
        for each in session.exchange.neighbours:
            session.begun(world.names[each], again=64)
        assert all(session.next_frame(each) is None for each in session.peers), "it still gives the caller's memory"

    ran(plan, dtype, chance, look, steps=steps)


def ascending(size: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(size).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
async def test_a_dropped_sum_is_sent_again_as_it_was(dtype: torch.dtype) -> None:
    """Though another was made since where it was made: participant 1 passes sums on to 2, and others to 3."""
    shares = (
        Share(0, 4, 2, (1, 2, -1, 2), (2, 2, -1, 2)),
        Share(4, 8, 3, (1, 3, 3, -1), (3, 3, 3, -1)),
    )
    session = opened(Plan("tree", NAMES, shares, 4, 1.0, 0.0), 1, [ascending(8, dtype)], [torch.zeros(8, dtype=dtype)])
    session.attached(Cords())
    session.begun(NAMES[0])
    first = dict[PeerId, Chunk]()
    for number, peer in enumerate(NAMES[2:]):
        hand(session, NAMES[0], Chunk(True, number, 0, bytes(4 * dtype.itemsize)))
        first[peer] = chunk_of(out) if (out := session.next_frame(peer)) else pytest.fail("nothing went ahead")
    assert first[NAMES[2]].body != first[NAMES[3]].body
    for peer in NAMES[2:]:
        assert session.next_frame(peer) is None
        session.begun(peer, again=1)
        again = session.next_frame(peer)
        assert again is not None
        assert chunk_of(again) == first[peer]
        assert session.next_frame(peer) is None, "a third time"


async def test_what_was_encoded_ahead_is_sent_again_as_it_was() -> None:
    block, size = 4096, 3
    shares = tuple(Share(n * block, (n + 1) * block, *tree) for n, tree in enumerate(star.trees(size)))
    plan = Plan("star", NAMES[:size], shares, block, 1.0, 0.0, "int8")
    source, target = Flat([torch.randn(size * block)]), Flat([torch.zeros(size * block)])
    written = scheme("int8", size)
    assert written is not None
    coder = Coder(written, source, target, scaled(plan, None, "sum", source), 0, block)
    session = Session(plan, Exchange(plan, 0, coder.chunk_bytes), source, target, None, None, Slots(0), coder)
    session.attached(Cords())
    first = {peer: chunk_of(out) for peer in NAMES[1:size] if (out := session.next_frame(peer))}
    assert first.keys() == {*NAMES[1:size]}
    assert len({chunk.body for chunk in first.values()}) == 2
    for peer in NAMES[1:size]:
        session.begun(peer, again=1)
        again = session.next_frame(peer)
        assert again is not None
        assert chunk_of(again) == first[peer]


@pytest.mark.parametrize(
    ("size", "seconds", "early", "expected"),
    [
        (4000, 10.0, 0.1, 10),
        (4000, 10.0, 0.11, 11),
        (4000, 0.05, 0.1, EARLY_CHUNKS),
        (40, 0.05, 0.1, 10),
        (4000, 0.0, 0.1, 1),  # nobody knows
        (4000, 10.0, 1e-6, 1),
        (4000, 10.0, 0.0, 1),  # as to anybody
    ],
)
async def test_no_more_goes_ahead_than_leaves_in_a_round_trip(
    size: int, seconds: float, early: float, expected: int
) -> None:
    """Of an attempt that fails no more is left in the queue of a slow line, where it would hold up the next one."""
    copied = Plan(BROADCAST, NAMES[:2], (Share(0, size, 0, (-1, -1), (-1, 0)),), 4, seconds, 0.0)
    session = opened(copied, 0, [torch.ones(size)], ())
    session.attached(Cords(early=early))
    went = 0
    while session.next_frame(NAMES[1]) is not None:
        went += 1
    assert went == expected


async def test_what_was_kept_is_not_sent_again() -> None:
    copied = Plan(BROADCAST, NAMES[:2], (Share(0, 4, 0, (-1, -1), (-1, 0)),), 4, 1.0, 0.0)
    session = opened(copied, 0, [torch.ones(4)], ())
    session.attached(Cords())
    assert session.next_frame(NAMES[1]) is not None
    assert session.next_frame(NAMES[1]) is None
    assert not session.ended.done(), "who has not begun may have dropped it"
    session.begun(NAMES[1])
    assert session.next_frame(NAMES[1]) is None
    assert session.ended.done()


async def test_who_dies_with_its_connection_full_of_the_last_chunk_holds_up_nobody() -> None:
    """A full connection does not ask whether there is more, and one that is lost never will."""
    copied = Plan(BROADCAST, NAMES[:2], (Share(0, 4, 0, (-1, -1), (-1, 0)),), 4, 1.0, 0.0)
    session = opened(copied, 0, [torch.ones(4)], ())
    session.attached(Cords())
    session.begun(NAMES[1])
    assert session.next_frame(NAMES[1]) is not None
    assert not session.ended.done()
    session.lost(NAMES[1], "reset", ())
    assert session.ended.done()
    assert session.ended.exception() is None


@pytest.mark.parametrize("lost", [False, True])
async def test_nothing_refers_to_the_callers_memory_when_it_has_ended(lost: bool) -> None:
    """Connections, and the room for contributions, outlive a collective; and what fails is kept for a while."""
    plan = Plan("star", NAMES[:2], (Share(0, 4, 0, (-1, 0), (-1, 0)),), 4, 1.0, 0.0)
    mine, result = np.ones(4, np.float32), np.zeros(4, np.float32)
    held, cords, slots = [weakref.ref(mine), weakref.ref(result)], Cords(), Slots(1 << 20)
    session = opened(plan, 0, [torch.from_numpy(mine)], [torch.from_numpy(result)], None, slots)
    session.attached(cords)
    session.begun(NAMES[1])
    hand(session, NAMES[1], Chunk(True, 0, 0, torch.ones(4).numpy().tobytes()))
    if lost:
        session.lost(NAMES[1], "reset", ())
    else:
        assert session.next_frame(NAMES[1]) is not None
        assert session.next_frame(NAMES[1]) is None
    assert result.tolist() == [2.0] * 4
    error = session.ended.exception()
    assert isinstance(error, ParticipantLost) == lost
    del session, mine, result
    gc.collect()
    assert [each() for each in held] == [None, None]
    assert cords.kicked == {NAMES[1]}
    assert slots.borrow(16)


async def test_a_chunk_of_the_wrong_kind_is_named_whole() -> None:
    plan = Plan("star", NAMES[:2], (Share(0, 4, 0, (-1, 0), (-1, 0)),), 4, 1.0, 0.0)
    session = opened(plan, 0, [torch.ones(4)], [torch.zeros(4)])
    with pytest.raises(
        RemoteProtocolError, match=f"{NAMES[1]} sent 15 bytes for contribution 0 of share 0, expected 16"
    ):
        session.destination(NAMES[1], True, 0, 0, 15)
    with pytest.raises(RemoteProtocolError) as caught:
        session.destination(NAMES[1], False, 0, 0, 16)
    assert str(Piece(False, 0, 0)) in str(caught.value)


async def test_who_waited_for_a_chunk_that_went_ahead_is_told_once_it_has() -> None:
    """Nobody asks a session for chunks again that it did not say it has: see `BulkConnection.kick`."""
    nothing = (NO_PARENT,) * 3
    shares = (Share(0, 1, 0, nothing, (NO_PARENT, 0, NO_PARENT)), Share(1, 100, 0, nothing, (NO_PARENT, NO_PARENT, 0)))
    plan = Plan(BROADCAST, NAMES[:3], shares, 1, 60.0, 0.0)
    cords = Cords()
    session = opened(plan, 0, [torch.zeros(100, dtype=torch.uint8)], ())
    session.attached(cords)
    session.begun(NAMES[2])
    while session.next_frame(NAMES[2]) is not None:
        pass
    cords.kicked.clear()
    assert session.next_frame(NAMES[1]) is not None, "ahead of its beginning"
    await asyncio.sleep(0)
    assert NAMES[2] in cords.kicked
    assert session.next_frame(NAMES[2]) is not None
