"""Whose a disk is: bound to a cluster once, and each life of its peer after the one before."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.config import Config
from ictp2p.disk import MemoryDisk
from ictp2p.errors import StateError
from ictp2p.runtime.data_folder import begin_life, bind, claim, identity_taken
from ictp2p.types import PeerId

NAMES = st.sampled_from(["a", "b", "zurich"])


def config(cluster: str) -> Config:
    return Config.local(cluster=cluster, token="a token that only the tests know")


@given(names=st.lists(NAMES, min_size=1))
def test_whoever_binds_a_disk_first_has_it_for_good(names: list[str]) -> None:
    disk = MemoryDisk()
    for name in names:
        if name == names[0]:
            bind(disk, config(name))
        else:
            with pytest.raises(StateError, match=f"cluster '{names[0]}', not '{name}'"):
                bind(disk, config(name))


@given(present=st.booleans(), lived=st.booleans())
def test_a_folder_that_does_not_say_any_more_whose_it_is_is_refused_and_left_as_it_is(
    present: bool, lived: bool
) -> None:
    """Regression: a new identity was made in it, and the promises refused as those of another peer."""
    disk = MemoryDisk()
    first = claim(disk, config("a"), os.urandom)
    if lived:
        begin_life(disk)
    if not present:
        del disk._values["identity"]
    if present or not lived:
        assert (claim(disk, config("a"), os.urandom).peer_id == first.peer_id) == present
        return
    with pytest.raises(StateError, match="has lost its identity"):
        claim(disk, config("a"), os.urandom)
    assert disk.load("identity") is None


@given(lives=st.integers(1, 20))
def test_each_life_has_a_higher_number_than_all_before_it(lives: int) -> None:
    disk = MemoryDisk()
    assert [begin_life(disk) for _ in range(lives)] == list(range(1, lives + 1))


def test_who_must_stop_is_told_where_the_other_one_is_if_that_is_known() -> None:
    assert "at 10.0.0.1:7000 has" in str(identity_taken(PeerId("me"), "10.0.0.1:7000"))
    assert "another process has" in str(identity_taken(PeerId("me"), ""))
