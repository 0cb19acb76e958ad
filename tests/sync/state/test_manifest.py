from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ictp2p.errors import ConfigError, StateError
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import (
    ALIGN,
    DIGEST,
    Entry,
    Manifest,
    check,
    difference,
    extent,
    offsets,
    read,
)

entries = st.builds(
    Entry,
    st.text(max_size=5),
    st.sampled_from(["float32", "bfloat16", "bool", "float64"]),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
)
items = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("xyz")), max_size=6, unique_by=lambda i: i[0])


@given(st.lists(entries, max_size=6))
@settings(max_examples=100)
def test_tensors_are_aligned_and_do_not_overlap(found: list[Entry]) -> None:
    starts = offsets(found)
    for number, (entry, start) in enumerate(zip(found, starts, strict=True)):
        assert start % ALIGN == 0
        assert start + entry.nbytes <= ([*starts, extent(found)][number + 1])


@given(items, items)
@settings(max_examples=100)
def test_a_difference_is_named_exactly_if_there_is_one(
    mine: list[tuple[str, str]], theirs: list[tuple[str, str]]
) -> None:
    named = difference(mine, theirs)
    assert (named is None) == (mine == theirs)
    assert named is None or named[0] in {name for name, _ in mine + theirs}


@given(
    st.text(st.characters(exclude_categories=()), max_size=3),
    st.sampled_from([0, 1021, 1022, 1023, 1024, 1025]),
    st.sampled_from(["float32", "bool", "complex64"]),
    st.lists(st.sampled_from([0, 1, 2**48 - 1, 2**48]), max_size=18).map(tuple),
    st.booleans(),
)
@example("", 1, "float32", (1,) * 15, False)
@example("", 1, "float32", (1,) * 16, False)
@settings(max_examples=200)
def test_what_is_checked_is_what_others_will_read(
    text: str, more: int, dtype: str, shape: tuple[int, ...], is_setting: bool
) -> None:
    """Regression: a state whose manifest nobody can read was agreed on, and all others waited for it for an hour."""
    words = text + "x" * more
    mine, theirs = (Entry("" if is_setting else words, dtype, (*shape, 0)),), ((("a", words),) if is_setting else ())
    try:
        read(Manifest(mine, theirs, (), b"").encode())
    except (StateError, UnicodeEncodeError):
        with pytest.raises(ConfigError):
            check(mine, theirs)
    else:
        check(mine, theirs)


@given(st.binary(max_size=300))
@settings(max_examples=100)
def test_garbage_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(StateError):
        GlobalState([]).same_training(data, bytes(DIGEST))
    with contextlib.suppress(StateError):
        read(data)


@pytest.mark.parametrize(
    ("manifest", "named"),
    [
        (Manifest((Entry("w", "float32", (4,)),), (), (), b""), "0 bytes of digests"),
        (Manifest((), (), (), bytes(DIGEST)), "32 bytes of digests"),
        (Manifest((Entry("w", "complex64", (4,)),), (), (), bytes(DIGEST)), "'complex64'"),
        (Manifest((Entry("w", "float32", (2**47, 2**47)),), (), (), bytes(DIGEST)), "digests"),
    ],
)
def test_a_manifest_must_make_sense(manifest: Manifest, named: str) -> None:
    data = manifest.encode()
    with pytest.raises(StateError, match=named):
        read(data)


def test_negative_shapes_do_not_decode() -> None:
    data = msgspec.msgpack.encode([[["w", "float32", [-4]]], [], [], b""])
    with pytest.raises(StateError, match="does not decode"):
        read(data)
