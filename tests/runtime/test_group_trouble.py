"""What people are told of a cluster's process group that does not hold, in events and in the status."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ictp2p.runtime.alarms import announce
from ictp2p.runtime.reporting import _group
from ictp2p.sync.rosters.roster import GroupAils, Roster, Trouble, WorkersStandStill
from ictp2p.telemetry import Telemetry
from ictp2p.types import PeerId

A, B, C = (PeerId(letter * 32) for letter in "abc")
NAMED: Any = SimpleNamespace(me=SimpleNamespace(cluster="oslo"), in_words=lambda peer: f"{peer[0]} of oslo")
SICK = Trouble(3, A, "Too many open files")


def test_a_warning_names_who_stands_still_and_who_is_sick_and_why() -> None:
    telemetry = Telemetry(lambda: 0.0)
    announce(telemetry, NAMED, WorkersStandStill((B, C)))
    announce(telemetry, NAMED, GroupAils(SICK))
    announce(telemetry, NAMED, GroupAils(Trouble(5, "", "timed out")))
    still = "whose training stands still (others waited for it to the deadline; it is let in again as soon as it moves)"
    assert [event.fields["text"] for event in telemetry.events("warning")] == [
        f"the process group of oslo goes on without b of oslo, {still}",
        f"the process group of oslo goes on without c of oslo, {still}",
        "the process group of oslo broke 3 times in a row at a of oslo: Too many open files",
        "the process group of oslo broke 5 times in a row: timed out",
    ]


@pytest.mark.parametrize(
    ("roster", "words"),
    [
        (None, []),
        (Roster(1, 1, (A, B), "127.0.0.1:1", 0, trouble=Trouble(1, "", "reset")), ["2 of 3 workers"]),
        (Roster(1, 2, (B,), "127.0.0.1:1", 0, absent=(C,)), ["1 of 3 workers", "without c of oslo, whose"]),
        (Roster(1, 3, (B,), "127.0.0.1:1", 0, trouble=SICK), ["1 of 3 workers", "those before it broke 3 times"]),
    ],
)
def test_the_status_says_how_the_group_fares(roster: Roster | None, words: list[str]) -> None:
    machines = SimpleNamespace(
        rosters=SimpleNamespace(roster=roster), members=SimpleNamespace(alive=lambda: {A: 1, B: 1, C: 1})
    )
    core: Any = SimpleNamespace(m=machines, directory=NAMED)
    said = _group(core).split("; ") if roster is not None else []
    assert len([part for part in said if not part.startswith("it is let in")]) == len(words)
    for word in words:
        assert word in _group(core)
