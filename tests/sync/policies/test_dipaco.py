"""DiPaCo against a trace in plain NumPy: paths that overlap, and which modules there may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from msgspec import msgpack

from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.dipaco import DiPaCo
from ictp2p.sync.rounds.modules import NAME, Card
from ictp2p.sync.values import Participant
from ictp2p.types import ClusterId, PeerId
from tests.sync.policies.paths import EVERY, PATHS, POOL, F, Golden, alone, path, rows, worker


@pytest.mark.parametrize("weights", [{"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 1.0, "b": 3.0, "c": 2.0}], ids=str)
def test_every_module_is_averaged_over_its_holders_to_the_bit(make_world: Any, weights: dict[str, float]) -> None:
    data = {c: rows(n, 4 * EVERY, names) for n, (c, names) in enumerate(PATHS.items())}
    bodies = {f"{c}_0": worker(data[c], weights[c], shift=float(n)) for n, c in enumerate(PATHS)}
    found = make_world(a=1, b=1, c=1).run(**bodies)
    golden = Golden(PATHS, weights)
    # All begin with what the first holder of a module has: x is a's, y is b's, which are shifted by 0 and by 1.
    for m, shift in (("y", 1.0), ("z", 2.0)):
        golden.phi[m] = POOL[m] + F(shift)
        golden.theta.update({key: golden.phi[m].copy() for key in golden.theta if key[1] == m})
    for number in range(4):
        golden.steps(data, range(number * EVERY, (number + 1) * EVERY))
        golden.meet("abc")
    for c, names in PATHS.items():
        local, agreed, policy = found[f"{c}_0"]
        for m in names:
            np.testing.assert_array_equal(agreed[m], golden.phi[m])
            np.testing.assert_array_equal(local[m], golden.phi[m])
            momentum = policy.state.committed[f"outer momentum_buffer of {m}.p"].numpy()
            np.testing.assert_array_equal(momentum, golden.momentum[m])
        assert policy.version == 6
        assert policy.digest() == found["a_0"][2].digest()


def test_a_round_by_hand(make_world: Any) -> None:
    """Two clusters share s, each has a module of its own; outer lr 1, no momentum; all begin with 0."""

    def body(own: str, shared: float, alone: float) -> Callable[[Any], dict[str, float]]:
        def run(mesh: Any) -> dict[str, float]:
            model = torch.nn.ParameterDict({n: torch.nn.Parameter(torch.zeros(1)) for n in ("s", own)})
            inner = torch.optim.SGD(model.parameters(), lr=1.0)
            outer = partial(Nesterov, lr=1.0, momentum=0.0)
            with DiPaCo(mesh, model, inner, outer, sync_every=1, modules=["s", own]):
                model["s"].grad, model[own].grad = torch.tensor([shared]), torch.tensor([alone])
                inner.step()
            return {name: float(p.detach()) for name, p in model.items()}

        return run

    found = make_world(a=1, b=1).run(a_0=body("left", 1.0, 5.0), b_0=body("right", 3.0, 7.0))
    assert found == {"a_0": {"s": -2.0, "left": -5.0}, "b_0": {"s": -2.0, "right": -7.0}}


def test_one_path_for_all_is_diloco_to_the_bit(make_world: Any) -> None:
    data = [rows(n, 4 * EVERY, "vw") for n in range(2)]
    found = make_world(a=1, b=1).run(a_0=worker(data[0]), b_0=worker(data[1]))
    wanted = make_world(a=1, b=1).run(a_0=worker(data[0], kind=DiLoCo), b_0=worker(data[1], kind=DiLoCo))
    for name in ("a_0", "b_0"):
        for m in "vw":
            np.testing.assert_array_equal(found[name][1][m], wanted[name][1][m])


def test_a_module_of_one_cluster_needs_no_room_once_nobody_can_hold_more() -> None:
    """It begins in round 3 of a mesh; whoever held it before knows two rounds of it at most."""
    weights = alone("v")
    state, (held,) = weights.state, weights._holdings.card.modules
    me = Participant(ClusterId(""), PeerId("0" * 32), 1, 1.0, b"")
    rooms = []
    state.counters["round"] = 2  # as it is adopted
    for version in range(2, 7):
        weights.capture(1.0)
        rooms.append(len(weights.average) - weights.elements(0))
        note = msgpack.encode({NAME: weights._holdings.note()})
        weights.finish([msgspec.structs.replace(me, note=note)])
        weights.commit(version + 1)
    assert rooms == [held.state, held.state, 0, 0, 0]
    assert [m.rounds for m in weights._holdings.card.modules] == [5]


def test_who_joins_a_cluster_says_what_its_mates_say() -> None:
    one, other = alone("v"), alone("v")
    card = Card(False, (replace(one._holdings.card.modules[0], rounds=9, young=True),))
    one._holdings.card = card
    other.take_over(one.carried(captured=False))
    assert other._holdings.card == card
    assert len(other.average) == other.elements(0) + card.modules[0].state


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fragments": 2}, "no fragments"),
        ({"agenda": []}, "no agenda"),
        ({"modules": ["v", "nowhere"]}, "'nowhere' names nothing"),
        ({"modules": ["v", "w.wei"]}, "'w.wei' names nothing"),
        ({"modules": ["v", "eight"]}, "'eight' names nothing"),
        ({"modules": []}, r"modules \[\]"),
        ({"model": 3}, "model must be a .*, not 3"),
        ({"modules": 3}, "modules 3"),
        ({"modules": "vw"}, "modules 'vw'"),
        ({"modules": [3]}, r"modules \[3\]"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    given = {"model": (model := path("vw")), "inner": torch.optim.SGD(model.parameters()), **options}
    with pytest.raises(ConfigError, match=message):
        DiPaCo(None, **given)  # type: ignore[arg-type]


def test_tensors_that_no_module_names_are_one_more() -> None:
    model = path("vwx")
    policy = DiPaCo(None, model, torch.optim.SGD(model.parameters()), modules=["v"])  # type: ignore[arg-type]
    card = policy._weights._holdings.card  # type: ignore[attr-defined]
    assert sorted((m.elements, m.state) for m in card.modules) == [(3, 6), (6, 12)]


def test_children_that_hold_nothing_of_their_own_are_no_modules() -> None:
    """An activation has no parameters, a head may have those of the embedding, and a layer may be frozen."""
    model = torch.nn.ModuleDict(
        {"embed": torch.nn.Linear(3, 3, bias=False), "act": torch.nn.ReLU(), "head": torch.nn.Linear(3, 3, bias=False)}
        | {"norm": torch.nn.BatchNorm1d(3, affine=False), "frozen": torch.nn.Linear(2, 2).requires_grad_(False)}
    )
    model["head"].weight = model["embed"].weight
    policy = DiPaCo(None, model, torch.optim.SGD(model.parameters()))  # type: ignore[arg-type]
    assert sorted(m.elements for m in policy._weights._holdings.card.modules) == [6, 9]  # type: ignore[attr-defined]


def test_too_many_modules_for_a_note_are_refused_by_size(make_world: Any) -> None:
    model = torch.nn.ParameterDict({f"p{n}": torch.nn.Parameter(torch.zeros(1)) for n in range(50)})
    names: Sequence[str] = list(model)

    def body(mesh: Any) -> None:
        with (
            pytest.raises(ConfigError, match="notes of"),
            DiPaCo(mesh, model, torch.optim.SGD(model.parameters()), modules=names),
        ):
            pass

    make_world(a=1).run(a_0=body)
