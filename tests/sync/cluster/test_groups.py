"""One group after the other: whatever becomes of them, what is done is done once to the end, and none is left open."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.errors import LocalGroupError, PeerClosed
from ictp2p.fsm import RECONFIG_PG, TRAINING, Fsm, Table
from ictp2p.sync.cluster.groups import Groups, Moved
from ictp2p.sync.rosters.roster import Roster
from ictp2p.types import PeerId

ME = PeerId("a" * 32)
Fate = st.sampled_from(["does not form", "breaks while healing", "breaks", "moves", "lasts"])


class FakeGroup:
    def __init__(self, number: int, rank: int) -> None:
        self.number, self.rank, self.size, self.generation = number, rank, 2, (1, number)
        self.aborted, self.closed = "", False

    def abort(self, reason: str) -> None:
        self.aborted = reason

    def close(self) -> None:
        assert not self.closed
        self.closed = True


class FakeMesh:
    """A cluster whose n-th group meets the n-th fate; transitions that the tables lack are errors."""

    def __init__(self, fates: list[str], rank: int = 0) -> None:
        self.fates, self.rank = fates, rank
        self.groups: list[FakeGroup] = []
        self.tried = 0
        self.boundaries: list[int] = []
        self.failed: list[tuple[int, int]] = []
        self.ready: list[bool] = []
        self._machines = {table.name: Fsm(table) for table in (TRAINING, RECONFIG_PG)}

    @property
    def fate(self) -> str:
        return self.fates[self.tried - 1]

    def roster_ready(self, ready: bool, device: object = None) -> None:
        self.ready.append(ready)

    def wait_roster(self, newer_than: tuple[int, int] | None) -> Roster:
        assert newer_than == ((1, self.tried) if self.tried else None)
        self.tried += 1
        return Roster(1, self.tried, (ME,), "127.0.0.1:7000", 0)

    def open_group(self, roster: Roster) -> FakeGroup:
        assert all(group.closed for group in self.groups)
        if self.fate == "does not form":
            raise LocalGroupError("nobody came")
        self.groups.append(FakeGroup(roster.number, self.rank))
        return self.groups[-1]

    def joined(self, group: Any) -> int:
        if self.fate == "breaks while healing":
            raise LocalGroupError("a member died")
        self.phase(RECONFIG_PG, "same")
        return 10 + group.number

    def action(self, group: Any) -> int:
        if self.fate == "breaks":
            raise LocalGroupError("a member died")
        self.phase(TRAINING, "gradients")
        if self.fate == "moves":
            self.phase(TRAINING, "pg_diff")
            raise Moved(10 + group.number)
        return int(group.number)

    def roster_boundary(self, step: int) -> None:
        self.boundaries.append(step)

    def roster_failed(self, generation: tuple[int, int], reason: str) -> None:
        self.failed.append(generation)

    def phase(self, table: Table, trigger: str) -> None:
        self._machines.setdefault(table.name, Fsm(table)).fire(trigger)

    def event(self, kind: str, **fields: Any) -> None:
        assert (kind, fields["step"]) == ("group", 10 + self.tried)


@given(fates=st.lists(Fate, max_size=6), rank=st.integers(0, 1))
def test_what_is_done_is_done_in_the_first_group_that_lasts(fates: list[str], rank: int) -> None:
    fates = [*fates, "lasts"]
    mesh: Any = FakeMesh(fates, rank)
    groups = Groups(mesh, mesh.joined)
    last = fates.index("lasts") + 1
    assert groups.run(mesh.action) == last
    assert groups.run(lambda group: group.number) == last, "a group that stands is not left"
    moved = [number for number, fate in enumerate(fates[:last], 1) if fate == "moves"]
    assert mesh.boundaries == ([10 + number for number in moved] if rank == 0 else [])
    broken = [number for number, fate in enumerate(fates[:last], 1) if fate not in ("moves", "lasts")]
    assert mesh.failed == [(1, number) for number in broken]
    assert [group.number for group in mesh.groups if not group.closed] == [last]
    assert all(bool(group.aborted) == (group.number in broken) for group in mesh.groups)
    groups.leave()
    assert all(group.closed for group in mesh.groups)
    assert mesh.ready == [False]


def test_an_error_that_is_not_the_group_s_is_the_caller_s_and_leaves_the_group_as_it_is() -> None:
    mesh: Any = FakeMesh(["lasts"])
    groups = Groups(mesh, mesh.joined)

    def action(_group: object) -> None:
        raise PeerClosed("the peer was closed")

    with pytest.raises(PeerClosed):
        groups.run(action)
    assert not mesh.groups[0].closed
    groups.leave()
    assert mesh.groups[0].closed
