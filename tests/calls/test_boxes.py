"""What waits at a sender: who gets it, who is turned away, and that nothing is kept of tags that nobody uses."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import operator
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ictp2p.bulk.streams import RECEIPT
from ictp2p.calls.messages import Messages, checked_tag
from ictp2p.errors import ConfigError, ConnectionLost, PeerClosed, RoundAborted, RoundTimeout
from ictp2p.gossip.election import LeaderChanged
from ictp2p.machine import Notice
from ictp2p.types import ClusterId, PeerId

ME, OTHER = PeerId("a0"), ClusterId("b")
LEADER, HEIR = PeerId("b0"), PeerId("b1")
TAGS = st.integers(0, 1)
FOR_EVER = 1e9


@dataclass(eq=False)
class Ask:
    """A request for a message, as the leader of b sends it."""

    peer: PeerId
    tag: int
    task: asyncio.Task[bytes]
    """Gives the message, without its number."""


class Sender(RuleBasedStateMachine):
    """The leader of a sends to b, whose leader changes; so may a's."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.leader, self.other = LEADER, HEIR
        self.core = SimpleNamespace(leading=True, directory=SimpleNamespace(leader_of=lambda _: self.leader))
        self.notice: Callable[[Notice], None] = lambda _: None
        handlers: dict[str, Any] = {}
        peer: Any = SimpleNamespace(
            cluster="a",
            core=self.core,
            bulk=SimpleNamespace(serve=lambda kind, handler, limit: handlers.update({kind: handler})),
            subscribe=lambda subscriber: setattr(self, "notice", subscriber),
            random_bytes=lambda size: bytes(size - 1) + b"\7",
        )
        self.messages = Messages(peer)
        self.handler = handlers["message"]
        self.sends: dict[int, tuple[int, asyncio.Task[None]]] = {}
        self.asks: list[Ask] = []
        self.taken: defaultdict[tuple[PeerId, int], list[int]] = defaultdict(list)
        """What each leader of b has had under each tag."""
        self.had: dict[tuple[PeerId, int], int] = {}
        """The number of the last of these."""
        self.sent = 0

    def teardown(self) -> None:
        for task in [*(task for _, task in self.sends.values()), *(ask.task for ask in self.asks)]:
            task.cancel()
        self.settle()
        self.loop.close()
        assert not self.messages._boxes

    def settle(self) -> None:
        async def turns() -> None:
            for _ in range(20):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())
        self.hear()
        for number, (_, sending) in list(self.sends.items()):
            if sending.done():
                assert isinstance(error := sending.exception(), PeerClosed | None)
                assert error or any(number in numbers for numbers in self.taken.values()), "who is told so, was heard"
                del self.sends[number]

    def hear(self) -> None:
        for ask in [ask for ask in self.asks if ask.task.done()]:
            self.asks.remove(ask)
            if not ask.task.cancelled() and (error := ask.task.exception()) is None:
                assert ask.peer == self.leader
                self.taken[ask.peer, ask.tag].append(int(ask.task.result()))
            elif not ask.task.cancelled():
                assert isinstance(error, RoundAborted | ConnectionLost)
                assert isinstance(error, ConnectionLost) or not self.core.leading or ask.peer != self.leader

    @rule(tag=TAGS)
    @precondition(lambda self: self.core.leading)
    def send(self, tag: int) -> None:
        self.sent += 1
        body = torch.frombuffer(bytearray(b"%d" % self.sent), dtype=torch.uint8)
        sending = self.messages.send(body, b"", OTHER, tag, FOR_EVER)
        self.sends[self.sent] = tag, self.loop.create_task(sending)
        self.settle()

    @rule(tag=TAGS, end=st.sampled_from(["heard", "unheard", "broken"]))
    def the_leader_asks(self, tag: int, end: str) -> None:
        self.ask(self.leader, tag, end)

    @rule(tag=TAGS)
    def another_asks(self, tag: int) -> None:
        self.ask(self.other, tag, "heard")

    def ask(self, peer: PeerId, tag: int, end: str) -> None:
        """Ask for a message; say that it is there, which is heard or not; or the connection breaks before it is."""
        if any(ask.peer == peer and ask.tag == tag for ask in self.asks):
            return  # of each tag one asks at a time
        wanted = msgspec.msgpack.encode((OTHER, tag, b"", self.had.get((peer, tag), 0)))
        parts: AsyncGenerator[Any, None] = self.handler(peer, wanted)

        async def reply() -> bytes:
            whole = b""
            async with contextlib.aclosing(parts):
                async for part in parts:
                    whole += part
                    if part is RECEIPT and end == "broken":
                        raise ConnectionLost("with all of it on its way")
                    if part is RECEIPT:
                        self.had[peer, tag] = int.from_bytes(whole[-8:])
                        if end == "unheard":
                            break
            return whole[:-8]

        asked = Ask(peer, tag, self.loop.create_task(reply()))
        self.asks.append(asked)
        self.settle()
        assert asked.task.done() or (self.core.leading and peer == self.leader)

    @rule(data=st.data())
    @precondition(lambda self: self.asks)
    def stop_asking(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.asks)).task.cancel()
        self.settle()

    @rule(data=st.data())
    @precondition(lambda self: self.sends)
    def withdraw(self, data: st.DataObject) -> None:
        self.sends[data.draw(st.sampled_from(sorted(self.sends)))][1].cancel()
        self.settle()

    @rule()
    def another_leads_there(self) -> None:
        self.leader, self.other = self.other, self.leader

    @rule()
    def another_leads_here(self) -> None:
        self.core.leading = not self.core.leading
        self.notice(LeaderChanged(ME if self.core.leading else PeerId("a1"), 2))
        self.settle()

    @invariant()
    def each_tag_is_received_in_order_and_nothing_twice_by_the_same_leader(self) -> None:
        for numbers in self.taken.values():
            assert all(map(operator.lt, numbers, numbers[1:]))

    @invariant()
    def nothing_waits_in_vain(self) -> None:
        """For a message nobody waits who may have it; and at who does not lead, nobody waits at all."""
        assert self.core.leading or not self.asks
        waiting = {tag for tag, _ in self.sends.values()}
        assert not any(ask.peer == self.leader and ask.tag in waiting for ask in self.asks if self._first(ask))

    def _first(self, ask: Ask) -> bool:
        return ask is next(other for other in self.asks if other.tag == ask.tag)

    @invariant()
    def only_what_is_used_is_kept(self) -> None:
        used = {tag for tag, _ in self.sends.values()} | {ask.tag for ask in self.asks}
        assert set(self.messages._boxes) == {(OTHER, tag) for tag in used}


def test_messages_go_in_order_to_whoever_leads_when_they_are_sent_and_nothing_of_a_tag_is_kept() -> None:
    run_state_machine_as_test(Sender)


async def test_so_many_move_at_a_time_as_share_a_line_well_and_what_was_withdrawn_takes_no_place() -> None:
    handlers: list[Any] = []
    core = SimpleNamespace(leading=True, directory=SimpleNamespace(leader_of=lambda _: LEADER))
    bulk = SimpleNamespace(serve=lambda _, handler, limit: handlers.append(handler))
    peer: Any = SimpleNamespace(cluster="a", core=core, bulk=bulk, subscribe=lambda _: None, random_bytes=bytes)
    messages = Messages(peer)
    sends = [
        asyncio.create_task(messages.send(torch.full((1,), tag, dtype=torch.uint8), b"", OTHER, tag, FOR_EVER))
        for tag in range(6)
    ]
    replies = [handlers[0](LEADER, msgspec.msgpack.encode((OTHER, tag, b""))) for tag in range(6)]
    moving = [asyncio.create_task(anext(reply)) for reply in replies]
    for _ in range(20):
        await asyncio.sleep(0)
    assert [task.done() for task in moving] == [True] * 4 + [False] * 2
    sends[4].cancel()
    await ends(replies[0])
    assert [bytes(await moving[tag]) for tag in (0, 1, 2, 3, 5)] == [b"\0", b"\1", b"\2", b"\3", b"\5"]
    assert not moving[4].done()
    moving[4].cancel()
    for reply in replies[1:4] + replies[5:]:
        await ends(reply)
    await asyncio.gather(*sends, moving[4], return_exceptions=True)
    del replies, moving
    gc.collect()
    assert not messages._boxes
    assert not messages._moving


async def test_a_leader_that_stands_still_holds_up_nothing_of_its_heir_and_is_given_nothing_any_more() -> None:
    """Regression: what was on its way to a stopped leader kept its heir waiting until that connection had stalled."""
    handlers: list[Any] = []
    directory = SimpleNamespace(leader_of=lambda _: LEADER)
    bulk = SimpleNamespace(serve=lambda _, handler, limit: handlers.append(handler))
    core = SimpleNamespace(leading=True, directory=directory)
    peer: Any = SimpleNamespace(cluster="a", core=core, bulk=bulk, subscribe=lambda _: None, random_bytes=bytes)
    messages = Messages(peer)
    sends = [
        asyncio.create_task(messages.send(torch.full((1,), tag, dtype=torch.uint8), b"", OTHER, tag, FOR_EVER))
        for tag in range(4)
    ]
    await asyncio.sleep(0)
    asked = [msgspec.msgpack.encode((OTHER, tag, b"")) for tag in range(4)]
    standing = [handlers[0](LEADER, each) for each in asked]
    for reply in standing:
        await anext(reply)
    directory.leader_of = lambda _: HEIR
    given = [handlers[0](HEIR, each) for each in asked]
    for tag, reply in enumerate(given):
        assert bytes(await asyncio.wait_for(anext(reply), 5)) == bytes([tag])
    for reply in standing:
        with pytest.raises(RoundAborted, match="does not lead"):
            await anext(reply)
    for reply in given:
        await ends(reply)
    await asyncio.gather(*sends)


async def ends(reply: AsyncGenerator[Any, None]) -> None:
    """Say that all of a message is there: its number is what is left of it."""
    number, receipt = await anext(reply), await anext(reply)
    assert len(number) == 8
    assert receipt is RECEIPT
    with pytest.raises(StopAsyncIteration):
        await anext(reply)


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_integer_of_64_bits_is_a_tag(number: int) -> None:
    assert checked_tag(number) == number
    wide: Any = np.int64(number)
    assert type(checked_tag(wide)) is int
    assert checked_tag(wide) == number


@given(st.integers(2**63) | st.integers(max_value=-(2**63) - 1) | st.text() | st.floats() | st.none())
def test_what_is_none_is_said_at_the_call(tag: Any) -> None:
    with pytest.raises(ConfigError, match="tag"):
        checked_tag(tag)


async def test_of_a_cluster_that_nobody_asks_any_more_nothing_is_kept() -> None:
    """Each job of a scheduler may be a cluster of its own, for months."""
    directory = SimpleNamespace(leader_of=lambda _: None)
    peer: Any = SimpleNamespace(
        cluster="a",
        core=SimpleNamespace(leading=True, directory=directory),
        bulk=SimpleNamespace(serve=lambda *_: None),
        subscribe=lambda _: None,
        random_bytes=bytes,
    )
    messages = Messages(peer)
    asked = [messages.receive(4, b"", ClusterId(f"job{number}"), 0, 0.05) for number in (0, 0, 0, 0, 0, 1)]
    waiting = [asyncio.create_task(each) for each in asked]
    await asyncio.sleep(0)
    assert set(messages._asking) == {"job0", "job1"}
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, RoundTimeout) for result in results)
    del results, waiting, asked
    await asyncio.sleep(0)  # what the loop still has to call, knows it
    gc.collect()
    assert not messages._asking
