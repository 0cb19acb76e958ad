"""What the machines decided, from the thread that hears it to the one that waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from ictp2p.concurrency.threads import Threads
from ictp2p.errors import PeerClosed, PeerFailed
from ictp2p.sync.rosters.roster import Roster
from ictp2p.training.heard import Heard

NEVER = 60.0
"""Seconds that no wait here takes."""


def roster(number: int, *members: str) -> Roster:
    return Roster(1, number, members, "127.0.0.1:1", 0)


@pytest.fixture
def heard() -> Heard:
    return Heard(Threads().condition())


class Group:
    """Notes why it was broken."""

    members = ("a", "b")

    def __init__(self, number: int = 2) -> None:
        self.generation = (1, number)
        self.broken: list[str] = []

    def abort(self, reason: str) -> None:
        self.broken.append(reason)


def meanwhile(act: Callable[[], None]) -> None:
    """Have it done by another thread while this one waits, or shortly before."""

    def later() -> None:
        time.sleep(0.01)
        act()

    Thread(target=later, daemon=True).start()


def test_a_wait_for_a_roster_ends_with_the_one_that_this_worker_is_in(heard: Heard) -> None:
    meanwhile(lambda: heard.regrouped(roster(3, "a", "b"), mine=True))
    found = heard.roster((1, 2), heard.newest, lambda: NEVER)
    assert found is not None
    assert found.generation == (1, 3)
    assert heard.roster((1, 2), heard.newest, lambda: NEVER) is found, "it is here already"


def test_it_ends_with_one_that_leaves_it_out_as_well_for_who_waits_says_so_again(heard: Heard) -> None:
    meanwhile(lambda: heard.regrouped(roster(3, "b"), mine=False))
    assert heard.roster((1, 2), heard.newest, lambda: NEVER) is None
    assert heard.newest == (1, 3)


def test_what_was_decided_for_another_user_of_the_group_is_no_answer(heard: Heard) -> None:
    heard.regrouped(roster(3, "a", "b"), mine=True)
    heard.asked_anew()
    with pytest.raises(TimeoutError):
        heard.roster((0, 0), heard.newest, lambda: 0.0)


def test_a_newcomer_waits_until_the_next_roster(heard: Heard) -> None:
    heard.regrouped(roster(2, "a"), mine=True)
    assert not heard.moves((1, 2))
    heard.newcomer()
    assert heard.moves((1, 2))
    heard.regrouped(roster(3, "a", "b"), mine=True)
    assert (heard.moves((1, 2)), heard.moves((1, 3))) == (True, False)


@pytest.mark.parametrize(
    ("hear", "reasons"),
    [
        (lambda heard: heard.regrouped(roster(3, "a"), mine=True), ["roster (1, 3) replaces it"]),
        (lambda heard: heard.regrouped(roster(2, "a", "b"), mine=True), []),
        (lambda heard: heard.gone("b", "dead"), ["worker b is dead"]),
        (lambda heard: heard.gone("c", "dead"), []),
        (lambda heard: heard.ended(PeerClosed("it crashed")), ["it crashed"]),
        (lambda heard: heard.close(), ["the peer was closed"]),
    ],
)
def test_a_group_is_broken_by_what_makes_it_useless(
    heard: Heard, hear: Callable[[Heard], None], reasons: list[str]
) -> None:
    group: Any = Group()
    heard.keep(group)
    hear(heard)
    assert group.broken == reasons


def test_a_group_is_broken_at_once_by_what_was_heard_before(heard: Heard) -> None:
    heard.regrouped(roster(3, "a", "b"), mine=True)
    group: Any = Group(2)
    heard.keep(group)
    assert group.broken == ["a newer roster is known"]


def test_a_worker_that_is_missed_in_a_roster_and_well_has_drained(heard: Heard) -> None:
    assert not heard.drained(roster(1, "a"), ["a", "b"]), "there was no group that it could have left"
    group: Any = Group()
    heard.keep(group)
    assert heard.drained(roster(3, "a"), ["a", "b"])
    assert not heard.drained(roster(3, "a"), ["a"])
    assert not heard.drained(roster(3, "a", "b"), ["a", "b"])


def test_whoever_waits_hears_of_the_end_of_the_peer(heard: Heard) -> None:
    meanwhile(lambda: heard.ended(PeerClosed("it crashed")))
    with pytest.raises(PeerClosed, match="it crashed"):
        heard.roster((0, 0), heard.newest, lambda: NEVER)
    heard.close()
    group: Any = Group()
    waits: list[Callable[[], Any]] = [heard.check, lambda: heard.pause(NEVER, lambda: False), lambda: heard.keep(group)]
    for wait in waits:
        with pytest.raises(PeerClosed, match="it crashed"):
            wait()


def test_nobody_waits_for_what_is_here(heard: Heard) -> None:
    states: list[int] = []

    def advance() -> None:
        states.append(2)
        heard.advanced()

    meanwhile(advance)
    heard.pause(NEVER, lambda: bool(states))
    heard.close()
    heard.pause(NEVER, lambda: True)


def test_who_asks_for_something_of_a_peer_that_is_gone_has_an_error_of_its_own(heard: Heard) -> None:
    """Regression: all had the one that is kept, which knew more frames each time, and all that was in them."""
    kept = PeerFailed("the peer stopped by itself")
    heard.ended(kept)
    for _ in range(3):
        with pytest.raises(PeerFailed, match="stopped by itself"):
            heard.check()
    assert kept.__traceback__ is None
