"""The books of a simulated training see what is planted."""

from __future__ import annotations

import pytest
import torch

from ictp2p.sync.values import Open, Participant, Spec, StateRef
from ictp2p.types import ClusterId, PeerId
from sim.ledger import Ledger, Unit, vector

A, B = PeerId("a" * 32), PeerId("b" * 32)
UNITS = {A: (Unit("a", "a/0", 1),), B: (Unit("b", "b/0", 1), Unit("b", "b/0", 2))}


def _open(round_: int, *leaders: PeerId) -> Open:
    state = StateRef(round_, b"before", leaders)
    spec = Spec("sync", "", "float32", 64, "sum", "none")
    parts = tuple(Participant(ClusterId(leader[0]), leader, 1, 1.0) for leader in leaders)
    return Open(b"l" * 8, leaders, state, leaders[0], round_, 1, spec, parts, b"", "", 1.0)


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def ledger(complaints: list[str]) -> Ledger:
    """A first state, and a round that both clusters are in."""
    books = Ledger(lambda rule, text: complaints.append(rule))
    books.adopted(1, b"first", 0.0)
    for leader, units in UNITS.items():
        books.stands(leader, leader[0], units)
        books.opened(leader, _open(1, A, B))
    books.committed(_open(1, A, B), 2, b"second", 1.0)
    return books


def test_a_round_holds_what_was_bound(ledger: Ledger, complaints: list[str]) -> None:
    right = vector("a", 64) + 2 * vector("b", 64)
    ledger.applied("a/0", 2, b"second", right)
    assert complaints == []
    assert ledger.versions[2].participants == ("a", "b")
    ledger.applied("b/0", 2, b"second", right + 1)
    assert complaints == ["A4"]


def test_a3_two_digests_of_one_version(ledger: Ledger, complaints: list[str]) -> None:
    ledger.applied("a/0", 2, b"other", torch.zeros(64))
    ledger.committed(_open(1, A, B), 2, b"third", 1.0)
    assert complaints == ["A3", "A3"]


def test_a4_a_participant_that_took_no_part(ledger: Ledger, complaints: list[str]) -> None:
    ledger.committed(_open(2, A), 3, b"third", 2.0)
    assert complaints == ["A4"]


def test_a8_a_version_that_was_never_decided(ledger: Ledger, complaints: list[str]) -> None:
    ledger.applied("a/0", 9, b"x", torch.zeros(64))
    assert complaints == ["A8"]


def test_a10_work_that_is_counted_twice_or_lost(ledger: Ledger, complaints: list[str]) -> None:
    ledger.opened(A, _open(2, A))
    ledger.committed(_open(2, A), 3, b"third", 2.0)
    assert complaints == ["A10"], "its leader contributed the same work again"
    ledger.kept("a/0", UNITS[A], 3)
    assert complaints == ["A10", "A10"]
    fresh = Unit("c", "c/0", 1)
    ledger.dropped("c/0", [fresh], 3, seen=False)
    assert (complaints, ledger.lost) == (["A10", "A10"], [fresh]), "who did not see its round may lose work"
    ledger.dropped("c/0", [fresh], 3, seen=True)
    assert complaints == ["A10", "A10", "A10"]


def test_what_a_lost_version_held_may_be_contributed_again(ledger: Ledger, complaints: list[str]) -> None:
    ledger.restored(3, 1, b"first", 2.0)
    assert ledger.lost == [*UNITS[A], *UNITS[B]] or set(ledger.lost) == {*UNITS[A], *UNITS[B]}
    assert ledger.included == {}
    ledger.applied("a/0", 3, b"first", torch.zeros(64))
    ledger.kept("a/0", UNITS[A], 3)
    assert complaints == []
