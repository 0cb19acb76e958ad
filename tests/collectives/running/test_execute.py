"""The executor over a fake of the connections: what it refuses, what it asks of them. `tests/bulk` has the rest."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence

import pytest
import torch

from ictp2p.collectives.channel import CollectiveTimeout, ParticipantLost, Receiver, RoundTag, Slots
from ictp2p.collectives.plan import REDUCE, Plan, Share, one_shot_plan
from ictp2p.collectives.planning.schedules import star
from ictp2p.collectives.running.attempt import ExecuteProfile
from ictp2p.collectives.running.execute import all_reduce, broadcast, reduce
from ictp2p.errors import ConfigError, RemoteProtocolError
from ictp2p.types import PeerId
from tests.collectives.planning.planned import bytes_between

NAMES = (PeerId("0" * 32), PeerId("1" * 32))
PLAN = Plan("star", NAMES, tuple(Share(n * 50, n * 50 + 50, *t) for n, t in enumerate(star.trees(2))), 10, 1.0, 0.0)
TAG = RoundTag(b"lineage", 1, 2, PLAN.digest())


class FakeLinks:
    """Remembers what is asked of it; the test plays the other participant by calling the receiver."""

    def __init__(self) -> None:
        self.slots = Slots(1 << 20)
        self.receiver: Receiver | None = None
        self.rates: Sequence[float | None] | None = None
        self.log: list[str] = []
        self.full = False
        """Whether the kernel takes no more."""
        self.brought: Iterator[int] = itertools.repeat(0)
        """Bytes that the other has brought, at each look."""

    async def attach(
        self,
        tag: bytes,
        receiver: Receiver,
        peers: Sequence[PeerId],
        *,
        timeout: float,
        rates: Sequence[float | None] | None = None,
        whole: bytes | None = None,
        call: str = "",
        beside: Collection[PeerId] = (),
    ) -> FakeLinks:
        self.receiver, self.rates = receiver, rates
        self.log.append(f"attach {len(tag)} {[p[0] for p in peers]} {timeout:g}")
        return self

    def kick(self, peer: PeerId) -> None:
        """The test pulls by itself."""

    def ahead(self, peer: PeerId) -> int | None:
        return None

    def received(self, peer: PeerId) -> int:
        return next(self.brought)

    def early(self, peer: PeerId) -> float:
        return 0.0

    def connections(self, peer: PeerId) -> int:
        return 1

    async def flushed(self, timeout: float) -> None:
        self.log.append("flushed")
        if self.full:
            raise TimeoutError

    def detach(self) -> None:
        self.log.append("detach")

    async def abort(self, reason: str, suspects: Sequence[PeerId], *, differ: bool = False) -> None:
        self.log.append(f"abort {[s[0] for s in suspects]}")


async def begin(links: FakeLinks, **options: object) -> asyncio.Task[object]:
    inputs, outputs = [torch.ones(100)], [torch.zeros(100)]
    task: asyncio.Task[object] = asyncio.ensure_future(
        all_reduce(PLAN, 0, inputs, outputs, links, TAG, **options)  # type: ignore[arg-type]
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_a_loss_aborts_and_names_only_participants() -> None:
    links = FakeLinks()
    task = await begin(links)
    assert links.receiver is not None
    links.receiver.lost(NAMES[1], "reset", [PeerId("9" * 32)])
    with pytest.raises(ParticipantLost, match="reset") as caught:
        await task
    assert caught.value.suspects == (NAMES[1],)
    assert links.log == ["attach 16 ['1'] 10", "abort ['1']"]


async def test_who_has_given_and_got_everything_may_leave() -> None:
    names = (*NAMES, PeerId("2" * 32))
    shares = tuple(Share(n * 10, n * 10 + 10, *t) for n, t in enumerate(star.trees(3)))
    plan = Plan("star", names, shares, 10, 1.0, 0.0)
    links = FakeLinks()
    outputs = [torch.zeros(30)]
    task = asyncio.ensure_future(all_reduce(plan, 0, [torch.ones(30)], outputs, links, TAG, op="sum"))
    await asyncio.sleep(0)
    assert links.receiver is not None
    body = memoryview(bytearray(torch.ones(10).numpy().tobytes()))
    for peer in names[1:]:
        links.receiver.begun(peer)
        links.receiver.arrived(peer, True, 0, 0, body)
    for peer in names[1:]:
        while links.receiver.next_frame(peer):
            pass
    links.receiver.arrived(names[1], False, 1, 0, body)
    links.receiver.lost(names[1], "closed", ())
    assert not task.done()
    links.receiver.arrived(names[2], False, 2, 0, body)
    await task
    assert links.log[-2:] == ["flushed", "detach"]


async def test_who_does_not_begin_is_named_after_the_start_deadline() -> None:
    links = FakeLinks()
    task = await begin(links, profile=ExecuteProfile(start=0.049_999_999_999))
    with pytest.raises(CollectiveTimeout, match=r"did not begin within 0\.05 s") as caught:
        await task
    assert caught.value.suspects == (NAMES[1],)
    assert links.log[-1] == "abort ['1']"


@pytest.mark.parametrize(
    ("brought", "seconds"), [((0, 5000, 10_000, 11_000), "0.03"), (range(0, 10**6, 5000), "0.08"), ((0, 4000), "0.01")]
)
async def test_whose_word_stands_behind_something_else_has_longer_to_begin(
    brought: Iterable[int], seconds: str
) -> None:
    """Regression: on a slow line it stood behind what attempts before had left there, and each left more."""
    links = FakeLinks()
    links.brought = iter(brought)
    task = await begin(links, profile=ExecuteProfile(start=0.01))
    async with asyncio.timeout(10):
        with pytest.raises(CollectiveTimeout, match=f"did not begin within {seconds} s"):
            await task


async def test_what_does_not_leave_in_time_is_no_success() -> None:
    links = FakeLinks()
    links.full = True
    body = memoryview(torch.ones(10).numpy().tobytes())
    plan = one_shot_plan(NAMES, 10)
    task = asyncio.ensure_future(all_reduce(plan, 0, [torch.ones(10)], [torch.zeros(10)], links, TAG))
    await asyncio.sleep(0)
    assert links.receiver is not None
    links.receiver.begun(NAMES[1])
    links.receiver.arrived(NAMES[1], True, 0, 0, body)
    with pytest.raises(CollectiveTimeout, match=r"not all had left within 3600 s"):
        await task
    assert links.log[-2:] == ["flushed", "abort []"]


async def test_the_whole_has_a_deadline_too() -> None:
    links = FakeLinks()
    task = await begin(links, profile=ExecuteProfile(total=0.05))
    assert links.receiver is not None
    links.receiver.begun(NAMES[1])
    assert links.receiver.waiting_on(NAMES[1])
    with pytest.raises(CollectiveTimeout, match="waiting for") as caught:
        await task
    assert caught.value.suspects == (NAMES[1],)


async def test_a_body_of_the_wrong_size_is_the_senders_fault() -> None:
    links = FakeLinks()
    task = await begin(links)
    assert links.receiver is not None
    with pytest.raises(RemoteProtocolError, match=r"sent 36 bytes for .* expected 40"):
        links.receiver.destination(NAMES[1], True, 0, 0, 36)
    with pytest.raises(RemoteProtocolError, match="expected chunk"):
        links.receiver.destination(NAMES[1], False, 1, 99, 40)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert links.log[-1] == "abort []"


async def test_results_land_in_the_output_itself() -> None:
    links = FakeLinks()
    outputs = [torch.zeros(60), torch.zeros(40)]
    inputs = [torch.ones(60), torch.ones(40)]
    task = asyncio.ensure_future(all_reduce(PLAN, 0, inputs, outputs, links, TAG))
    await asyncio.sleep(0)
    assert links.receiver is not None
    place = links.receiver.destination(NAMES[1], False, 1, 0, 40)
    assert place is not None
    place[:] = bytes(torch.full((10,), 7.0).numpy().tobytes())
    assert outputs[0][50:].tolist() == [7.0] * 10
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_paced_edges_get_their_share_of_the_predicted_time() -> None:
    links = FakeLinks()
    task = await begin(links, profile=ExecuteProfile(pace=True))
    assert links.rates == pytest.approx([1.1 * 400])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert bytes_between(PLAN, 0, 1) == 400
    assert bytes_between(PLAN, 0, 0) == 0


async def test_who_gets_no_chunks_from_us_is_not_paced_at_nothing() -> None:
    links = FakeLinks()
    copied = Plan("broadcast", NAMES, (Share(0, 100, 1, (-1, -1), (1, -1)),), 10, 1.0, 0.0)
    assert bytes_between(copied, 0, 1) == 0
    task = asyncio.ensure_future(
        broadcast(copied, 0, [torch.zeros(100)], links, TAG, profile=ExecuteProfile(pace=True))
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert links.rates == [None]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def ones(size: int = 100) -> list[torch.Tensor]:
    return [torch.ones(size)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((PLAN, 0, ones(99), ones(99)), "100 elements of 99"),
        ((PLAN, 2, ones(), ones()), "index 2"),
        ((PLAN, 0, ones(), [torch.ones(60), torch.ones(40)]), "differ from inputs"),
        ((PLAN, 0, ones(), [torch.ones(100, dtype=torch.float64)]), "differ from inputs"),
    ],
)
async def test_what_does_not_fit_is_refused_before_anything_is_sent(
    arguments: tuple[object, ...], message: str
) -> None:
    links = FakeLinks()
    with pytest.raises(ConfigError, match=message):
        await all_reduce(*arguments, links, TAG)  # type: ignore[arg-type]
    assert not links.log


async def test_a_plan_for_other_inputs_is_refused_before_room_is_made_for_its_sums() -> None:
    """What passes through participant 0 of this plan has more bytes than there are."""
    parents = (2, 0, -1)
    share = Share(0, 1 << 60, 2, parents, parents)
    huge = Plan(REDUCE, (*NAMES, PeerId("2" * 32)), (share,), 10, 1.0, 0.0)
    with pytest.raises(ConfigError, match=f"shares cover {1 << 60} elements of 100"):
        await reduce(huge, 0, ones(), [], FakeLinks(), TAG)


async def test_an_output_may_not_share_memory_with_an_input() -> None:
    both = torch.ones(100)
    with pytest.raises(ConfigError, match="share memory"):
        await all_reduce(PLAN, 0, [both], [both], FakeLinks(), TAG)
    with pytest.raises(ConfigError, match="1 weights for 2"):
        await all_reduce(PLAN, 0, ones(), ones(), FakeLinks(), TAG, weights=[1.0])


async def test_chunks_beyond_the_wires_limit_are_refused() -> None:
    big = Plan("star", NAMES[:1], (Share(0, 10, 0, (-1,), (-1,)),), 1 << 21, 0.0, 0.0)
    with pytest.raises(ConfigError, match="exceed"):
        await broadcast(big, 0, [torch.ones(10)], FakeLinks(), TAG)


async def test_a_plan_that_asks_for_more_room_than_there_is_is_refused() -> None:
    links = FakeLinks()
    share = Share(0, 10, 0, (-1, 0), (-1, 0), links.slots.limit + 1)
    asked = Plan("star", NAMES, (share,), 10, 0.0, 0.0)
    with pytest.raises(ConfigError, match=f"asks for a room of {links.slots.limit + 1} bytes"):
        await all_reduce(asked, 0, ones(10), ones(10), links, TAG)


@pytest.mark.parametrize("op", ["avg", "sum"])
async def test_alone_the_result_is_ones_own(op: str) -> None:
    plan = Plan("star", NAMES[:1], (Share(0, 10, 0, (-1,), (-1,)),), 3, 0.0, 0.0)
    outputs = [torch.zeros(10)]
    stats = await all_reduce(plan, 0, ones(10), outputs, FakeLinks(), TAG, op=op, weights=[5.0])
    assert outputs[0].tolist() == [1.0] * 10
    assert stats.bytes_sent == 0


def test_slots_are_reused_last_in_first_out_and_bounded() -> None:
    slots = Slots(100)
    one, two, three = bytearray(50), bytearray(50), bytearray(50)
    for slot in (one, two, three):
        slots.give_back(slot)
    assert slots.borrow(40) is two
    assert slots.borrow(60) is not one
    assert len(slots.borrow(10)) == 10
