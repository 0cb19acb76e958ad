"""A state that is kept for others beside a worker's own, without sockets: bulk connections are calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch

from ictp2p.errors import ConnectionLost, RemoteProtocolError, StateError
from ictp2p.runtime.custody import KEPT, KIND, LEAVING, Custody, Wish
from ictp2p.runtime.state_provider import Here, serve_state
from ictp2p.sync.mesh import Receiver
from ictp2p.sync.state.global_state import GlobalState, entry
from ictp2p.sync.values import StateRef
from ictp2p.telemetry import Telemetry
from ictp2p.types import PeerId

GIVER, KEEPER = PeerId("giver"), PeerId("keeper")
ELEMENTS = 100_003


class Lines:
    """The handlers of all peers, and a line from each to each."""

    def __init__(self) -> None:
        self.handlers: dict[tuple[PeerId, str], Any] = {}
        self.asked: list[tuple[PeerId, str]] = []
        self.cut = False


class Line:
    """What one peer has of them."""

    def __init__(self, lines: Lines, me: PeerId) -> None:
        self.me, self._lines = me, lines
        self.lanes: Any = None

    def serve(self, kind: str, handler: Any, limit: int | None = None) -> None:
        self._lines.handlers[self.me, kind] = handler

    async def request(
        self,
        peer: PeerId,
        kind: str,
        payload: bytes,
        destination: bytearray | memoryview,
        *,
        progress: Callable[[int], None] = lambda filled: None,
        **_: Any,
    ) -> int:
        self._lines.asked.append((peer, kind))
        view, filled = memoryview(destination), 0
        async for part in self._lines.handlers[peer, kind](self.me, payload):
            if self._lines.cut:
                raise ConnectionLost(f"{peer} is cut off")
            view[filled : filled + len(part)] = part
            filled += len(part)
            progress(filled)
            await asyncio.sleep(0)
        return filled


def held(version: int, value: float, elements: int = ELEMENTS, sealed: bool = False) -> GlobalState:
    """A state of that version, or one at which that version is sealed, and has not landed."""
    state = GlobalState([entry("weight", torch.zeros(elements))], [("rate", "0.1")])
    for landed in [version - 1, version] if sealed else [version]:
        state.tentative["weight"].fill_(value if landed == version else 0.0)
        state.seal({"round": landed})
        if not (sealed and landed == version):
            state.commit(landed)
    return state


class Two:
    """A peer that leaves with version 8, and one that may keep it."""

    def __init__(self, own: GlobalState | None) -> None:
        self.lines, self.events = Lines(), list[str]()
        loop = asyncio.get_running_loop()
        telemetry = Telemetry(loop.time)
        telemetry.subscribe(lambda event: self.events.append(event.kind))
        self.state = held(8, 0.5)
        self.giver, self.keeper = (Custody(self._line(peer), telemetry, loop.time) for peer in (GIVER, KEEPER))
        self.giver.own = Here(self.state)
        serve_state(self._line(GIVER), self.giver)
        if own is not None:
            self.keeper.own = Here(own)
            serve_state(self._line(KEEPER), self.keeper)

    def _line(self, peer: PeerId) -> Any:
        return Line(self.lines, peer)

    async def give(self, version: int = 8) -> bytes:
        answer = bytearray(1)
        wish = msgspec.msgpack.encode(Wish(version, self.state.digest))
        await self._line(GIVER).request(KEEPER, KIND, wish, answer)
        return bytes(answer)

    @property
    def ref(self) -> StateRef:
        return StateRef(8, self.state.digest, (GIVER,))

    def fetched(self) -> int:
        """How often the giver was asked for its state, or a piece of it."""
        return self.lines.asked.count((GIVER, "state"))


async def test_what_is_kept_is_provided_beside_what_the_worker_holds() -> None:
    own = held(7, 0.25)
    two = Two(own)
    assert two.keeper.held() == (7, own.digest)
    assert await two.give() == KEPT
    assert two.events == ["state_kept"]
    assert two.keeper.keeps
    assert two.keeper.held() == (8, two.state.digest)
    for state in (own, two.state):
        assert await two.keeper.manifest(state.digest) == state.manifest(state.digest)
        assert await two.keeper.chunk(state.digest, 0) == state.chunk(state.digest, 0)
    with pytest.raises(StateError):
        await two.keeper.manifest(bytes(32))
    asked = two.fetched()
    assert await two.give() == KEPT
    assert two.fetched() == asked, "it is here"


async def test_the_worker_finds_it_here_and_nothing_is_kept_any_more() -> None:
    own = held(7, 0.25)
    two = Two(own)
    await two.give()
    asked = two.fetched()
    assert not await two.keeper.hand_on(StateRef(9, bytes(32), ()), own)
    assert await two.keeper.hand_on(two.ref, own)
    assert two.fetched() == asked
    assert (own.version, own.digest) == (8, two.state.digest)
    assert torch.equal(own.committed["weight"], two.state.committed["weight"])
    two.keeper.reached(7)
    assert two.keeper.keeps
    two.keeper.reached(8)
    assert not two.keeper.keeps
    assert two.keeper.held() == (8, own.digest)


@pytest.mark.parametrize("version", [8, 9])
async def test_a_worker_that_came_as_far_by_other_ways_needs_nothing_kept(version: int) -> None:
    own = held(7, 0.25)
    two = Two(own)
    await two.give()
    newer = held(version, 0.5)
    for index in own.expect(newer.manifest(newer.digest), newer.digest):
        own.take(index, memoryview(newer.chunk(newer.digest, index)))
    own.verified(version)
    assert two.keeper.held() == (version, newer.digest)
    assert not two.keeper.keeps


@pytest.mark.parametrize(
    "own",
    [lambda: held(8, 0.5), lambda: held(9, 0.75), lambda: held(8, 0.5, sealed=True)],
    ids=["held", "held, and a newer one", "sealed"],
)
async def test_what_is_here_already_is_not_fetched(own: Callable[[], GlobalState]) -> None:
    two = Two(own())
    assert await two.give() == KEPT
    assert not two.fetched()
    assert not two.keeper.keeps


async def test_a_state_that_is_gone_back_to_is_known_by_its_bytes() -> None:
    """Its number is another then: see `sync.rounds.restore`."""
    two = Two(held(8, 0.5))
    assert await two.give(version=10) == KEPT
    assert not two.fetched()


async def test_who_leaves_keeps_nothing() -> None:
    two = Two(held(7, 0.25))
    two.keeper.leaving = True
    assert await two.give() == LEAVING
    assert not two.fetched()


@pytest.mark.parametrize(
    ("own", "error"),
    [(None, "holds no state"), (lambda: held(7, 0.25, elements=5), "MeshMismatch|trains something else")],
    ids=["no state", "another model"],
)
async def test_who_cannot_keep_it_says_why(own: Callable[[], GlobalState] | None, error: str) -> None:
    two = Two(None if own is None else own())
    with pytest.raises(Exception, match=error):
        await two.give()
    assert not two.keeper.keeps


async def test_a_wish_that_does_not_decode_is_the_askers_fault() -> None:
    two = Two(held(7, 0.25))
    with pytest.raises(RemoteProtocolError, match="does not decode"):
        await anext(two.lines.handlers[KEEPER, KIND](GIVER, b"\x91"))


async def test_a_worker_that_comes_for_it_while_it_arrives_makes_it_needless() -> None:
    own = held(7, 0.25)
    two = Two(own)
    giving = asyncio.create_task(two.give())
    while not two.fetched():
        await asyncio.sleep(0)
    receiver: Receiver = own
    for index in receiver.expect(two.state.manifest(two.state.digest), two.state.digest):
        receiver.take(index, memoryview(two.state.chunk(two.state.digest, index)))
    receiver.verified(8)
    assert await giving == KEPT
    assert not two.keeper.keeps
    assert two.events == []
