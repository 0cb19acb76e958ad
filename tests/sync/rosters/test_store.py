"""The store of the next roster: asked for when it is time, once, and again when none came."""

from __future__ import annotations

import pytest

from ictp2p.sync.rosters.roster import StoreWanted
from ictp2p.sync.rosters.store import NextStore


@pytest.fixture
def store() -> NextStore:
    return NextStore(patience=5.0)


def test_it_is_asked_for_at_once_and_again_after_a_while(store: NextStore) -> None:
    assert store.want(2, 1.0) == [StoreWanted(2)]
    assert store.ask(5.9) == []
    assert store.ask(5.9, hurry=True) == [], "it may be on its way"
    assert store.ask_at == 6.0
    assert store.ask(6.0) == [StoreWanted(2)]
    assert store.ask(10.9) == []


def test_who_is_in_a_hurry_does_not_sit_out_the_wait_after_failures(store: NextStore) -> None:
    assert store.want(2, 1.0, wait=8.0) == []
    assert store.ask(8.9) == []
    assert store.ask(3.0, hurry=True) == [StoreWanted(2)]
    assert store.ask_at == 8.0


def test_one_that_nobody_needs_any_more_is_not_asked_for(store: NextStore) -> None:
    store.want(2, 1.0, wait=8.0)
    store.no_more()
    assert store.wanted is None
    assert store.ask(20.0) == []
