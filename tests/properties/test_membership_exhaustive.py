"""Membership and elections, in every course of a few faults: once all is calm, all who are there see each other.

Whole control planes, of which workers die, leave, come back or are replaced, and whose lines are cut and mended. After
each fault it is also tried what comes of it if that was the last one: whoever is gone stays away, or all are back.
`EXHAUSTIVE=1` takes the longer courses, minutes for each world.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tests.properties.meshes import Fault, Meshes

PAUSES = (0.01, 4.0)
"""Seconds from one fault to the next: connections have ended, and nobody was taken for dead; or all has settled."""
CALM = 60.0
"""Seconds of calm within which all see each other: who cannot be dialed may have to look for others twice."""
_LOOK = 0.5
HEALS = Fault("heals")


def each(what: str, *whom: int) -> list[Fault]:
    """It may happen to each of them."""
    return [Fault(what, (number,)) for number in whom]


def cuts(*apart: tuple[int, ...]) -> list[Fault]:
    """Some of all lines are cut: those between these workers and the others."""
    return [Fault("cuts off", numbers) for numbers in apart]


@dataclass
class Courses:
    """All courses of a few faults.

    Args:
        clusters: how many workers each has; workers are numbered in this order.
        faults: what may happen.
        length: how often something happens.
        hidden: clusters of which nobody can be dialed from another.
        errors: what must have been met (`Meshes.errors`), or nothing was tried that matters.
    """

    clusters: Mapping[str, int]
    faults: Sequence[Fault]
    length: int
    hidden: str = ""
    errors: Iterable[str] = ()
    taken: int = 0
    happened: set[str] = field(default_factory=set)
    met: set[str] = field(default_factory=set)

    def take(self) -> None:
        """Take all of them."""
        self._go_on(Meshes(self.clusters, self.hidden), ())

    def _go_on(self, meshes: Meshes, course: tuple[tuple[Fault, float], ...]) -> None:
        for fault in filter(meshes.possible, self.faults if len(course) < self.length else ()):
            for pause in PAUSES:
                self._befall(meshes.twin(), (*course, (fault, pause)))
        self._end(meshes, course)

    def _befall(self, meshes: Meshes, course: tuple[tuple[Fault, float], ...]) -> None:
        fault, pause = course[-1]
        try:
            meshes.befall(fault)
            meshes.run(pause)
        except AssertionError as error:
            raise AssertionError(f"{error}, {_told(course)}") from error
        self.happened.add(fault.what)
        self.met |= meshes.errors()
        self._go_on(meshes, course)

    def _end(self, meshes: Meshes, course: tuple[tuple[Fault, float], ...]) -> None:
        back = [fault for fault in each("is back", *range(len(meshes.places))) if meshes.possible(fault)]
        ends = [(meshes.twin(), back), (meshes, [])] if back else [(meshes, [])]
        for last, faults in ends:
            try:
                _calm_down(last, faults)
            except AssertionError as error:
                raise AssertionError(f"{error}, {_told(course, *faults)}") from error
            self.taken += 1


def _calm_down(meshes: Meshes, faults: Iterable[Fault]) -> None:
    """Mend all lines, let this happen and nothing else, and wait until all see each other, for more than a moment."""
    meshes.mend()
    for fault in faults:
        meshes.befall(fault)
    end, seen = meshes.now + CALM, 0
    while seen < 2:
        assert meshes.now < end, f"{CALM:g} s of calm, and not all see each other"
        meshes.run(_LOOK)
        seen = seen + 1 if meshes.settled() else 0


def _told(course: Iterable[tuple[Fault, float]], *last: Fault) -> str:
    steps = [f"{fault}, and {pause:g} s" for fault, pause in course]
    return "by this course:\n" + "\n".join(f"  {step}" for step in [*steps, "all lines are mended", *last])


TORN = [*cuts((0, 2), (0, 3)), *each("leaves", 0, 1, 2, 3)]
"""Of each of two clusters one half sees one half of the other."""
HIDDEN = [*cuts((0,), (1,)), *each("leaves", 0, 1), *each("dies", 2), *each("is back", 0, 1, 2)]
ALONE = [*cuts((0,), (1,)), *each("dies", 0, 1), *each("is back", 0, 1), *each("is replaced", 0), *each("leaves", 2)]
SMALL = {
    "torn clusters": Courses({"a": 2, "b": 2}, TORN, 2, hidden="b", errors=("DEAD", "LEFT", "SUSPECT", "RIVALS")),
    "one that cannot be dialed": Courses({"a": 2, "b": 1}, HIDDEN, 2, hidden="b", errors=("DEAD", "LEFT", "SUSPECT")),
    "one cluster": Courses({"a": 3}, ALONE, 2, errors=("DEAD", "SUSPECT", "RIVALS")),
}
LARGE = {
    "torn clusters, healed": Courses({"a": 2, "b": 2}, [*TORN, HEALS, *each("is back", 0, 2)], 3, hidden="b"),
    "one that cannot be dialed, longer": Courses({"a": 2, "b": 1}, [*HIDDEN, HEALS], 3, hidden="b"),
    "one cluster, longer": Courses({"a": 3}, [*ALONE, HEALS], 3),
    "two clusters": Courses(
        {"a": 2, "b": 2},
        [fault for what in ("dies", "leaves", "is back", "is replaced") for fault in each(what, 0, 1, 2, 3)]
        + cuts((0,), (1,), (2,), (3,), (0, 1), (0, 2), (0, 3)),
        2,
    ),
}
LONG = bool(os.environ.get("EXHAUSTIVE"))
WORLDS = {**SMALL, **LARGE} if LONG else SMALL


@pytest.mark.timeout(7200 if LONG else 120)
@pytest.mark.parametrize("name", WORLDS)
def test_after_every_course_all_who_are_there_see_each_other(name: str) -> None:
    courses = WORLDS[name]
    courses.take()
    assert courses.happened == {fault.what for fault in courses.faults}
    assert courses.met >= {*courses.errors}
    assert courses.taken > 150


def test_what_is_copied_goes_on_as_it_would_have() -> None:
    """Else one course would be taken in the middle of another."""
    meshes = Meshes({"a": 2, "b": 1})
    courses = []
    for each_of in (meshes.twin(), meshes):
        each_of.befall(Fault("dies", (0,)))
        each_of.run(3.0)
        each_of.befall(Fault("is back", (0,)))
        each_of.run(3.0)
        courses.append([repr(notice) for host in each_of.hosts.values() for notice in host.seen])
    assert courses[0] == courses[1]
    assert len(courses[0]) > 20
