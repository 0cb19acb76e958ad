"""What every policy does in a step: gradients are averaged, hooks come and go, nonsense is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from ictp2p.config import Config
from ictp2p.errors import ConfigError
from ictp2p.sync.optimizers.outer import Nesterov
from ictp2p.sync.pace import AdaptivePace
from ictp2p.sync.policies.asynchronous import AsyncDiLoCo
from ictp2p.sync.policies.diloco import DiLoCo
from ictp2p.sync.policies.dipaco import DiPaCo
from ictp2p.sync.policies.eager import EagerDiLoCo
from ictp2p.sync.policies.local_sgd import LocalSGD
from ictp2p.sync.policies.noloco import NoLoCo
from ictp2p.sync.policies.sparse import SparseDiLoCo
from ictp2p.sync.policies.streaming import StreamingDiLoCo
from ictp2p.sync.samples.sampler import ElasticSampler
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.two_level.policy import Policy
from tests.garbage import uncollected
from tests.sync.diloco_trace import Array, Golden, Model, rows, same, together, train, worker

HUGE = 10**400
"""A whole number for which there is no float."""


def test_a_cluster_averages_gradients_at_every_step(make_world: Any) -> None:
    data = [rows(i, 8) for i in range(2)]
    found = make_world(a=2).run(a_0=worker(data[0]), a_1=worker(data[1]))
    expected = Golden().run(together(data))
    same(found["a_0"][0], expected)
    same(found["a_1"][0], expected)
    assert found["a_0"][1].state.digest == found["a_1"][1].state.digest


def test_a_worker_of_weight_zero_looks_on(make_world: Any) -> None:
    data = rows(0, 4)

    def idle(mesh: Any) -> Any:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, 4) as policy:
            policy.weight = 0.0
            for _ in data:
                model.w.grad = torch.full((3,), float("nan"))
                inner.step()
            return model.w.detach().numpy().copy()

    found = make_world(a=2).run(a_0=worker(data), a_1=idle)
    np.testing.assert_array_equal(found["a_1"], Golden().run([[r] for r in data])[-1])


def test_gradients_may_be_computed_inside_of_the_step(make_world: Any) -> None:
    data = [rows(i, 9) for i in range(2)]

    def body(mine: Array, how: str) -> Callable[[Any], Any]:
        def run(mesh: Any) -> Any:
            model, trace = Model(), []
            inner = torch.optim.SGD(model.parameters(), lr=0.125)
            with DiLoCo(mesh, model, inner, None, 4):
                for row in mine:

                    def closure(row: Array = row) -> float:
                        model.w.grad = torch.from_numpy(row) + model.w.detach()
                        return float(row[0])

                    loss = inner.step(closure) if how == "positional" else inner.step(closure=closure)
                    assert loss == row[0]
                    trace.append(model.w.detach().numpy().copy())
            return trace

        return run

    found = make_world(a=2).run(a_0=body(data[0], "positional"), a_1=body(data[1], "by name"))
    wanted = make_world(a=2).run(a_0=worker(data[0]), a_1=worker(data[1]))
    same(found["a_0"], wanted["a_0"][0])
    same(found["a_1"], wanted["a_1"][0])


def test_gradients_computed_several_times_in_a_step_are_refused(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        model = Model()
        inner = torch.optim.LBFGS(model.parameters())

        def closure() -> torch.Tensor:
            inner.zero_grad()
            loss = model.w.square().sum()
            loss.backward()
            return loss

        with (
            DiLoCo(mesh, model, inner, torch.optim.SGD(model.parameters(), lr=1.0), 4),
            pytest.raises(ConfigError, match="closure"),
        ):
            inner.step(closure)

    make_world(a=1).run(a_0=body)


@pytest.mark.parametrize(
    "kind",
    [
        DiLoCo,
        LocalSGD,
        partial(StreamingDiLoCo, fragments=2, overlap=1),
        EagerDiLoCo,
        partial(AsyncDiLoCo, clusters=1),
        SparseDiLoCo,
        NoLoCo,
    ],
)
def test_a_policy_that_has_ended_goes_with_whoever_held_it(make_world: Any, kind: Any) -> None:
    """Regression: it waited for the garbage collector, with several times its model, while the next one was made."""

    def body(mesh: Any) -> None:
        model = torch.nn.Linear(2, 1)
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with kind(mesh, model, inner, sync_every=4):
            for _ in range(9):
                model(torch.ones(1, 2)).sum().backward()
                inner.step()
                inner.zero_grad()

    with uncollected(Policy, GlobalState) as found:
        make_world(a=1).run(a_0=body)
    assert found == []


def test_the_hooks_go_when_the_policy_does(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        with DiLoCo(mesh, model, inner, None, 4) as policy:
            assert repr(policy) == "<DiLoCo step 0 version 1, 0 since the last round>"
        train(model, inner, rows(0, 9))
        assert policy.progress.step == 0

    make_world(a=1).run(a_0=body)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sync_every": 0}, "sync_every 0"),
        ({"without_quorum": "pray"}, "'pray'"),
        ({"codec": "topk2bit"}, "feedback"),
        ({"fragments": 0}, "fragments 0 is not at least 1"),
        ({"fragments": -2}, "fragments -2 is not at least 1"),
        ({"fragments": []}, "fragments 0 is not at least 1"),
        ({"overlap": 1.5}, "overlap 1.5 is not a whole number of steps"),
        ({"overlap": "x"}, "overlap 'x' is not a whole number of steps"),
        ({"fragments": 2.5}, "fragments 2.5 is neither"),
        ({"fragments": True}, "fragments True is neither"),
        ({"fragments": ["w", 3]}, "fragment 0 is 'w', not a list"),
        ({"fragments": [3, ["w"]]}, "fragment 0 is 3, not a list"),
        ({"fragments": [[]]}, r"fragments \[\[\]\] name no module"),
        ({"resume": "x"}, "resume 'x' is neither True nor False"),
        ({"most_skipped": -1}, "most_skipped -1 is not a whole number of at least 0"),
        ({"most_skipped": "x"}, "most_skipped 'x'"),
        ({"quorum": "x"}, "quorum 'x' is not in"),
        ({"quorum": float("nan")}, "quorum nan"),
        ({"spread": None}, "spread None is not from 0"),
        ({"late": 3}, "late 3 is none of"),
        ({"mix": "x"}, "mix 'x' is not in"),
        ({"mix": True}, "mix True is not in"),
        ({"codec": "zip"}, "codec 'zip' is not known"),
        ({"codec": 8}, "codec 8 is not a name"),
        ({"model": 3}, r"model must be a torch\.nn.*, not 3"),
        ({"inner": None}, r"inner must be a torch\.optim.*, not None"),
        ({"outer": 3}, "outer 3 is neither"),
        ({"outer": torch.optim.LBFGS}, "outer LBFGS calls a closure"),
        ({"carry": torch.optim.SGD([torch.ones(1)], lr=1.0)}, r"carry must be a list, not SGD \( Parameter Group 0"),
        ({"outer": lambda parameters: None}, "made None, which is not an optimizer"),
        (
            {"outer": lambda: None},
            "outer <function .* failed to make an optimizer: TypeError: .* takes 0 positional arguments",
        ),
        ({"agenda": 3}, "agenda must be a list, not 3"),
        ({"agenda": [3]}, "agenda: 3 has no name"),
        ({"carry": [3]}, "carry: 3 has no state_dict"),
        ({"sampler": object}, "sampler must be a ictp2p.sync.samples.sampler.ElasticSampler"),
        ({"late": np.zeros(3)}, r"late array\(\[0., 0., 0.\]\) is none of keep, discount, drop"),
        ({"frozen": torch.zeros(3)}, r"frozen tensor\(\[0., 0., 0.\]\) is none of same, own"),
        ({"without_quorum": np.array(["wait", "stop"])}, r"without_quorum array.* is none of wait"),
        ({"fragments": [np.zeros(2)]}, r"fragment 0 is array\(\[0., 0.\]\), not a list of names"),
        ({"fragments": [["w", None]]}, r"fragment 0 is \['w', None\], not a list of names"),
        ({"fragments": [["w"], [1]]}, r"fragment 1 is \[1\], not a list of names"),
        ({"sync_every": HUGE}, "sync_every 1000"),
        ({"fragments": HUGE}, "fragments: 1000"),
        ({"overlap": -HUGE}, "overlap -1000"),
        ({"most_skipped": 2**63}, "most_skipped 9223372036854775808 takes more than 64 bits"),
        ({"mix": HUGE}, r"mix 1000.*\.\.\. is not in \[0, 1\)"),
        ({"quorum": -HUGE}, "quorum -1000"),
        ({"spread": HUGE}, "spread 1000"),
        ({"codec": HUGE}, "codec 1000"),
        ({"resume": HUGE}, "resume 1000"),
        ({"within": HUGE}, "within 1000"),
        ({"outer": HUGE}, "outer 1000"),
        ({"outer": partial(Nesterov, lr=HUGE)}, "outer learning rate 1000"),
    ],
)
def test_a_value_that_cannot_be_is_refused(options: dict[str, Any], named: str) -> None:
    model = Model()
    given = {"model": model, "inner": torch.optim.SGD(model.parameters(), lr=1.0), **options}
    with pytest.raises(ConfigError, match=named) as refused:
        DiLoCo(None, **given)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [
        (AsyncDiLoCo, {"clusters": HUGE}, "clusters 1000.* takes more than 64 bits"),
        (AsyncDiLoCo, {"clusters": 2, "sync_every": HUGE}, "sync_every 1000"),
        (AsyncDiLoCo, {"clusters": 2, "momentum": HUGE}, "outer momentum 1000"),
        (NoLoCo, {"pull": HUGE}, "pull 1000"),
        (NoLoCo, {"sync_every": [HUGE]}, r"sync_every \[1000"),
        (SparseDiLoCo, {"keep": HUGE}, "keep 1000"),
        (SparseDiLoCo, {"decay": HUGE}, "decay 1000"),
        (SparseDiLoCo, {"codec": np.zeros(3)}, r"codec array\(\[0., 0., 0.\]\) would lose more"),
        (DiPaCo, {"modules": HUGE}, "modules 1000"),
        (EagerDiLoCo, {"sync_every": [HUGE]}, r"sync_every \[1000"),
    ],
)
def test_what_a_policy_takes_besides_is_named_and_not_written_out(kind: Any, options: Any, named: str) -> None:
    """Regression: a number that is beyond all floats was an `OverflowError`, and an array a `ValueError` of NumPy's."""
    model = Model()
    with pytest.raises(ConfigError, match=named) as refused:
        kind(None, model, torch.optim.SGD(model.parameters(), lr=1.0), **options)
    assert len(str(refused.value)) < 300


def settings(mesh: Any, real: Callable[[float], Any], whole: Callable[[int], Any]) -> Any:
    model = Model()
    policy = DiLoCo(
        mesh,
        model,
        torch.optim.SGD(model.parameters(), lr=0.125),
        lambda p: torch.optim.SGD(p, lr=real(0.5), momentum=real(0.25), nesterov=True),
        AdaptivePace(whole(3), utilization=real(0.75), least=whole(2), most=whole(9)),
        quorum=real(0.5),
        spread=real(2.0),
        mix=real(0.25),
        overlap=whole(1),
        fragments=whole(1),
        most_skipped=whole(2),
        sampler=ElasticSampler(whole(64), whole(4), accumulate=whole(1), seed=whole(3), keep=whole(2)),
    )
    return policy.state.settings


@pytest.mark.parametrize("kinds", [(np.float64, np.int64), (np.float32, np.int16)], ids=["64", "short"])
def test_numbers_of_numpy_are_numbers(make_world: Any, kinds: tuple[Any, Any]) -> None:
    said = make_world(a=1).run(a_0=lambda mesh: settings(mesh, *kinds))
    assert said == make_world(a=1).run(a_0=lambda mesh: settings(mesh, float, int))


class Wrapper(torch.optim.Optimizer):
    """One that has of torch's optimizers nothing but the name."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.optimizer, self.param_groups, self.state = inner, inner.param_groups, inner.state

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


def test_a_wrapper_whose_steps_cannot_be_hooked_is_refused_when_the_policy_is_made() -> None:
    model = Model()
    with pytest.raises(ConfigError, match="inner is a Wrapper, made without torch"):
        DiLoCo(None, model, Wrapper(torch.optim.SGD(model.parameters(), lr=0.1)))  # type: ignore[arg-type]


def test_who_cannot_begin_leaves_nothing_behind(make_world: Any) -> None:
    def body(mesh: Any) -> None:
        model = Model()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        policy = DiLoCo(mesh, model, inner)
        inner.register_step_post_hook = None  # type: ignore[assignment, method-assign]
        with pytest.raises(TypeError), policy:
            pass
        assert not mesh.site.ready
        assert not inner._optimizer_step_pre_hooks

    make_world(a=1).run(a_0=body)


def test_a_policy_that_is_left_again_takes_no_place_of_the_next_one(make_world: Any) -> None:
    """Regression: it said that this worker left, whoever was in by then, and a third policy was let in beside that."""

    def body(mesh: Any) -> list[list[str]]:
        def policy() -> tuple[Any, ...]:
            model = Model()
            inner = torch.optim.SGD(model.parameters(), lr=0.1)
            return model, inner, DiLoCo(mesh, model, inner, sync_every=2)

        first, never, (model, inner, second), places = policy()[2], policy()[2], policy(), []
        with first:
            pass
        places.append(list(mesh.site.ready))
        with second:
            for other in (first, never):
                other.__exit__(None, None, None)
                places.append(list(mesh.site.ready))
            train(model, inner, rows(0, 2))
            assert second.version == 2
            second.__exit__(None, None, None)
            places.append(list(mesh.site.ready))
        with first:  # entered again it can be left again
            places.append(list(mesh.site.ready))
        return [*places, list(mesh.site.ready)]

    assert make_world(a=1).run(a_0=body) == {"a_0": [[], ["a/0"], ["a/0"], [], ["a/0"], []]}


def test_the_inner_optimizer_is_no_outer_one() -> None:
    """Regression: it was adopted, and its own steps were hooked by the policy whose outer steps it took."""
    model = Model()
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(ConfigError, match="outer is the inner optimizer itself"):
        DiLoCo(None, model, inner, outer=inner)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (LocalSGD, "LocalSGD takes no outer"),
        (NoLoCo, "NoLoCo takes no outer"),
        (partial(AsyncDiLoCo, clusters=2), "AsyncDiLoCo takes no outer"),
    ],
)
def test_who_makes_its_own_outer_optimizer_takes_none(kind: Any, words: str) -> None:
    """Regression: it was a `TypeError` about `Policy`, which nobody had called."""
    model = Model()
    with pytest.raises(ConfigError, match=words):
        kind(None, model, torch.optim.SGD(model.parameters(), lr=1.0), outer=torch.optim.SGD)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (DiPaCo, {"agenda": np.zeros(3)}),
        (DiPaCo, {"agenda": None}),
        (DiPaCo, {"frozen": None}),
        (DiPaCo, {"modules": torch.tensor(0.5)}),
        (NoLoCo, {"agenda": np.zeros(3)}),
        (NoLoCo, {"codec": torch.zeros(3)}),
        (SparseDiLoCo, {"without_quorum": np.array(["continue", "stop"])}),
        (SparseDiLoCo, {"outer": np.zeros(3)}),
        (SparseDiLoCo, {"outer": torch.zeros(3)}),
        (SparseDiLoCo, {"outer": 0}),
        (StreamingDiLoCo, {"outer": np.zeros(3), "fragments": 1}),
        (StreamingDiLoCo, {"outer": 0, "fragments": 1}),
    ],
)
def test_what_an_option_of_one_policy_cannot_be_is_named(kind: Any, options: dict[str, Any]) -> None:
    """Regression: an array was asked whether it is true, and what a policy gives itself was given twice."""
    model = Model()
    with pytest.raises(ConfigError, match=next(iter(options))):
        kind(None, model, torch.optim.SGD(model.parameters(), lr=1.0), **options)


@pytest.mark.parametrize("peer", [None, "10.0.0.1:7000", Config.local(cluster="a", token="t" * 32)])
@pytest.mark.parametrize("kind", [DiLoCo, DiPaCo, EagerDiLoCo, NoLoCo])
def test_a_policy_of_no_peer_says_so_when_it_is_entered(kind: Any, peer: Any) -> None:
    model = Model()
    with pytest.raises(ConfigError, match=r"peer must be an ictp2p.Peer, not"):
        kind(peer, model, torch.optim.SGD(model.parameters(), lr=1.0)).__enter__()


@pytest.mark.parametrize("peer", [None, "10.0.0.1:7000"])
def test_so_does_one_with_a_sampler(peer: Any) -> None:
    model = Model()
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(ConfigError, match=r"peer must be an ictp2p.Peer, not"):
        DiLoCo(peer, model, inner, sampler=ElasticSampler(64, 4)).__enter__()


def test_half_precision_and_buffers_stay_identical_everywhere(make_world: Any) -> None:
    def body(seed: int) -> Callable[[Any], Any]:
        def run(mesh: Any) -> Any:
            generator = torch.Generator().manual_seed(seed)
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).to(torch.bfloat16)
            inner = torch.optim.SGD(model.parameters(), lr=0.1)
            with DiLoCo(mesh, model, inner, None, 2) as policy:
                for _ in range(4):
                    model(torch.randn(8, 4, generator=generator).to(torch.bfloat16)).square().mean().backward()
                    inner.step()
                    inner.zero_grad()
                return policy.state.digest, [t.detach().float() for t in model.state_dict().values()]

        return run

    found = make_world(a=2, b=1).run(a_0=body(0), a_1=body(1), b_0=body(2))
    assert len({digest for digest, _ in found.values()}) == 1
    for tensors in zip(*(tensors for _, tensors in found.values()), strict=True):
        assert all(torch.equal(tensors[0], other) for other in tensors)
