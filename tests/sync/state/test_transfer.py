from __future__ import annotations

import heapq
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.errors import StateError
from ictp2p.sync.state.manifest import CHUNK, Entry, Manifest, digest_of
from ictp2p.sync.state.transfer import Ask, Fetch, TransferProfile
from ictp2p.types import PeerId


def manifest(count: int) -> Manifest:
    digests = b"".join(digest_of(b"%d" % i) for i in range(count))
    return Manifest((Entry("w", "uint8", (count * CHUNK,)),), (), (), digests)


class Sized(bytes):
    """A chunk's content, as large to the eye as a chunk."""

    def __len__(self) -> int:
        return CHUNK


class World:
    """Providers that deliver one chunk after the other at their speed, in virtual time."""

    def __init__(self, speeds: dict[str, float], count: int, profile: TransferProfile | None = None) -> None:
        self.fetch = Fetch(b"d", [PeerId(p) for p in speeds], profile)
        self.speeds, self.count = speeds, count
        self.now, self.order = 0.0, 0
        self.free = dict.fromkeys(speeds, 0.0)
        self.events: list[tuple[float, int, str, int]] = []
        self.delivered: dict[str, int] = dict.fromkeys(speeds, 0)
        self.most: dict[str, int] = dict.fromkeys(speeds, 0)
        self.dies: dict[str, float] = {}
        self.lies: set[tuple[str, int]] = set()
        self.errors: list[str] = []

    def ask(self) -> None:
        for ask in self.fetch.asks(self.now):
            if not ask.chunks:
                self.fetch.begin(manifest(self.count), range(self.count))
                self.ask()
                return
            for index in ask.chunks:
                start = max(self.now, self.free[ask.provider])
                self.free[ask.provider] = start + CHUNK / self.speeds[ask.provider]
                self.order += 1
                heapq.heappush(self.events, (self.free[ask.provider], self.order, ask.provider, index))
            owed = sum(event[2] == ask.provider for event in self.events)
            self.most[ask.provider] = max(self.most[ask.provider], owed)

    def run(self) -> float:
        self.ask()
        while not self.fetch.done:
            due = self.fetch.next_timeout()
            if self.events and (due is None or self.events[0][0] <= due):
                self.deliver(*heapq.heappop(self.events))
            else:
                assert due is not None, "nothing can happen any more"
                self.now = max(self.now, due)
                self.fetch.handle_timeout(self.now)
            self.ask()
        return self.now

    def deliver(self, at: float, _: int, provider: str, index: int) -> None:
        self.now = max(self.now, at)
        if at >= self.dies.get(provider, float("inf")):
            return
        content = b"wrong" if (provider, index) in self.lies else b"%d" % index
        try:
            if self.fetch.arrived(PeerId(provider), index, Sized(content), self.now):
                self.delivered[provider] += 1
        except StateError as error:
            self.errors.append(str(error))


MB = 1e6


def test_providers_share_in_proportion_to_their_speed() -> None:
    world = World({"fast": 100 * MB, "slow": 10 * MB}, 1000)
    seconds = world.run()
    assert sum(world.delivered.values()) == 1000
    assert world.delivered["fast"] / world.delivered["slow"] == pytest.approx(10, rel=0.25)
    assert seconds < 1.1 * 1000 * CHUNK / (110 * MB)
    assert world.most["slow"] <= 0.5 * 10 * MB / CHUNK + 1, "a failure costs half a second of a provider's work at most"


def test_at_the_end_nobody_waits_for_the_slow_one() -> None:
    world = World({"fast": 100 * MB, "glacial": 0.1 * MB}, 200)
    assert world.run() < 1.1 * 200 * CHUNK / (100 * MB)


def test_the_manifest_is_asked_of_one() -> None:
    fetch = Fetch(b"d", [PeerId("a"), PeerId("b")])
    assert fetch.asks(0.0) == [Ask(PeerId("a"), ())]
    assert fetch.asks(0.0) == []
    fetch.failed(PeerId("a"), "gone", 1.0)
    assert fetch.asks(1.0) == [Ask(PeerId("b"), ())]


def test_a_provider_whose_connection_brings_something_else_is_waited_for_and_not_for_ever() -> None:
    fetch = Fetch(b"d", [PeerId("a")], TransferProfile(patience=3.0, longest=8.0))
    fetch.asks(0.0)
    for second in range(1, 8):
        fetch.moving(PeerId("a"), float(second))
        assert fetch.handle_timeout(second + 0.9) == []
        assert fetch.next_timeout() == min(second + 3.0, 8.0)
    assert fetch.handle_timeout(8.0) == ["a"]


def test_a_silent_provider_of_the_manifest_is_given_up() -> None:
    fetch = Fetch(b"d", [PeerId("a")], TransferProfile(patience=3.0))
    fetch.asks(0.0)
    assert fetch.next_timeout() == 3.0
    assert fetch.handle_timeout(3.0) == ["a"]
    fetch.add(PeerId("b"))
    assert fetch.asks(3.0) == [Ask(PeerId("b"), ())]


def test_a_manifest_that_does_not_come_is_asked_of_one_more_at_a_time() -> None:
    """Regression: six providers, all dead and none refusing, were waited for one after the other: for ten minutes."""
    fetch = Fetch(b"d", [PeerId("a"), PeerId("b"), PeerId("c")], TransferProfile(patience=9.0, hedge=2.0))
    assert fetch.asks(0.0) == [Ask(PeerId("a"), ())]
    assert fetch.asks(1.0) == []
    assert fetch.next_timeout() == 2.0
    assert fetch.asks(2.0) == [Ask(PeerId("b"), ())]
    assert fetch.next_timeout() == 4.0
    assert fetch.asks(4.0) == [Ask(PeerId("c"), ())]
    assert fetch.next_timeout() == 9.0


def test_wrong_bytes_ban_their_provider_by_name_and_only_it() -> None:
    world = World({"honest": 10 * MB, "liar": 10 * MB}, 100)
    world.lies = {("liar", i) for i in range(100) if i % 7 == 0}
    world.run()
    assert len(world.errors) == 1
    assert "provider liar" in world.errors[0]
    assert "wrong bytes" in world.errors[0]
    assert sum(world.delivered.values()) == 100


def test_if_all_lie_the_error_names_all() -> None:
    world = World({"liar": 10 * MB, "cheat": 10 * MB}, 10)
    world.lies = {(p, i) for p in ("liar", "cheat") for i in range(10)}
    with pytest.raises(StateError, match=r"liar: chunk \d has wrong bytes; cheat: chunk \d has wrong"):
        world.run()


def test_a_dead_provider_costs_its_patience_and_nothing_that_arrived() -> None:
    world = World({"a": 10 * MB, "b": 10 * MB}, 200, TransferProfile(patience=2.0))
    world.dies = {"b": 5.0}
    world.run()
    assert sum(world.delivered.values()) == 200
    assert world.delivered["b"] >= 40


def test_a_provider_that_fails_is_tried_again_after_a_growing_pause_then_given_up() -> None:
    fetch = Fetch(b"d", [PeerId("a")], TransferProfile(pause=1.0, attempts=3))
    for now, ready in ((0.0, 1.0), (1.0, 3.0)):
        assert len(fetch.asks(now)) == 1
        fetch.failed(PeerId("a"), "refused", now)
        assert fetch.asks(now) == []
        assert fetch.next_timeout() == ready
    assert len(fetch.asks(3.0)) == 1
    fetch.failed(PeerId("a"), "refused", 3.0)
    with pytest.raises(StateError, match="a: refused"):
        fetch.asks(9.0)
    fetch.add(PeerId("b"))
    assert fetch.asks(9.0) == [Ask(PeerId("b"), ())]


def test_questions_that_break_together_are_one_failure() -> None:
    fetch = Fetch(b"d", [PeerId("a")], TransferProfile(pause=1.0, attempts=3))
    content = manifest(10)
    fetch.begin(content, range(10))
    assert fetch.asks(0.0) == [Ask(PeerId("a"), (0, 1))]
    assert fetch.arrived(PeerId("a"), 0, Sized(b"0"), 0.01)
    assert fetch.asks(0.01), "a second question is under way before the first one is answered"
    for _ in range(5):
        fetch.failed(PeerId("a"), "lost", 1.0)
    assert fetch.asks(1.0) == []
    assert fetch.next_timeout() == 2.0, "the first pause: it failed once"
    assert fetch.asks(2.0)


def test_who_delivers_in_bursts_is_asked_for_what_it_delivers_on_the_whole() -> None:
    """Regression: chunks that came at once were taken for a rate, and many seconds of work were asked for."""
    fetch, now = Fetch(b"d", [PeerId("a")]), 0.0
    fetch.begin(manifest(2000), range(2000))
    owed: list[int] = []
    whole, most = 4 * CHUNK / 0.2, 0
    for _ in range(100):  # four chunks at once, and then nothing
        owed += [index for ask in fetch.asks(now) for index in ask.chunks]
        now += 0.2
        for index in owed[:4]:
            now += 1e-4
            fetch.arrived(PeerId("a"), index, Sized(b"%d" % index), now)
        owed = owed[4:]
        owed += [index for ask in fetch.asks(now) for index in ask.chunks]
        most = max(most, len(owed))
    assert most <= 3 * 0.5 * whole / CHUNK, "a failure costs about half a second of a provider's work"


class Striped(World):
    """Providers to each of whom there are further connections, after a while."""

    def widen(self, speeds: dict[str, float]) -> list[str]:
        names = [str(self.fetch.lane(PeerId(provider))) for provider in speeds]
        for name, speed in zip(names, speeds.values(), strict=True):
            self.speeds[name], self.free[name], self.delivered[name], self.most[name] = speed, self.now, 0, 0
        return names


@given(
    speeds=st.lists(st.floats(1 * MB, 50 * MB), min_size=1, max_size=3),
    deaths=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=3),
)
@settings(deadline=None)
def test_a_further_connection_that_is_lost_costs_only_what_it_owed(speeds: list[float], deaths: list[float]) -> None:
    world = Striped({"a": 10 * MB}, 150, TransferProfile(patience=2.0))
    world.ask()
    world.deliver(*heapq.heappop(world.events))
    names = world.widen(dict.fromkeys(["a"], speeds[0]))
    for speed in speeds[1:]:
        names += world.widen({"a": speed})
    world.dies = dict(zip(names, deaths, strict=False))
    world.run()
    assert sum(world.delivered.values()) == 150
    assert world.fetch.done


def test_wrong_bytes_over_one_connection_ban_their_provider_on_all() -> None:
    world = Striped({"liar": 10 * MB, "honest": 10 * MB}, 200)
    world.ask()
    world.deliver(*heapq.heappop(world.events))
    (lane,) = world.widen({"liar": 10 * MB})
    world.lies = {(lane, index) for index in range(200)}
    world.run()
    assert [error[:13] for error in world.errors] == ["provider liar"]
    asked = dict(world.delivered)
    assert asked[lane] == 0
    assert asked["honest"] > 150, "nobody who lied was asked again, over whichever connection"


def test_a_connection_that_is_let_go_is_asked_for_nothing_and_what_it_owes_counts() -> None:
    world = Striped({"a": 10 * MB}, 300)
    world.ask()
    world.deliver(*heapq.heappop(world.events))
    (kept,) = world.widen({"a": 10 * MB})
    (lane,) = world.widen({"a": 10 * MB})
    world.ask()
    owed = len(world.fetch._providers[PeerId(lane)].owed)
    assert owed > 0
    world.fetch.narrow([PeerId(lane)])
    world.run()
    assert world.delivered[lane] == owed
    assert world.delivered[kept] > 100
    assert sum(world.delivered.values()) == 300


def test_only_what_is_missing_is_asked_for() -> None:
    fetch = Fetch(b"d", [PeerId("a")])
    fetch.begin(manifest(10), [3, 7])
    assert fetch.asks(0.0) == [Ask(PeerId("a"), (3, 7))]
    assert fetch.remaining == 2
    assert not fetch.arrived(PeerId("a"), 4, Sized(b"4"), 1.0), "nobody asked"
    assert fetch.arrived(PeerId("a"), 3, Sized(b"3"), 1.0)
    assert fetch.arrived(PeerId("a"), 7, Sized(b"7"), 1.1)
    assert fetch.done
    assert fetch.asks(2.0) == []
    assert fetch.next_timeout() is None


def test_nobody_to_ask_is_an_error() -> None:
    with pytest.raises(StateError, match="none is known"):
        Fetch(b"d", []).asks(0.0)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_every_chunk_arrives_once_whatever_happens_as_long_as_one_provider_lives(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    names = [f"p{i}" for i in range(data.draw(st.integers(1, 4)))]
    world = World({n: rng.choice([0.5, 5, 50]) * MB for n in names}, rng.randrange(60), TransferProfile(patience=6.0))
    world.dies = {n: rng.uniform(0, 5) for n in names[1:] if rng.random() < 0.5}
    world.lies = {(n, rng.randrange(60)) for n in names[1:] if rng.random() < 0.5}
    world.run()
    assert sum(world.delivered.values()) == world.count
    assert len(world.errors) <= len({n for n, _ in world.lies})
