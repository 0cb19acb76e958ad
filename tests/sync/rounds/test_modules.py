from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from ictp2p.sync.rounds.modules import NAME, Card, HeldModule, Together, card_of, groups, key_of, room, sources, spans
from ictp2p.sync.values import MAX_NOTE, Participant
from ictp2p.types import ClusterId, PeerId


def part(cluster: str, behind: bool, *keys: int, rounds: int = 0, young: bool = False) -> Participant:
    held = tuple(HeldModule(bytes([key]) * 8, key, 10 * key, rounds, young) for key in sorted(keys))
    return noted(cluster, msgpack.encode({NAME: Card(behind, held).encode()}))


def noted(cluster: str, note: bytes) -> Participant:
    return Participant(ClusterId(cluster), PeerId("0" * 32), 1, 1.0, note)


def keys(*numbers: int) -> tuple[bytes, ...]:
    return tuple(bytes([number]) * 8 for number in numbers)


A, B, C, D = (ClusterId(name) for name in "abcd")


def test_groups_by_hand() -> None:
    found = groups([part("a", False, 1, 2, 3), part("b", False, 2, 3, 4), part("c", True, 3, 4, 5)])
    assert found == (
        Together((A,), keys(1), 1),
        Together((A, B), keys(2), 2),
        Together((A, B, C), keys(3), 3),
        Together((B, C), keys(4), 4),
        Together((C,), keys(5), 5),
        Together((A, C), keys(3), 30, A),
        Together((B, C), keys(4), 40, B),
    )


def test_where_all_are_behind_the_first_is_copied() -> None:
    assert groups([part("a", True, 1), part("b", True, 1, 2), part("c", True, 2)])[-2:] == (
        Together((A, B), keys(1), 10, A),
        Together((B, C), keys(2), 20, B),
    )


def test_where_all_are_behind_what_most_rounds_are_in_is_copied() -> None:
    """Regression: a cluster that had just started, first by its name, had the others begin a module anew with it."""
    parts = [part("a", True, 1), part("b", True, 1, 2, rounds=7), part("c", True, 1, 2, rounds=2**30)]
    assert groups(parts)[-2:] == (Together((A, B, C), keys(1), 10, C), Together((B, C), keys(2), 20, C))
    current = part("d", False, 2, rounds=3)
    assert groups([*parts, current])[-1] == Together((B, C, D), keys(2), 20, D), "that is what was agreed on"


def test_what_was_begun_anew_gives_way_to_more_that_was_trained_before() -> None:
    """Regression: it was agreed on, so whoever held all of the module and was away for that round took it over."""
    young, away = part("a", False, 1, 2, rounds=3, young=True), part("b", True, 1, rounds=7)
    assert groups([young, away])[-1] == Together((A, B), keys(1), 10, B)
    assert groups([young, part("b", True, 1, rounds=2)])[-1] == Together((A, B), keys(1), 10, A)
    assert groups([young, part("b", True, 1, rounds=3)])[-1] == Together((A, B), keys(1), 10, A), "a has trained on"
    both = [young, part("c", False, 1, rounds=3, young=True)]
    assert groups(both)[-1].root is None, "they were in the last round together, and hold the same"
    assert groups([*both, away])[-1] == Together((A, C, B), keys(1), 10, B)
    assert sources([*both, away])[keys(1)[0]].rounds == 7


def test_who_is_behind_is_never_copied_from_while_another_is_not() -> None:
    assert groups([part("a", True, 1), part("b", False, 1)])[-1] == Together((A, B), keys(1), 10, B)


def test_modules_of_the_same_holders_go_together() -> None:
    assert groups([part("a", False, 1, 2, 3), part("b", False, 1, 3)]) == (
        Together((A, B), keys(1, 3), 4),
        Together((A,), keys(2), 2),
    )


@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.tuples(st.booleans(), st.sets(st.integers(1, 9)), st.integers(0, 9), st.booleans()),
        min_size=1,
    )
)
def test_whoever_needs_a_module_has_room_for_it_and_gets_it_from_one_that_has_no_less(
    said: dict[str, tuple[bool, set[int], int, bool]],
) -> None:
    parts = {
        ClusterId(name): part(name, behind, *mine, rounds=rounds, young=young)
        for name, (behind, mine, rounds, young) in said.items()
    }
    for group in groups(list(parts.values())):
        for key in group.keys if group.root is not None else ():
            held = {name: next(m for m in card_of(parts[name]).modules if m.key == key) for name in group.clusters}
            assert group.root is not None
            root, settled = held[group.root], not card_of(parts[group.root]).lacks(held[group.root])
            for name in set(held) - {group.root}:
                assert card_of(parts[name]).lacks(held[name])
                assert root.rounds >= held[name].rounds or settled


@given(st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.booleans(), st.sets(st.integers(1, 9))), min_size=1))
def test_every_module_is_averaged_over_its_holders_once_and_copied_to_those_behind(
    held: dict[str, tuple[bool, set[int]]],
) -> None:
    found = groups([part(name, behind, *mine) for name, (behind, mine) in held.items()])
    for number in range(1, 10):
        (key,) = keys(number)
        holders = [ClusterId(name) for name, (_, mine) in held.items() if number in mine]
        means = [g for g in found if g.root is None and key in g.keys]
        assert [list(g.clusters) for g in means] == ([holders] if holders else [])
        copies = [g for g in found if g.root is not None and key in g.keys]
        behind = [name for name in holders if held[name][0]]
        got = [name for g in copies for name in g.clusters if name != g.root]
        source = copies[0].root if copies else None
        assert got == [name for name in behind if name != (source or holders[0])]
        assert len(copies) <= 1
        if len(behind) < len(holders) and behind:
            assert source not in behind
    assert len({(g.clusters, g.root) for g in found}) == len(found)


@pytest.mark.parametrize("lacking", [{"behind": True}, {"behind": False, "young": True}])
def test_spans_lie_one_behind_the_other(lacking: dict[str, bool]) -> None:
    card = card_of(part("a", lacking["behind"], 3, 7, young=lacking.get("young", False)))
    assert spans(card) == {
        keys(3)[0]: (slice(0, 3), slice(10, 40)),
        keys(7)[0]: (slice(3, 10), slice(40, 110)),
    }
    assert room(card) == 100


def test_who_lacks_nothing_has_no_room_for_it() -> None:
    card = card_of(part("a", False, 3, 7))
    assert [kept for _, kept in spans(card).values()] == [slice(10, 10)] * 2
    assert room(card) == 0


@given(
    st.booleans(),
    st.integers(0, 2**48 - 1),
    st.integers(0, 2**48 - 1),
    st.integers(0, 2**31 - 1),
    st.booleans(),
)
def test_a_card_says_all_that_it_is_given(behind: bool, elements: int, state: int, rounds: int, young: bool) -> None:
    card = Card(behind, (HeldModule(b"k" * 8, elements, state, rounds, young), HeldModule(b"l" * 8, 1, 1)))
    assert Card.decode(card.encode()) == card
    assert len(Card(behind, card.modules * 21).encode()) + len(msgpack.encode({NAME: b""})) + 2 <= MAX_NOTE


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"\xff",
        msgpack.encode([1]),
        msgpack.encode({NAME: b"\0" + b"x" * 23}),
        msgpack.encode({NAME: Card(False, (HeldModule(b"b" * 8, 1, 1), HeldModule(b"a" * 8, 1, 1))).encode()}),
        msgpack.encode({NAME: Card(False, (HeldModule(b"b" * 8, 1, 1), HeldModule(b"b" * 8, 1, 1))).encode()}),
        msgpack.encode({NAME: Card(False, (HeldModule(b"b" * 8, 0, 1),)).encode()}),
        msgpack.encode({NAME: Card(False, (HeldModule(b"b" * 8, 1, 0),)).encode()}),
    ],
)
def test_a_note_that_makes_no_sense_holds_nothing(note: bytes) -> None:
    assert card_of(noted("a", note)).modules == ()
    assert groups([noted("a", note)]) == ()


def test_a_key_is_of_the_name_and_the_shapes() -> None:
    assert key_of("a", [("w", (2, 3))]) == key_of("a", [("w", [2, 3])])
    assert len({key_of("a", [("w", (2, 3))]), key_of("b", [("w", (2, 3))]), key_of("a", [("w", (3, 2))])}) == 3
