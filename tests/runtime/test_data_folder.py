"""Whose a disk is: bound to a cluster once, and each life of its peer after the one before."""

from __future__ import annotations

import os
from dataclasses import replace

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
    with pytest.raises(StateError, match=r"has lost its identity\.ict, .* or give this peer an empty folder"):
        claim(disk, config("a"), os.urandom)
    assert disk.load("identity") is None


ORDER = ("cluster", "identity", "life", "term", "acceptor")


@given(reached=st.integers(2, 5), gone=st.sampled_from(ORDER))
def test_what_is_gone_is_missed_where_something_later_is_there(reached: int, gone: str) -> None:
    """Regression: without its chain a peer founded a mesh under its old name; without its life it counted from one."""
    disk, mine = MemoryDisk(), replace(config("a"), join=("127.0.0.1:7000",))
    claim(disk, mine, os.urandom)
    if reached >= 3:
        begin_life(disk)
    for key in ORDER[3:reached]:
        disk.save(key, b"something")
    first = disk.load("identity")
    disk._values.pop(gone, None)
    if gone in ORDER[: reached - 1] and gone != "term":
        with pytest.raises(StateError, match=rf"has lost its {gone}\.ict, .* or give this peer an empty folder"):
            claim(disk, mine, os.urandom)
        assert disk.load(gone) is None
    elif gone != "identity":
        claim(disk, mine, os.urandom)
        assert disk.load("identity") == first


def with_chain(joins: bool, lives: int) -> tuple[MemoryDisk, Config]:
    """The disk of a voter that was started so often, and its configuration."""
    disk, mine = MemoryDisk(), replace(config("a"), join=("127.0.0.1:7000",) if joins else ())
    for _ in range(lives):
        claim(disk, mine, os.urandom)
        begin_life(disk)
        disk.save("acceptor", b"a promise")
        disk.save("term", b"led")
    return disk, mine


@pytest.mark.parametrize(("joins", "lives"), [(False, 1), (False, 2), (True, 2)])
def test_a_lost_chain_is_missed_where_it_was_found_before_or_a_mesh_would_be_founded(joins: bool, lives: int) -> None:
    disk, mine = with_chain(joins, lives)
    claim(disk, mine, os.urandom)
    del disk._values["acceptor"]
    with pytest.raises(StateError, match=r"has lost its acceptor\.ict, .* or give this peer an empty folder"):
        claim(disk, mine, os.urandom)


def test_who_was_killed_before_it_had_a_chain_is_let_in_again() -> None:
    """A newcomer may lead its cluster before it has learnt anything of its mesh's decisions."""
    disk, mine = with_chain(joins=True, lives=1)
    del disk._values["acceptor"]
    claim(disk, mine, os.urandom)


@given(lives=st.integers(1, 20))
def test_each_life_has_a_higher_number_than_all_before_it(lives: int) -> None:
    disk = MemoryDisk()
    assert [begin_life(disk) for _ in range(lives)] == list(range(1, lives + 1))


def test_who_must_stop_is_told_where_the_other_one_is_if_that_is_known() -> None:
    assert "at 10.0.0.1:7000 has" in str(identity_taken(PeerId("me"), "10.0.0.1:7000"))
    assert "another process has" in str(identity_taken(PeerId("me"), ""))
