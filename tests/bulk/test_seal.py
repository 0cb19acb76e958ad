"""What both ciphers rest on (SP 800-38D, 8; RFC 7253, 5.1): no nonce comes twice under one key, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ictp2p.bulk import outbound
from ictp2p.bulk.ciphers import Cipher
from ictp2p.bulk.seal import Seal
from ictp2p.errors import IctError
from ictp2p.types import PeerId
from tests.bulk.conftest import Mesh, run_turns

PEERS = 3
pairs = st.permutations(range(PEERS)).map(lambda order: (order[0], order[1]))
events = st.lists(st.tuples(st.sampled_from(["ask", "reset", "block", "both"]), pairs), max_size=10)


async def echo(peer: PeerId, payload: bytes) -> AsyncGenerator[bytes, None]:
    yield payload * 100


async def ask(world: Mesh, a: int, b: int) -> None:
    with suppress(IctError):
        await world.bulks[world.names[a]].request(world.names[b], "echo", b"hello", bytearray(500), timeout=2)


@given(events)
@example([("ask", (0, 1)), ("reset", (0, 1)), ("ask", (0, 1))])
@example([("block", (0, 1)), ("block", (1, 0)), ("block", (0, 2)), ("ask", (0, 1))])  # no way is left
@settings(max_examples=30, deadline=None)
def test_no_nonce_comes_twice_under_one_key_however_connections_come_and_go(
    acts: list[tuple[str, tuple[int, int]]],
) -> None:
    used: list[tuple[bytes, bytes]] = []

    class Watched(Seal):
        def __init__(self, key: bytes, cipher: Cipher) -> None:
            super().__init__(key, cipher)
            self.key = key

        def _nonce(self) -> bytes:
            nonce = super()._nonce()
            used.append((self.key, nonce))
            return nonce

    async def story() -> None:
        world = Mesh(PEERS)
        for bulk in world.bulks.values():
            bulk.serve("echo", echo)
        for me in world.names:
            world.via[me] = [other for other in world.names if other != me]
        for act, (a, b) in acts:
            if act == "ask":
                await ask(world, a, b)
            elif act == "both":
                await asyncio.gather(ask(world, a, b), ask(world, b, a))
            elif act == "block":  # from now on by a ticket, or over the third
                world.block((a, b))
            else:
                for end in world.ends(a):
                    end.reset()
        await world.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbound, "Seal", Watched)
        run_turns(story())
    assert len(set(used)) == len(used)
    kinds = {act for act, _ in acts}
    assert used or "block" in kinds or kinds.isdisjoint({"ask", "both"}), "else there is a way"
