"""What the peer is told of what its training thread wants."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ictp2p.training.said import Said

HOST, DEVICE = torch.device("cpu"), torch.device("meta")


class Listening:
    """A peer that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def equip(self, device: object) -> None: ...

    def wants(self, ready: bool, device: object, calls: bool) -> None:
        self.told.append(("wants", ready))

    def wants_out(self, device: object) -> None:
        self.told.append(("wants", False))

    def set_training(self, training: bool) -> None:
        self.told.append(("training", training))


@pytest.fixture
def peer() -> Any:
    return Listening()


def test_the_peer_is_told_what_it_does_not_know_and_nothing_twice(peer: Any) -> None:
    """Each word to its thread is a way there and back, before each call."""
    said = Said(peer)
    for _ in range(3):
        said.wants_in(HOST)
        said.trains(True)
    assert peer.told == [("wants", True), ("training", True)]
    said.wants_out()
    assert peer.told[2:] == [("wants", False)], "which says that it does not train either"
    said.wants_in(HOST)
    said.trains(True)
    assert peer.told[3:] == [("wants", True), ("training", True)]
    said.wants_in(DEVICE)
    assert peer.told[5:] == [("wants", True)], "the group is built for what it computes on"


def test_a_training_that_begins_is_waited_for_once_it_has_a_state(peer: Any) -> None:
    said = Said(peer)
    said.begins()
    said.trains(False)
    said.trains(True)
    assert peer.told == [("training", False), ("training", True)]
