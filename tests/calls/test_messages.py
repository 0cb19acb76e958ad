"""Messages between leaders: in order, none twice, and what a death, a wrong shape or nobody at all does to them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

import ictp2p
from ictp2p.calls.messages import Messages
from ictp2p.errors import (
    ConfigError,
    MeshMismatch,
    PeerClosed,
    RemoteProtocolError,
    RoundAborted,
    RoundTimeout,
    Unreachable,
)
from ictp2p.types import ClusterId, PeerId
from tests.calls.callers import PATIENCE, TOKEN, Mesh, succeeded

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]


def test_messages_of_a_tag_arrive_in_order_and_any_number_is_under_way(mesh: Mesh) -> None:
    mesh.add("a/0", "b/0", "c/0").gather(3)

    def body(name: str, peer: ictp2p.Peer) -> Any:
        others = [cluster for cluster in "abc" if cluster != name[0]]
        sent, works = torch.zeros(50_000), []
        for number in range(12):
            sent.fill_(number)  # a message is a copy
            for other in others:
                pair = [sent, torch.tensor([True, bool(number % 2)])]
                works.append(peer.send(pair, other, tag=number % 2, async_op=True))
        room = {
            (other, number): [torch.zeros(50_000), torch.zeros(2, dtype=torch.bool)]
            for other in others
            for number in range(12)
        }
        works += [peer.recv(pair, other, tag=number % 2, async_op=True) for (other, number), pair in room.items()]
        for work in works:
            work.wait(PATIENCE)
        return all(
            bool((values == number).all()) and flags.tolist() == [True, bool(number % 2)]
            for (_, number), (values, flags) in room.items()
        )

    assert succeeded(mesh.run(body)) == [True] * 3


def test_who_waits_for_some_messages_holds_up_no_others(mesh: Mesh) -> None:
    """Regression: four that were not sent yet held up all of other tags, and a program that sent them later stood."""
    mesh.add("a/0", "b/0").gather(2)
    a, b = mesh["a/0"], mesh["b/0"]
    rooms = torch.zeros(40)
    works = [b.recv(rooms[tag : tag + 1], "a", tag=tag, async_op=True) for tag in range(40)]
    for tag in reversed(range(40)):
        a.send(torch.tensor([float(tag)]), "b", tag=tag, async_op=True)
        works[tag].wait(PATIENCE)
    assert rooms.tolist() == list(range(40))


async def test_who_has_to_ask_again_is_not_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: of two that waited for a sender, the later one got the first message, now and then."""
    peer: Any = SimpleNamespace(
        cluster="b",
        bulk=SimpleNamespace(serve=lambda *_: None),
        subscribe=lambda subscriber: None,
        random_bytes=bytes,
    )
    messages, answers = Messages(peer), iter([0, 1, 2])

    async def ask(source: str, tag: int, shapes: bytes, held: torch.Tensor, timeout: float) -> None:
        if not (number := next(answers)):
            raise Unreachable("it is not known")
        held.fill_(number)

    monkeypatch.setattr(messages, "_check", lambda source: None)
    monkeypatch.setattr(messages, "_ask", ask)
    asking = [asyncio.create_task(messages.receive(1, b"", ClusterId("a"), 7, PATIENCE)) for _ in range(2)]
    assert [int(each) for each in await asyncio.gather(*asking)] == [1, 2]


async def test_what_its_sender_has_withdrawn_is_not_given_by_what_is_still_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: who sends is told that it was not received, sends it once more, and it came twice."""
    messages = Messages(leader_of_a())
    for check in ("_check", "_check_leaders"):
        monkeypatch.setattr(messages, check, lambda *_: None)

    async def fill(box: Any, *_: Any) -> None:
        await box.filled.wait()

    monkeypatch.setattr(messages, "_fill", fill)
    sending = asyncio.create_task(messages.send(torch.ones(3), b"", ClusterId("b"), 7, 0.05))
    await asyncio.sleep(0)
    reply = messages._serve(PeerId("0" * 32), msgspec.msgpack.encode(("b", 7, b"")))
    assert len(await anext(reply)) == 3
    with pytest.raises(RoundTimeout, match="did not receive message 7"):
        await sending
    with pytest.raises(RoundAborted, match="withdrawn while it was under way"):
        await anext(reply)


async def test_who_sends_what_is_refused_is_told_why_nobody_took_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it was told that nobody had received it, an hour later, and of what else not a word."""
    messages = Messages(leader_of_a())
    for check in ("_check", "_check_leaders"):
        monkeypatch.setattr(messages, check, lambda *_: None)
    sending = asyncio.create_task(messages.send(torch.ones(3), b"float32[3]", ClusterId("b"), 7, 0.05))
    await asyncio.sleep(0)
    with pytest.raises(MeshMismatch):
        await anext(messages._serve(PeerId("0" * 32), msgspec.msgpack.encode(("b", 7, b"float32[5]"))))
    assert not sending.done(), "it may ask again"
    with pytest.raises(RoundTimeout, match=r": the message holds float32\[3\], there is room for float32\[5\]"):
        await sending


async def test_what_became_of_a_message_last_is_what_its_sender_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it was sent, and given up at the last moment; who asked again had room for something else."""
    messages = Messages(leader_of_a())
    for check in ("_check", "_check_leaders"):
        monkeypatch.setattr(messages, check, lambda *_: None)
    sending = asyncio.create_task(messages.send(torch.ones(3), b"float32[3]", ClusterId("b"), 7, 0.05))
    await asyncio.sleep(0)
    reply = messages._serve(PeerId("0" * 32), msgspec.msgpack.encode(("b", 7, b"float32[3]")))
    for _ in range(2):
        await anext(reply)
    await reply.aclose()
    with pytest.raises(MeshMismatch):
        await anext(messages._serve(PeerId("0" * 32), msgspec.msgpack.encode(("b", 7, b"float32[5]"))))
    with pytest.raises(RoundTimeout, match="there is room for"):
        await sending


async def test_who_sent_all_of_a_message_and_lost_the_connection_asks_for_the_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: who receives asks for no other of that tag, and both waited, one for its word and one for more."""
    receiver, sender = Messages(leader_of_a()), Messages(leader_of_a())
    for check in ("_check", "_check_leaders"):
        monkeypatch.setattr(sender, check, lambda *_: None)
    answers: Any = iter([Unreachable("not yet"), 0, 1])
    questions = []

    async def request(peer: PeerId, kind: str, payload: bytes, room: bytearray, *, timeout: float) -> int:
        questions.append((peer, kind))
        answer = next(answers)
        if isinstance(answer, Unreachable):
            raise answer
        if answer:
            receiver._had[PeerId("0" * 32), 7] = sender._posted
        async for part in receiver._say(PeerId("0" * 32), payload):
            room[:] = part
        return len(room)

    sender._peer.bulk.request = request  # type: ignore[method-assign, assignment]
    sending = asyncio.create_task(sender.send(torch.ones(3), b"", ClusterId("b"), 7, PATIENCE))
    await asyncio.sleep(0)
    for _ in range(2):  # of two connections that are lost, one after the other, the last one counts
        reply = sender._serve(PeerId("0" * 32), msgspec.msgpack.encode(("b", 7, b"")))
        for _ in range(3):
            await anext(reply)
        await reply.aclose()
        assert not sending.done()
    await asyncio.wait_for(sending, 5)
    assert questions == [("0" * 32, "message's word")] * 3
    with pytest.raises(RemoteProtocolError, match="does not decode"):
        await anext(receiver._say(PeerId("0" * 32), b"\xc1"))


async def test_of_who_leads_no_more_and_cannot_be_reached_no_word_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heir asks for the message by itself; and no question is left of a message that was withdrawn."""
    leaders = iter([PeerId("0" * 32), PeerId("1" * 32)])
    messages, asked = Messages(leader_of_a()), 0
    for check in ("_check", "_check_leaders"):
        monkeypatch.setattr(messages, check, lambda *_: None)
    messages._peer.core.directory.leader_of = lambda _: next(leaders)  # type: ignore[method-assign, assignment]

    async def request(*_: Any, **__: Any) -> int:
        nonlocal asked
        asked += 1
        raise Unreachable("it is gone")

    messages._peer.bulk.request = request  # type: ignore[method-assign]
    sending = asyncio.create_task(messages.send(torch.ones(3), b"", ClusterId("b"), 7, 1.0))
    await asyncio.sleep(0)
    reply = messages._serve(PeerId("0" * 32), msgspec.msgpack.encode(("b", 7, b"")))
    for _ in range(3):
        await anext(reply)
    await reply.aclose()
    (message,) = next(iter(messages._boxes.values())).waiting.values()
    assert message.asking is not None
    await asyncio.wait_for(asyncio.shield(message.asking), 5)
    assert asked == 2
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)


def leader_of_a(drawn: bytes = bytes(7)) -> Any:
    """A peer that knows who leads whatever cluster."""
    directory = SimpleNamespace(leader_of=lambda cluster: PeerId("0" * 32))
    bulk = SimpleNamespace(serve=lambda *_: None)
    core = SimpleNamespace(directory=directory)
    return SimpleNamespace(
        cluster="a", bulk=bulk, core=core, subscribe=lambda subscriber: None, random_bytes=lambda size: drawn
    )


def test_what_is_wrong_is_said_and_the_message_stays(mesh: Mesh) -> None:
    mesh.add("a/0", "b/0").gather(2)
    a, b = mesh["a/0"], mesh["b/0"]
    sending = a.send(torch.arange(4), "b", async_op=True)
    small = torch.full((3,), -1)
    with pytest.raises(MeshMismatch, match=r"holds int64\[4\], there is room for int64\[3\]"):
        b.recv(small, "a")
    assert small.tolist() == [-1] * 3
    assert not sending.done()
    right = torch.zeros(4, dtype=torch.int64)
    b.recv(right, "a")
    sending.wait(PATIENCE)
    assert right.tolist() == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match="cannot send to itself"):
        a.send(torch.ones(1), "a")
    wrong: Any = "grads"
    for call in (a.send, a.recv):
        with pytest.raises(ConfigError, match="a tag is an integer, not 'grads'"):
            call(torch.ones(1), "b", wrong)


def test_a_follower_leaves_messages_to_its_leader(mesh: Mesh) -> None:
    mesh.add("a/0", "a/1", "b/0").gather(2)
    (follower,) = {"a/0", "a/1"} - set(mesh.leaders())
    with pytest.raises(RoundAborted, match="does not lead cluster a"):
        mesh[follower].recv(torch.ones(1), "b")


def test_nobody_waits_for_ever(mesh: Mesh) -> None:
    config = ictp2p.Config.local(cluster="a", token=TOKEN)
    hasty = replace(config, global_timeouts=replace(config.global_timeouts, complete=0.6))
    with ictp2p.Peer(hasty) as peer:
        with pytest.raises(
            RoundTimeout, match=r"cluster b did not receive message 3 .*no leader of a cluster of that name"
        ):
            peer.send(torch.ones(1), "b", tag=3)
        with pytest.raises(RoundTimeout, match=r"cluster b sent no message 0 .*not known"):
            peer.recv(torch.ones(1), "b")
    waiting = mesh.add("c/0")["c/0"].recv(torch.ones(1), "d", async_op=True)
    mesh["c/0"].close()
    with pytest.raises(PeerClosed):
        waiting.wait(PATIENCE)


async def test_of_a_message_that_a_former_life_has_sent_nothing_is_concluded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver says what it has had last, to a sender that was started anew since: there that is no message."""
    numbers = []
    for life in range(2):
        messages = Messages(leader_of_a(bytes([life, *range(6)])))
        for check in ("_check", "_check_leaders"):
            monkeypatch.setattr(messages, check, lambda *_: None)
        sending = asyncio.create_task(messages.send(torch.ones(3), b"", ClusterId("b"), 7, PATIENCE))
        await asyncio.sleep(0)
        reply = messages._serve(PeerId("0" * 32), msgspec.msgpack.encode(("b", 7, b"", *numbers)))
        async with asyncio.timeout(5):
            assert len(await anext(reply)) == 3
        numbers.append(int.from_bytes(await anext(reply)))
        assert not sending.done()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await reply.aclose()
    assert numbers[0] != numbers[1]
