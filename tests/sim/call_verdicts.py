"""What only who sees the results of all workers can say of them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tests.sim.call_harms import Life
from tests.sim.call_kinds import Got
from tests.sim.call_marks import Mark


@dataclass
class Done:
    """A call that ended well."""

    attempt: int
    """How many calls of this life were before it."""
    number: int
    got: Got


Results: TypeAlias = defaultdict[tuple[str, int], dict[Life, Done]]
"""By round, or version of the state, and worker."""


@dataclass
class Steps:
    """Who is to be where the others are."""

    began: Collection[Life]
    """Those who began together; any others are with them from the first call on that they are in together."""
    lost: Mapping[Life, Sequence[int]]
    """The attempts after which a worker need not be there any more."""
    names: Sequence[str]

    def between(self, life: Life, before: int, now: int) -> bool:
        """Whether a worker was lost meanwhile."""
        return any(before < attempt <= now for attempt in self.lost.get(life, ()))


def judge(results: Results, told: Collection[Mark], steps: Steps) -> None:
    """Say whether all is well; `told` are calls that were made again though they may have been decided."""
    for key, held in results.items():
        same(key, held, steps.names)
    once(results, told)
    for one, other in itertools.combinations(sorted({life for held in results.values() for life in held}), 2):
        in_step(results, steps, one, other)


def same(key: tuple[str, int], held: Mapping[Life, Done], names: Sequence[str]) -> None:
    """All have the same bits; who is in it has made the call that it is in it with."""
    assert len({done.got.bits for done in held.values() if done.got.bits}) <= 1, f"{key}: all have the same bits"
    assert len({done.got.clusters for done in held.values()}) == 1, f"{key}: all name the same clusters"
    for mark in {mark for done in held.values() for mark in done.got.inside}:
        life = names[mark.place], mark.life
        assert life not in held or held[life].number == mark.number, f"{key}: {life} was at another call"


def once(results: Results, told: Collection[Mark]) -> None:
    """No call of anybody is in two results."""
    rounds: dict[Mark, tuple[str, int]] = {}
    for key, held in results.items():
        for mark in {mark for done in held.values() for mark in done.got.inside}.difference(told):
            assert rounds.setdefault(mark, key) == key, f"{mark} is in {rounds[mark]} and {key}"


def in_step(results: Results, steps: Steps, one: Life, other: Life) -> None:
    """The n-th call of one is with the n-th of the other."""
    both = [(held[one], held[other], key) for key, held in results.items() if {one, other} <= held.keys()]
    start = Done(-1, -1, Got(("", 0)))
    before = (start, start) if {one, other} <= set(steps.began) else None
    for mine, theirs, key in sorted(both, key=lambda pair: pair[0].attempt):
        if mine.attempt in steps.lost.get(one, ()) or theirs.attempt in steps.lost.get(other, ()):
            continue
        if before is not None and not (
            steps.between(one, before[0].attempt, mine.attempt)
            or steps.between(other, before[1].attempt, theirs.attempt)
        ):
            apart = f"{key}: {one} and {other} are apart"
            assert mine.number - before[0].number == theirs.number - before[1].number, apart
        before = mine, theirs
