"""Workers of one cluster whose optimizers are set otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ictp2p.sync.cluster.averaging import Averager
from ictp2p.sync.cluster.likeness import PATIENCE, Likeness, in_words, words
from ictp2p.sync.optimizers.joint import JointOptimizer
from ictp2p.sync.policies.diloco import DiLoCo

LONG = 2 * PATIENCE + 4


def training(values: Sequence[object], option: str = "lr") -> Callable[[Any], None]:
    """A worker that sets an option before each step: what it was made with is the others' once they have met."""

    def body(mesh: Any) -> None:
        model = torch.nn.Linear(2, 1)
        inner = torch.optim.AdamW(model.parameters(), lr=1.0)
        with DiLoCo(mesh, model, inner, None, 100):
            for value in values:
                inner.param_groups[0][option] = value
                model(torch.ones(1, 2)).sum().backward()
                inner.step()

    return body


def told(world: Any, *bodies: Callable[[Any], None]) -> dict[str, list[str]]:
    """What each worker of one cluster warns of, but that it ends between two rounds."""
    names = [f"a_{i}" for i in range(len(bodies))]
    world.run(**dict(zip(names, bodies, strict=True)))
    texts = [(worker, fields["text"]) for worker, kind, fields in world.events if kind == "warning"]
    return {
        name: [text for worker, text in texts if worker == where and not text.startswith("ends with ")]
        for name, where in ((name, name.replace("_", "/")) for name in names)
    }


def test_another_rate_is_told_once_by_each_with_both_values(make_world: Any) -> None:
    """Regression: what all but the leader trained was replaced by the result of each round, without a word."""
    found = told(make_world(a=3), *(training([rate] * LONG) for rate in (0.01, 0.01, np.float32(0.02))))
    (text,) = found["a_0"]
    assert "a/0 and worker a/2 " in text
    assert "lr of group 0 is 0.01 and 0.02" in text
    assert found == {worker: [text] for worker in found}


def test_any_option_is_named(make_world: Any) -> None:
    found = told(make_world(a=2), *(training([(beta, 0.95)] * LONG, "betas") for beta in (0.9, 0.8)))
    assert "betas of group 0 is (0.9, 0.95) and (0.8, 0.95)" in found["a_1"][0]


@pytest.mark.parametrize("behind", [1, PATIENCE - 1])
def test_who_sets_its_rate_some_steps_later_is_not_told_of(make_world: Any, behind: int) -> None:
    drops = [[0.1] * (3 + late) + [0.01] * (LONG - 3 - late) for late in (0, behind)]
    assert told(make_world(a=2), *map(training, drops)) == {"a_0": [], "a_1": []}


def test_who_comes_later_is_told_as_well_and_those_who_know_are_not_told_again(make_world: Any) -> None:
    """Who knows and who does not do the same in each step, or one would wait for the others."""
    texts: list[list[str]] = [[], [], []]

    def steps(group: Any, likeness: Likeness) -> None:
        averager = Averager({}, [])
        for step in range(LONG):
            digest = likeness.digest(group)
            heads = averager.heads(group, 1.0, step, moves=False, due=False, options=digest, asks=likeness.asks)
            likeness.heard(group, heads)

    def body(*which: int) -> Callable[[Any], None]:
        def run(mesh: Any) -> None:
            mesh.roster_ready(True)
            group = mesh.open_group(mesh.wait_roster(None))
            inner = torch.optim.SGD([torch.zeros(1)], lr=0.1 * (1 + which[0]))
            likenesses = {each: Likeness(inner, texts[each].append) for each in which}
            for each in which:
                steps(group, likenesses[each])

        return run

    make_world(a=2).run(a_0=body(0, 0), a_1=body(1, 2))
    assert [len(each) for each in texts] == [1, 1, 1]


def test_alone_there_is_nobody_to_differ_from(make_world: Any) -> None:
    assert told(make_world(a=1), training([0.1 * i for i in range(1, 6)])) == {"a_0": []}


@given(rate=st.floats(1e-12, 1e6), number=st.integers(0, 1000))
def test_a_number_is_the_same_whoever_keeps_it(rate: float, number: int) -> None:
    kinds = (float, np.float64, lambda x: torch.tensor(x, dtype=torch.float64))
    assert len({words([{"lr": kind(rate)}])["lr of group 0"] for kind in kinds}) == 1
    assert words([{"lr": number}]) == words([{"lr": float(number)}]) == words([{"lr": np.int64(number)}])


def test_a_rate_in_a_tensor_is_rounded_and_no_other_one() -> None:
    assert words([{"lr": torch.tensor(0.01)}]) == words([{"lr": 0.01}]) == {"lr of group 0": "0.01"}
    assert words([{"lr": torch.tensor(0.01001)}]) != words([{"lr": 0.01}])


def test_how_the_arithmetic_is_run_and_on_what_is_no_difference() -> None:
    model = torch.nn.Linear(2, 1)
    one, other = (torch.optim.AdamW(model.parameters(), foreach=kind) for kind in (True, False))
    assert words(one.param_groups) == words(other.param_groups)


def test_all_groups_of_all_parts_are_compared() -> None:
    model = torch.nn.Linear(2, 1)
    joint = JointOptimizer(torch.optim.SGD([model.weight], lr=0.1), torch.optim.AdamW([model.bias], lr=0.2))
    found = words(joint.param_groups)
    assert (found["lr of group 0"], found["lr of group 1"]) == ("0.1", "0.2")


def test_of_many_differences_some_are_named_and_the_rest_counted() -> None:
    mine, theirs = ({f"option {i} of group 0": value for i in range(9)} for value in ("1", "2"))
    text = in_words(["x", "y"], [mine, {**theirs, "more": "3"}])
    assert text.count(" is 1 and 2") == 4
    assert "and 6 more differ" in text
    assert "lr is not there and 3" in in_words(["x", "y"], [{}, {"lr": "3"}])


def test_what_is_no_plain_value_is_named_by_its_kind() -> None:
    assert words([{"rule": print, "table": torch.zeros(99), "few": torch.ones(2), "none": None, "nesterov": True}]) == {
        "few of group 0": "(1, 1)",
        "nesterov of group 0": "True",
        "none of group 0": "None",
        "rule of group 0": "builtin_function_or_method",
        "table of group 0": "Tensor",
    }
