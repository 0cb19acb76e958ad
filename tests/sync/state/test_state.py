from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ictp2p.errors import ConfigError, MeshMismatch, StateError
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import CHUNK, Entry, digest_of, extent, read
from tests.sync.state.resident import resident
from tests.sync.state.states import ENTRIES, HUGE, NAMES, SETTINGS, WIDE, filled, receive, whole

PATIENCE = 30.0


def test_equal_content_has_one_digest_and_a_bit_makes_another() -> None:
    one, other = filled(1), filled(1)
    assert one.digest == other.digest
    other.begin()["w"].view(torch.int32)[699, 499] ^= 1
    assert other.seal({"round": 0}) != one.digest


@pytest.mark.parametrize("counters", [{"round": 1}, {"rounds": 0}, {}])
def test_the_counters_are_part_of_the_digest(counters: dict[str, int]) -> None:
    state = filled(1)
    state.begin()
    assert state.seal({"round": 0}) == state.digest
    assert state.seal(counters) != state.digest


@pytest.mark.parametrize(
    ("entries", "settings"), [([Entry("w" * 1025, "float32", (1,))], []), ([], [("inner", "x" * 1025)])]
)
def test_what_nobody_else_could_read_is_refused(entries: list[Entry], settings: list[tuple[str, str]]) -> None:
    with pytest.raises(ConfigError, match="1025 characters"):
        GlobalState(entries, settings)


def test_names_and_settings_are_part_of_the_digest() -> None:
    renamed = [Entry("v", "float32", (700, 500)), *ENTRIES[1:]]
    digests = {filled(1).digest, filled(1, renamed).digest, filled(1, settings=[("policy", "x")]).digest}
    assert len(digests) == 3


def test_rollback_leaves_the_committed_bytes_alone() -> None:
    state = filled(1)
    before, digest = bytes(state.memory(committed=True)), state.digest
    state.begin()["w"].fill_(float("nan"))
    state.seal({"round": 1})
    state.rollback()
    assert bytes(state.memory(committed=True)) == before
    assert (state.digest, state.version, state.counters) == (digest, 1, {"round": 0})
    assert state.manifest(digest)


def test_commit_exchanges_without_copying() -> None:
    state = filled(1)
    address = state.tentative["w"].data_ptr()
    state.begin()["w"].add_(1.0)
    digest = state.seal({"round": 1})
    state.commit(2)
    assert state.committed["w"].data_ptr() == address
    assert (state.digest, state.version, state.counters) == (digest, 2, {"round": 1})


@settings(max_examples=20)
@given(NAMES)
def test_the_sealed_state_is_served_beside_the_committed_one_until_it_is_written_to(names: set[str]) -> None:
    """The mesh may have agreed on it long before training here has come so far that it is committed."""
    state = GlobalState(WIDE)
    for number, tensor in enumerate(state.begin().values()):
        tensor.fill_(number + 1.0)
    before = state.seal({})
    state.commit(1)
    tentative = state.begin(names)
    for name in names:
        tentative[name].add_(1.0)
    after = state.seal({"round": 1})
    for digest in (before, after):
        held = GlobalState(WIDE)
        held.expect(state.manifest(digest), digest)
        for index in range(held.incoming.count):
            held.take(index, memoryview(state.chunk(digest, index)))
        held.verified(2)
        assert held.digest == digest
    state.begin(names)
    with pytest.raises(StateError, match="is gone; version 1 is"):
        state.manifest(after)


def test_nobody_is_served_the_sealed_state_while_it_is_overwritten() -> None:
    state = Watched(WIDE)
    state.begin()
    state.seal({})
    state.commit(1)
    state.begin()
    after = state.seal({"round": 1})
    state.writing = state.begin
    with pytest.raises(StateError, match="was replaced while it was read; version 1 is here"):
        state.chunk(after, 0)


def test_only_the_committed_state_is_served() -> None:
    state = filled(1)
    old = state.digest
    assert len(state.chunk(old, 0)) == CHUNK
    with pytest.raises(StateError, match="chunk 2 of 2"):
        state.chunk(old, 2)
    state.begin()["w"].add_(1.0)
    state.seal({"round": 1})
    assert state.chunk(old, 0)
    state.commit(2)
    for ask in (lambda: state.chunk(old, 0), lambda: state.manifest(old)):
        with pytest.raises(StateError, match="is gone; version 2 is"):
            ask()


def test_what_a_process_held_before_is_had_of_it_until_its_next_state_is_as_far() -> None:
    """Regression: a second policy began with one that holds nothing, and nobody held what the mesh had agreed on."""
    before, now = filled(1), GlobalState(ENTRIES, SETTINGS)
    before.confirm(7)
    gone = weakref.ref(before)
    now.succeed(before)
    assert now.held() == (7, before.digest)
    assert now.manifest(before.digest) == before.manifest(before.digest)
    assert now.chunk(before.digest, 1) == before.chunk(before.digest, 1)
    before.hand_on(before.digest, 7, now)
    assert (now.held(), now.predecessor) == ((7, before.digest), None)
    del before
    assert gone() is None, "it would be kept twice"


@given(took_place=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=12))
@example(took_place=[(0, 5), (1, 0), (2, 0), (2, 6)])  # the second one never came so far
@example(took_place=[(0, 5), (1, 9), (0, 5), (1, 9)])  # one that is taken up again has been overtaken
def test_whichever_state_takes_the_place_of_another_the_furthest_is_had(took_place: list[tuple[int, int]]) -> None:
    """Each entry is a state that takes the place of the one before, and the version that it then comes to, if it does.

    Versions never go back: what is agreed on next is further than anything that was held.
    """
    states = [GlobalState([Entry("w", "float32", (1,))]) for _ in range(4)]
    furthest, present = 0, states[0]
    for which, gain in took_place:
        if states[which] is not present:
            states[which].succeed(present)
            present = states[which]
        assert present.held()[0] == furthest
        if gain:
            furthest += gain
            present.seal({"round": furthest})
            present.commit(furthest)
            assert present.predecessor is None
        assert sum(state.predecessor is not None for state in states) <= 1, "no chain of states is kept"
        assert present.held()[0] == furthest


@pytest.mark.parametrize(("brought", "version"), [(None, None), (0, 0), (58, 58)])
def test_what_was_brought_along_is_had_as_the_version_that_it_is_until_one_is_agreed(
    brought: int | None, version: int | None
) -> None:
    state = filled(1)
    state.commit(0)
    state.brought = brought
    assert state.held() == (version or 0, b"" if version is None else state.digest)
    with pytest.raises(
        StateError, match="no other can be had" if version is None else f"is gone; version {version} is"
    ):
        state.chunk(b"another", 0)
    state.confirm(59)
    assert state.held() == (59, state.digest)


def test_a_wrong_manifest_is_refused() -> None:
    source, joiner = filled(1), filled(2)
    manifest = bytearray(source.manifest(source.digest))
    manifest[-1] ^= 1
    with pytest.raises(StateError, match="agreed is"):
        joiner.expect(bytes(manifest), source.digest)


@pytest.mark.parametrize(
    ("entries", "settings", "named"),
    [
        (
            [Entry("w", "float32", (500, 700)), *ENTRIES[1:]],
            SETTINGS,
            r"tensor w: .*500, 700.* here, .*700, 500.* there",
        ),
        ([Entry("w", "float64", (700, 500)), *ENTRIES[1:]], SETTINGS, r"tensor w: float64.* here, float32.* there"),
        (ENTRIES[:2], SETTINGS, r"tensor h: bfloat16\[3\] there, none here"),
        ([*ENTRIES, Entry("b", "float32", (1,))], SETTINGS, r"tensor b: float32\[1\] here, none there"),
        (ENTRIES, [("policy", "diloco"), ("sync_every", "50")], "sync_every: 50 here, 100 there"),
    ],
)
def test_a_mesh_that_trains_something_else_is_told_by_name(
    entries: list[Entry], settings: list[tuple[str, str]], named: str
) -> None:
    source, joiner = filled(1), filled(1, entries, settings)
    with pytest.raises(MeshMismatch, match=named):
        joiner.expect(source.manifest(source.digest), source.digest)


def test_repr_says_what_it_is() -> None:
    state = filled(1)
    assert repr(state).startswith(f"<GlobalState version 1 {state.digest.hex()[:16]} 14")
    assert "unsealed" in repr(GlobalState(ENTRIES))


def test_a_seal_holds_until_somebody_writes() -> None:
    state, source = filled(1), filled(2)
    state.begin()
    assert state.sealed == b""
    assert state.seal({"round": 1}) == state.sealed
    state.expect(source.manifest(source.digest), source.digest)
    assert state.sealed == b"", "what is received overwrites it"
    state.begin()
    state.seal({"round": 1})
    state.commit(2)
    assert state.sealed == b"", "the other half is the state before"


class Watched(GlobalState):
    """A state at which others look before and after a commit moves its bytes, and that changes while they read."""

    moving: Callable[[], None] = staticmethod(lambda: None)
    reading: Callable[[], None] = staticmethod(lambda: None)
    writing: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__(entries)
        exchange = self._halves.exchange

        def watched() -> None:
            self.moving()
            exchange()
            self.moving()

        self._halves.exchange = watched  # type: ignore[method-assign]

    def memory(self, *, committed: bool) -> memoryview:
        held = super().memory(committed=committed)
        if committed:
            self.reading()
        else:
            writing, self.writing = self.writing, lambda: None
            writing()
        return held


@settings(max_examples=20)
@given(NAMES)
def test_nobody_waits_for_a_commit_and_nobody_is_served_what_it_replaces(names: set[str]) -> None:
    state, looks = Watched(WIDE), 0
    state.begin()
    state.seal({})
    state.commit(1)
    before = state.digest

    def look() -> None:  # from another thread, which would wait for ever for one that is in the middle of a commit
        nonlocal looks
        looks += 1
        assert pool.submit(state.held).result(PATIENCE) == (2, after)
        for digest in (before, after):
            for ask in (lambda digest: state.manifest(digest), lambda digest: state.chunk(digest, 0)):
                assert "ask again" in str(pool.submit(ask, digest).exception(PATIENCE))

    tentative = state.begin(names)
    for name in names:
        tentative[name].add_(1.0)
    after = state.seal({})
    state.moving = look
    state.reading = lambda: state.commit(2) if not looks else None
    with ThreadPoolExecutor(1) as pool, pytest.raises(StateError, match="replaced while it was read; version 2 is"):
        state.chunk(before, 0)
    assert looks == 2
    assert state.held() == (2, after)
    whole = b"".join(state.chunk(after, index) for index in range(state.incoming.count))
    assert whole == bytes(state.memory(committed=True))


@settings(max_examples=20)
@given(NAMES, st.integers(0, 3))
def test_who_reads_beside_training_reads_all_of_one_version(names: set[str], commits: int) -> None:
    state = GlobalState(WIDE)
    state.begin()
    state.seal({"round": 0})
    state.commit(1)
    reads = 0

    def read() -> tuple[int, set[float]]:
        nonlocal reads
        reads += 1
        version, committed = state.version, state.committed
        found = {committed[name][0].item() for name in names}
        if reads <= commits:
            tentative = state.begin(names)
            for name in names:
                tentative[name].fill_(float(version))
            state.seal({"round": version})
            state.commit(version + 1)
        return version, found | {committed[name][-1].item() for name in names}

    assert state.steadily(read) == (commits + 1, {float(commits)})
    assert reads == commits + 1


def test_who_never_reads_all_of_one_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ictp2p.sync.state.global_state._PAUSE", 0.0)
    state = GlobalState(WIDE)
    with pytest.raises(StateError, match="in each of 1000 tries another version was committed"):
        state.steadily(lambda: (state.begin(()), state.seal({}), state.commit(1)))


@example([({"a"}, "commit"), ({"b"}, "break"), ({"a"}, "commit")])
@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from([e.name for e in WIDE]), min_size=1),
            st.sampled_from(["commit", "rollback", "receive", "break", "leave"]),
        ),
        max_size=5,
    )
)
def test_a_state_that_touched_fragments_is_the_one_that_was_hashed_whole(
    rounds: list[tuple[set[str], str]],
) -> None:
    state = GlobalState(WIDE)
    state.tentative["a"].fill_(1.0)
    state.seal({})
    state.commit(0)
    expected = {name: tensor.clone() for name, tensor in state.committed.items()}
    for number, (names, end) in enumerate(rounds, 1):
        wanted = {name: t + number if name in names else t for name, t in expected.items()}
        if end in ("receive", "break"):
            receive(state, wanted, number if end == "receive" else None)
        else:
            tentative = state.begin(names)
            for name in names:
                tentative[name].add_(number)
            if end != "leave":
                state.seal({})
            if end == "commit":
                state.commit(number)
            if end == "rollback":
                state.rollback()
        if end in ("commit", "receive"):
            expected = wanted
        assert all(torch.equal(state.committed[name], tensor) for name, tensor in expected.items())
    assert state.digest == whole(expected).digest


def test_a_fragment_is_all_that_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    state = whole({e.name: torch.ones(e.shape) for e in WIDE})
    hashed: list[int] = []
    monkeypatch.setattr("ictp2p.sync.state.halves.digest_of", lambda data: hashed.append(len(data)) or bytes(32))
    state.begin({"a"})
    state.seal({})
    assert 0 < sum(hashed) < 3 * CHUNK < extent(WIDE)


def test_the_next_state_takes_up_the_memory_of_a_fragment() -> None:
    layers = [Entry(name, "float32", (CHUNK,)) for name in "abcdefgh"]
    state = GlobalState(layers)
    state.begin()
    state.seal({})
    state.commit(0)
    for number, name in enumerate("abcdefgha"):
        state.begin({name})[name].fill_(number)
        state.seal({})
        assert 4 * CHUNK <= resident(state.memory(committed=False)) <= 4 * CHUNK + HUGE
        state.commit(1 + number)
        assert resident(state.memory(committed=False)) <= 4 * CHUNK + HUGE
    assert [state.committed[name][0].item() for name in "abcdefgh"] == [8, 1, 2, 3, 4, 5, 6, 7]


def test_the_former_state_is_there_after_a_commit_of_any_extent() -> None:
    state = whole({e.name: torch.ones(e.shape) for e in WIDE})
    for names in ({"b"}, set(), {"a", "c"}, {e.name for e in WIDE}):
        before = {name: tensor.clone() for name, tensor in state.committed.items()}
        tentative = state.begin(names)
        for name in names:
            tentative[name].add_(1.0)
        state.seal({})
        state.commit(state.version + 1)
        assert all(torch.equal(state.former[name], tensor) for name, tensor in before.items())
        assert {n for n in before if not torch.equal(state.former[n], state.committed[n])} == names


def test_what_a_predecessor_has_computed_may_still_be_had() -> None:
    """A policy ended while its last round was decided, and the next one begins with nothing."""
    before, after = filled(1), GlobalState(ENTRIES, SETTINGS)
    before.begin()["w"].fill_(7.0)
    sealed = before.seal({"round": 1})
    after.succeed(before)
    for index in range(read(after.manifest(sealed)).count):
        assert digest_of(after.chunk(sealed, index)) == before.incoming.chunk_digest(index)


def test_a_predecessor_is_let_go_only_once_what_it_has_computed_is_no_news_either() -> None:
    """Regression: who trained again came to its committed version, and the sealed one, agreed on by then, was lost."""
    before, after = filled(1), GlobalState(ENTRIES, SETTINGS)
    before.begin()["w"].fill_(7.0)
    sealed = before.seal({"round": 2})
    after.succeed(before)
    before.hand_on(before.digest, before.version, after)
    assert (after.version, after.predecessor) == (before.version, before)
    assert after.manifest(sealed) == before.manifest(sealed)
    before.hand_on(sealed, before.version + 1, after)
    assert (after.digest, after.predecessor) == (sealed, None)
