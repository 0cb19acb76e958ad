"""What whoever brings something else than the others is told."""

from __future__ import annotations

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from ictp2p.sync.messages import Ready
from ictp2p.sync.rounds.opening import Standing, elect_spec, rejections
from ictp2p.sync.rounds.wording import in_words
from ictp2p.sync.values import Spec
from ictp2p.types import ClusterId, PeerId

SPEC = Spec("reduce", "all_reduce", "float32", 3, "avg", "none", b"float32[3]")
SPECS = st.builds(
    Spec,
    kind=st.sampled_from(["sync", "reduce"]),
    name=st.sampled_from(["all_reduce", "diloco"]),
    dtype=st.sampled_from(["float32", "bfloat16"]),
    elements=st.sampled_from([3, 4]),
    op=st.sampled_from(["avg", "sum"]),
    codec=st.sampled_from(["none", "int8"]),
    config=st.sampled_from([b"", b"float32[3]", b"float32[1, 3]", bytes(32), bytes(31) + b"\xff"]),
    quorum=st.sampled_from([0.5, 1.0]),
)


def standing(specs: dict[str, Spec]) -> Standing:
    names = map(ClusterId, specs)
    readies = [Ready(0, 1, ClusterId(name), 1, 1.0, spec, None) for name, spec in specs.items()]
    return {name: (PeerId(name), ready) for name, ready in zip(names, readies, strict=True)}


OTHER = msgspec.structs.replace(SPEC, op="sum")


@given(st.lists(st.tuples(st.sampled_from([SPEC, OTHER]), st.booleans()), min_size=1, max_size=6), st.integers(0, 6))
def test_newcomers_go_to_the_call_that_the_others_are_at(brought: list[tuple[Spec, bool]], mine: int) -> None:
    """Regression: a cluster that was started again, and began with its first call, had the others' end with errors."""
    ready = standing({f"c{number}": spec for number, (spec, _) in enumerate(brought)})
    ready = {
        name: (leader, msgspec.structs.replace(each, newcomer=newcomer))
        for (name, (leader, each)), (_, newcomer) in zip(ready.items(), brought, strict=True)
    }
    asked = [spec for spec, newcomer in brought if not newcomer] or [spec for spec, _ in brought]
    chosen = elect_spec(ready, ClusterId(f"c{mine % len(brought)}"))
    assert 2 * asked.count(chosen) >= len(asked)
    if 2 * asked.count(chosen) == len(asked) and brought[mine % len(brought)] in [(SPEC, False), (OTHER, False)]:
        assert chosen == brought[mine % len(brought)][0], "of as many on either side ours decides"


@given(SPECS, SPECS)
def test_who_differs_is_told_each_field_in_which_it_does_and_no_other(mine: Spec, chosen: Spec) -> None:
    chosen = msgspec.structs.replace(chosen, kind=mine.kind, name=mine.name)
    told = rejections(standing({"oslo": mine, "quito": chosen, "tokyo": chosen}), chosen)
    assert [(leader, spec) for leader, spec, _ in told] == ([] if mine == chosen else [("oslo", mine)])
    for _, _, reason in told:
        own, _, others = reason.removeprefix("cluster oslo brings ").partition("; the round is for ")
        assert others.endswith(", as brought by quito, tokyo")
        for field in set(Spec.__struct_fields__) - {"config", "kind", "name"}:
            differs = getattr(mine, field) != getattr(chosen, field)
            assert (f"{field} {getattr(mine, field)}" in own) is differs, reason
            assert (f"{field} {getattr(chosen, field)}" in others) is differs, reason


def test_tensors_are_told_as_their_program_knows_them_and_a_model_by_its_digest() -> None:
    """Regression: it was the repr of two internal values, with all that they had in common."""
    other = msgspec.structs.replace(SPEC, config=b"bfloat16[2, 2]")
    ((_, _, reason),) = rejections(standing({"oslo": other, "tokyo": SPEC}), SPEC)
    assert reason == (
        "cluster oslo brings tensors bfloat16[2, 2]; the round is for tensors float32[3], as brought by tokyo"
    )
    trained = Spec("sync", "diloco", "float32", 3, "avg", "none", bytes(32))
    others = msgspec.structs.replace(trained, config=b"\xff" * 32)
    ((_, _, reason),) = rejections(standing({"oslo": trained, "tokyo": others}), others)
    assert "oslo brings a model and settings of digest 0000000000000000; the round is for a model" in reason


@given(SPECS, SPECS)
def test_who_calls_something_else_is_told_both_calls(mine: Spec, chosen: Spec) -> None:
    assume((mine.kind, mine.name) != (chosen.kind, chosen.name))
    ((leader, spec, reason),) = rejections(standing({"oslo": mine, "quito": chosen, "tokyo": chosen}), chosen)
    assert (leader, spec) == ("oslo", mine)
    both = f"cluster oslo is at {in_words(mine)}; the round is for {in_words(chosen)}"
    assert reason == f"{both}, as brought by quito, tokyo"
