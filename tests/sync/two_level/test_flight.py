"""A round under way while training goes on: what is left of it once it has landed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

from ictp2p.concurrency.threads import Thread, Threads
from ictp2p.errors import RoundMissed
from ictp2p.sync.mesh import Mesh, RoundRequest, RoundResult
from ictp2p.sync.two_level.flight import Flight
from ictp2p.sync.values import Spec, StateRef
from tests.garbage import LARGE, uncollected

NOTHING = StateRef(0, b"", ())


class Committed:
    """A mesh that commits whatever is brought."""

    def background(self, run: Callable[[], None]) -> Thread:
        return Threads().start(run, "a flight")

    def outer_round(self, request: RoundRequest) -> RoundResult:
        request.idle()
        return RoundResult(NOTHING, mine=True)


def nothing(*_: object) -> Any:
    """Take any callback's arguments."""


class Missed(Committed):
    """A mesh that decides without it."""

    def outer_round(self, request: RoundRequest) -> RoundResult:
        raise RoundMissed("round 7 was decided without it")


class Undecided(Committed):
    """A mesh that decides nothing."""

    def outer_round(self, request: RoundRequest) -> RoundResult:
        while True:
            request.idle()


class Begun(Committed):
    """A mesh that begins an attempt, and commits it when a test says so."""

    def __init__(self) -> None:
        self.commits = threading.Event()

    def outer_round(self, request: RoundRequest) -> RoundResult:
        request.restarted(1, ())
        assert self.commits.wait(10)
        request.idle()
        return RoundResult(NOTHING, mine=True)


def flight(mesh: Committed) -> Flight:
    tensors = [torch.ones(LARGE)]
    spec = Spec("sync", "a round", "float32", 1, "avg", "none", b"")
    request = RoundRequest(spec, NOTHING, 1.0, tensors, tensors, nothing, nothing, nothing, nothing)
    return Flight(cast("Mesh", mesh), request)


def missed() -> None:
    with pytest.raises(RoundMissed):
        flight(Missed()).wait(nothing)


def test_a_round_that_landed_leaves_nothing_to_the_garbage_collector() -> None:
    """Regression: with each round of a fragment its tensors stayed until a collection happened to find them."""
    with uncollected() as left:
        assert flight(Committed()).wait(nothing).mine
    assert left == []


@pytest.mark.parametrize("end", [missed, lambda: flight(Undecided()).withdraw()], ids=["missed", "withdrawn"])
def test_nor_does_one_that_came_to_nothing(end: Callable[[], None]) -> None:
    """Regression: its error knew its frames, and these the flight that kept the error."""
    with uncollected() as left:
        end()
    assert left == []


def test_a_round_that_has_begun_is_not_given_up() -> None:
    """Regression: it was committed all the same, and what was brought next was dropped as if it had been in it."""
    mesh = Begun()
    held = flight(mesh)
    assert not held.give_up()
    mesh.commits.set()
    assert held.wait(nothing).mine


def test_one_that_has_not_is() -> None:
    assert flight(Undecided()).give_up()


def test_what_came_of_a_round_is_there_after_a_wait_that_was_interrupted() -> None:
    mesh = Begun()
    held = flight(mesh)

    def interrupted() -> None:
        mesh.commits.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        held.wait(interrupted, 0.01)
    assert not held.told
    assert held.wait(nothing).mine
    assert held.told
