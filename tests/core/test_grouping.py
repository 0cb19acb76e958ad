"""Rounds in which not all average all: each group has a plan of its own, and no plan has another group."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack, structs

from ictp2p.collectives import plan as plans
from ictp2p.core.directory import Directory
from ictp2p.core.grouping import check_groups
from ictp2p.core.planning import check_plan, make_plan
from ictp2p.sync.rounds import modules
from ictp2p.sync.rounds.opening import PlanQuestion
from tests.core.planned import ALL, MB, directory, edges, request


def paired(*names: str, base: bytes = b"base") -> PlanQuestion:
    asked = request(*names)
    return replace(asked, spec=structs.replace(asked.spec, kind="sync", grouping="pairs"), base=base)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_pairs_are_planned_apart_and_nothing_goes_between_them(count: int) -> None:
    names = "abcdefg"[:count]
    known = directory({(a, b): 10 * MB for a in names for b in names if a < b} or ALL)
    asked = paired(*names)
    answer = make_plan(known, asked)
    plan = plans.decode(answer.plan)
    assert check_plan(answer.plan, asked.participants) is None
    assert check_groups(plan, asked.spec, b"base", asked.participants) is None
    assert [len(group.participants) for group in plan.groups] == [2] * (count // 2) + [1] * (count % 2)
    assert all(edge == frozenset(group.participants) for group in plan.groups for edge in edges(group))
    assert sorted(name for group in plan.groups for name in group.participants) == sorted(plan.participants)


def test_a_pair_of_which_nothing_is_known_is_planned_all_the_same() -> None:
    known = directory({("a", "b"): 10 * MB, ("c", "d"): 10 * MB})
    for seed in range(8):
        plan = plans.decode(make_plan(known, paired("a", "b", "c", "d", base=bytes([seed]))).plan)
        assert all(edges(group) for group in plan.groups)


def test_a_plan_for_other_pairs_is_refused() -> None:
    names = "abcdef"
    known = directory({(a, b): 10 * MB for a in names for b in names if a < b})
    asked = paired(*names)
    answers = {bytes([seed]): make_plan(known, paired(*names, base=bytes([seed]))) for seed in range(4)}
    for seed, answer in answers.items():
        wrong = check_groups(plans.decode(answer.plan), asked.spec, seed, asked.participants)
        other = check_groups(plans.decode(answer.plan), asked.spec, b"base", asked.participants)
        assert wrong is None
        assert other is not None
        assert "due are" in other
    whole = plans.decode(make_plan(known, request(*names)).plan)
    assert check_groups(whole, asked.spec, b"base", asked.participants) is not None
    assert check_groups(whole, request(*names).spec, b"base", asked.participants) is None


def test_a_group_that_is_no_plan_of_its_own_is_refused() -> None:
    names = "abcd"
    known = directory({(a, b): 10 * MB for a in names for b in names if a < b})
    plan = plans.decode(make_plan(known, paired(*names)).plan)
    one, other = plan.groups
    nested = structs.replace(plan, participants=one.participants, groups=(one,))
    for groups, said in (
        ((nested, other), "none that may be"),
        ((one, structs.replace(other, codec="zip")), "codec 'zip'"),
        ((one, structs.replace(other, kind=plans.REDUCE)), "none that may be"),
        ((one, structs.replace(other, chunk=0)), "chunk of 0"),
        ((one, structs.replace(other, participants=(*other.participants[1:], "Z"))), "none that may be"),
    ):
        wrong = plans.check(structs.replace(plan, groups=groups), plan.participants, 0)
        assert wrong is not None
        assert said in wrong
    for groups in ((one,), (one, one), ()):
        left_out = structs.replace(plan, groups=groups)
        assert check_groups(left_out, paired(*names).spec, b"base", paired(*names).participants) is not None
    encoded = structs.replace(plan, groups=(one, structs.replace(other, codec="int8", chunk=256)))
    assert plans.check_codec(encoded, "int8") is None
    assert plans.check_codec(encoded, "auto") is None
    assert "'int8'" in (plans.check_codec(encoded, "bfloat16") or "")
    shared = structs.replace(plan, shares=one.shares)
    assert "shares" in (plans.check(shared, plan.participants, 0) or "")
    assert "groups" in (plans.check(structs.replace(one, groups=(other,)), one.participants, 1_000_000) or "")


def said(behind: bool, *keys: int) -> bytes:
    held = tuple(modules.HeldModule(key.to_bytes(8, "big"), 1000 * key, 2000 * key) for key in keys)
    return msgpack.encode({modules.NAME: modules.Card(behind, held).encode()})


def test_modules_are_planned_over_their_holders_and_copied_to_who_lacks_them() -> None:
    names = "abc"
    known = directory({(a, b): 10 * MB for a in names for b in names if a < b})
    notes = (said(False, 1, 2), said(False, 2, 3), said(True, 2, 3, 4))
    asked = request(*names)
    parts = tuple(structs.replace(p, note=note) for p, note in zip(asked.participants, notes, strict=True))
    asked = replace(asked, participants=parts, spec=structs.replace(asked.spec, grouping="modules", elements=1))
    answer = make_plan(known, asked)
    plan = plans.decode(answer.plan)
    assert check_plan(answer.plan, parts) is None
    assert check_groups(plan, asked.spec, b"", parts) is None
    assert [(g.participants, g.elements, g.source) for g in plan.groups] == [
        (("A",), 1000, None),
        (("A", "B", "C"), 2000, None),
        (("B", "C"), 3000, None),
        (("C",), 4000, None),
        (("A", "C"), 4000, "A"),
        (("B", "C"), 6000, "B"),
    ]
    wrong = (structs.replace(parts[0], note=said(True, 1, 2)), *parts[1:])
    assert check_groups(plan, asked.spec, b"", wrong) is not None


@st.composite
def rounds_in_groups(draw: st.DrawFn) -> tuple[Directory, PlanQuestion]:
    """A mesh whose links are all measured, and a round in which not all average all: in pairs, or of modules."""
    names = "abcdefg"[: draw(st.integers(1, 7))]
    rates = st.sampled_from([1 * MB, 5 * MB, 20 * MB])
    known = directory({(a, b): draw(rates) for a in names for b in names if a < b} or ALL)
    if draw(st.booleans()):
        return known, paired(*names, base=draw(st.binary(min_size=1, max_size=4)))
    held = st.sets(st.integers(1, 5), max_size=4).map(sorted)
    asked = request(*names)
    parts = tuple(structs.replace(p, note=said(draw(st.booleans()), *draw(held))) for p in asked.participants)
    spec = structs.replace(asked.spec, kind="sync", grouping="modules", elements=1)
    return known, replace(asked, spec=spec, participants=parts)


@given(rounds_in_groups())
def test_groups_move_at_once_and_a_round_takes_as_long_as_whoever_is_in_most_of_them(
    made: tuple[Directory, PlanQuestion],
) -> None:
    answer = make_plan(*made)
    every = plans.decode(answer.plan).groups
    sharing = {name: [g.seconds for g in every if name in g.participants] for g in every for name in g.participants}
    assert answer.seconds == pytest.approx(max(map(sum, sharing.values()), default=0.0))
    assert all(group.seconds <= answer.seconds for group in every)
    if all(len(groups) == 1 for groups in sharing.values()):
        assert answer.seconds == max((group.seconds for group in every), default=0.0)


def test_pairs_that_meet_over_one_relay_share_its_lines() -> None:
    known = directory({("r", name): 10 * MB for name in "abcd"})
    answer = make_plan(known, paired(*"abcd"))
    assert answer.seconds == pytest.approx(sum(group.seconds for group in plans.decode(answer.plan).groups))
