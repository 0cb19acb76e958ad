"""Whom a peer that leaves asks to hold the agreed state, and for how long: everything around it is made up."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ictp2p.errors import ConnectionLost, StateError
from ictp2p.gossip.messages import Status
from ictp2p.runtime.custody import KEPT, LEAVING, Wish
from ictp2p.runtime.handover import Handover
from ictp2p.sync.state.manifest import digest_of
from ictp2p.sync.values import StateRef
from ictp2p.telemetry import Telemetry
from ictp2p.types import PeerId
from tests.bulk.conftest import run_turns
from tests.meshed import config

MANIFEST = b"what the state consists of"
DIGEST = digest_of(MANIFEST)
LEADERS = {name: PeerId(f"leader of {name}") for name in "abcd"}
Answer = Callable[[], Awaitable[bytes]]


class Leaver:
    """Peer `a`, which leads its cluster and holds version 8, among others that answer as a test says."""

    def __init__(self, **answers: Answer) -> None:
        self.asked, self.warnings = list[str](), list[str]()
        self.statuses = dict.fromkeys("abcd", Status.ALIVE)
        self.seconds = dict.fromkeys("bcd", 1.0)
        self.training = dict.fromkeys("abcd", True)
        self.answers = answers
        self.encoded: bytes | StateError = MANIFEST
        self.leading, self.keeps = True, False
        self.agreed = StateRef(8, DIGEST, (LEADERS["a"],))
        loop = asyncio.get_running_loop()
        telemetry = Telemetry(loop.time)
        telemetry.subscribe(lambda event: self.warnings.append(event.fields["text"]))
        self.custody: Any = SimpleNamespace(keeps=False, leaving=False, manifest=self._manifest)
        core: Any = SimpleNamespace(
            card=SimpleNamespace(cluster="a"),
            leading=True,
            m=SimpleNamespace(
                rounds=SimpleNamespace(tip=None),
                mesh=SimpleNamespace(members={}),
                routes=SimpleNamespace(best=self._route),
            ),
            directory=SimpleNamespace(
                living=lambda: [SimpleNamespace(cluster=c, training=self.training[c]) for c in "abcd"],
                leader_of=LEADERS.get,
                cluster_of={peer: name for name, peer in LEADERS.items()}.get,
            ),
        )
        self.core = core
        bulk: Any = SimpleNamespace(request=self._request)
        self.handover = Handover(config("a", restore_after=120.0), core, bulk, self.custody, telemetry, loop.time)

    async def take(self) -> float:
        """Leave; for how long that took."""
        self.core.m.rounds.tip = (0, SimpleNamespace(state=self.agreed))
        self.core.m.mesh.members = {name: SimpleNamespace(status=s) for name, s in self.statuses.items()}
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(60.0):
            await self.handover.take()
        return asyncio.get_running_loop().time() - began

    async def _manifest(self, digest: bytes) -> bytes:
        if isinstance(self.encoded, StateError):
            raise self.encoded
        return self.encoded

    def _route(self, cluster: str, size: int) -> Any:
        seconds = self.seconds[cluster]
        return None if math.isinf(seconds) else SimpleNamespace(delay=seconds / 2, bandwidth=2 * size / seconds)

    async def _request(self, peer: PeerId, kind: str, payload: bytes, destination: bytearray, *, timeout: float) -> int:
        assert msgspec.msgpack.decode(payload, type=Wish) == Wish(8, DIGEST)
        name = next(name for name, leader in LEADERS.items() if leader == peer)
        self.asked.append(name)
        destination[:] = await self.answers[name]()
        return 1


async def has() -> bytes:
    return KEPT


async def leaves() -> bytes:
    return LEAVING


async def refuses() -> bytes:
    raise StateError("no room")


async def is_cut() -> bytes:
    raise ConnectionLost("the line is cut")


async def never() -> bytes:
    await asyncio.Event().wait()
    raise AssertionError


def on_turns(story: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Have a story run in virtual time."""
    return lambda: run_turns(story())


@pytest.mark.parametrize(
    ("holders", "training", "seconds", "order"),
    [
        ("ad", "bcd", {}, "dbc"),
        ("a", "cd", {}, "cdb"),
        ("a", "bcd", {"b": 3.0, "c": 2.0, "d": math.inf}, "cbd"),
        ("ac", "b", {"d": 0.5}, "cbd"),
    ],
    ids=["who should hold it", "who trains", "the quickest", "in this order"],
)
def test_those_are_asked_first_who_most_likely_have_it_soon(
    holders: str, training: str, seconds: dict[str, float], order: str
) -> None:
    async def story() -> None:
        leaver = Leaver(b=leaves, c=leaves, d=leaves)
        leaver.agreed = StateRef(8, DIGEST, tuple(LEADERS[name] for name in holders))
        leaver.training = {name: name in training for name in "abcd"}
        leaver.seconds.update(seconds)
        await leaver.take()
        assert "".join(leaver.asked) == order
        assert leaver.custody.leaving
        assert leaver.warnings == []

    run_turns(story())


@on_turns
async def test_once_one_has_it_no_other_is_asked_nor_any_a_second_time() -> None:
    leaver = Leaver(b=refuses, c=has)
    await leaver.take()
    await leaver.take()
    assert leaver.asked == ["b", "c"]
    assert leaver.warnings == []


@on_turns
async def test_that_nobody_has_it_is_told_with_every_reason() -> None:
    leaver = Leaver(b=refuses, c=is_cut)
    leaver.statuses["d"] = Status.DEAD
    await leaver.take()
    (warning,) = leaver.warnings
    assert warning.startswith("left with the only copy of version 8 of the state, so the others go back unless a ")
    assert "leader of b of b: no room; leader of c of c: the line is cut; d is out of reach" in warning


@on_turns
async def test_who_has_left_meanwhile_needs_it_no_more() -> None:
    leaver = Leaver(c=refuses)
    leaver.statuses |= {"b": Status.LEFT, "d": Status.LEFT}

    async def goes() -> bytes:
        leaver.core.m.mesh.members["c"].status = Status.LEFT
        raise ConnectionLost("closed")

    leaver.answers["c"] = goes
    await leaver.take()
    assert leaver.asked == ["c"]
    assert leaver.warnings == []


@on_turns
async def test_a_suspect_is_asked() -> None:
    leaver = Leaver(b=has)
    leaver.statuses["b"] = Status.SUSPECT
    await leaver.take()
    assert leaver.asked == ["b"]


@on_turns
async def test_nobody_is_waited_for_without_end() -> None:
    leaver = Leaver(b=never)
    seconds = await leaver.take()
    assert 19.9 < seconds < 20.1, "`complete`, which is the shorter one here"
    assert leaver.warnings[0].endswith("loaded: nobody had taken it in 20 s")
    assert await leaver.take() < 1.0, "it was tried"


@on_turns
async def test_a_state_that_has_a_successor_was_had_by_somebody() -> None:
    leaver = Leaver(b=never)
    loop = asyncio.get_running_loop()
    newer = 0, SimpleNamespace(state=StateRef(9, bytes(32), ()))
    loop.call_later(5.0, lambda: setattr(leaver.core.m.rounds, "tip", newer))
    assert await leaver.take() < 6.1
    assert leaver.warnings == []


def test_what_is_not_here_or_another_answers_for_is_handed_to_nobody() -> None:
    async def story(leaver: Leaver, asked: list[str]) -> None:
        await leaver.take()
        assert leaver.asked == asked
        assert leaver.warnings == []

    async def stories() -> None:
        follower, custodian, lagging, apart, new, chainless = (Leaver(b=has) for _ in range(6))
        follower.core.leading = custodian.core.leading = False
        custodian.custody.keeps = True
        lagging.encoded = StateError("gone")
        apart.encoded = b"of this cluster's own, by a name that all share"
        new.agreed = StateRef(0, b"", ())
        await story(follower, [])
        await story(custodian, ["b"])
        await story(lagging, [])
        await story(apart, [])
        await story(new, [])
        await chainless.handover.take()
        assert chainless.asked == []

    run_turns(stories())
