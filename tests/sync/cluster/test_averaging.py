from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ictp2p.errors import ConfigError, LocalGroupError
from ictp2p.sync.cluster.averaging import Averager


def averaged(make_world: Any, *workers: Callable[[Any], Any]) -> list[Any]:
    """Each worker with its group, in one cluster."""

    def body(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(mesh: Any) -> Any:
            mesh.roster_ready(True)
            return work(mesh.open_group(mesh.wait_roster(None)))

        return run

    found = make_world(a=len(workers)).run(**{f"a_{i}": body(w) for i, w in enumerate(workers)})
    return [found[f"a_{i}"] for i in range(len(workers))]


def parameter(gradient: Any, dtype: torch.dtype = torch.float32) -> torch.nn.Parameter:
    made = torch.nn.Parameter(torch.zeros(2, dtype=dtype))
    made.grad = None if gradient is None else torch.tensor(gradient, dtype=dtype)
    return made


def mean(weight: float, *parameters: torch.nn.Parameter, **options: Any) -> Callable[[Any], Any]:
    def work(group: Any) -> Any:
        averager = Averager({f"w{n}": p for n, p in enumerate(parameters)}, options.get("buffers", []))
        for buffer in options.get("buffers", []):
            buffer.add_(options["learned"])
        heads = averager.heads(
            group, weight, options.get("step", 0), moves=options.get("moves", False), due=options.get("due", False)
        )
        averager.average(group, heads)
        return [None if p.grad is None else p.grad.tolist() for p in parameters], heads

    return work


def test_the_mean_is_weighted(make_world: Any) -> None:
    found = averaged(make_world, mean(3.0, parameter([1.0, 2.0])), mean(1.0, parameter([5.0, -2.0])))
    assert [grads for grads, _ in found] == [[[2.0, 1.0]], [[2.0, 1.0]]]
    assert {heads.weight for _, heads in found} == {4.0}


def test_a_gradient_that_only_some_have_counts_as_zero_elsewhere(make_world: Any) -> None:
    """And a parameter that nobody used keeps none, so that the optimizer leaves it alone."""
    found = averaged(
        make_world,
        mean(1.0, parameter([2.0, 4.0]), parameter(None)),
        mean(1.0, parameter(None), parameter(None)),
    )
    assert [grads for grads, _ in found] == [[[1.0, 2.0], None]] * 2


def test_half_precision_is_summed_in_float32(make_world: Any) -> None:
    """256 + 1 + 1 in bfloat16, one after the other, would stay 256."""
    kind = torch.bfloat16
    gradients = [256.0, 1.0, 1.0, 1.0]
    found = averaged(make_world, *(mean(1.0, parameter([4 * g, 0.0], kind)) for g in gradients))
    assert found[0][0][0][0] == torch.tensor(259.0).to(kind).item() != 256.0


def test_nobody_with_weight_leaves_no_gradient(make_world: Any) -> None:
    found = averaged(make_world, mean(0.0, parameter([1.0, 1.0])), mean(0.0, parameter([1.0, 1.0])))
    assert [grads for grads, _ in found] == [[None], [None]]


def test_buffers_that_change_are_averaged_along(make_world: Any) -> None:
    buffers = [torch.zeros(1), torch.zeros(1)]
    learned = [1.0, 3.0]
    averaged(
        make_world,
        *(mean(1.0, parameter([1.0, 1.0]), buffers=[b], learned=n) for b, n in zip(buffers, learned, strict=True)),
    )
    assert [b.item() for b in buffers] == [2.0, 2.0]


def test_buffers_that_nobody_changes_are_no_part_of_a_step(make_world: Any) -> None:
    found = averaged(
        make_world, *(mean(n, parameter([1.0, 1.0]), buffers=[torch.full((1,), 0.1)], learned=0.0) for n in (1.0, 2.0))
    )
    assert [heads.present for _, heads in found] == [(True, False)] * 2


def test_one_head_moves_all(make_world: Any) -> None:
    found = averaged(make_world, mean(1.0, parameter(None), moves=True), mean(1.0, parameter(None)))
    assert [heads.moves for _, heads in found] == [True, True]


@pytest.mark.parametrize("leader", [True, False])
def test_the_leaders_word_says_when_a_round_is_due(make_world: Any, leader: bool) -> None:
    found = averaged(make_world, mean(1.0, parameter(None), due=leader), mean(1.0, parameter(None), due=not leader))
    assert [heads.due for _, heads in found] == [leader, leader]


def test_different_steps_are_an_error_that_names_them(make_world: Any) -> None:
    def work(step: int) -> Callable[[Any], Any]:
        def run(group: Any) -> None:
            with pytest.raises(LocalGroupError, match=r"'a/0': 4, 'a/1': 5"):
                Averager({}, []).heads(group, 1.0, step, moves=False, due=False)

        return run

    averaged(make_world, work(4), work(5))


def test_a_sum_that_fails_leaves_the_gradients_alone(make_world: Any) -> None:
    held = parameter([1.0, 2.0])

    def fails(group: Any) -> None:
        averager = Averager({"w": held}, [])
        heads = averager.heads(group, 1.0, 0, moves=False, due=False)
        group.abort("a member died")
        with pytest.raises(LocalGroupError):
            averager.average(group, heads)

    averaged(make_world, fails, fails)
    assert held.grad is not None
    assert held.grad.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
def test_sparse_gradients_are_refused(make_world: Any, weights: tuple[float, ...]) -> None:
    """Regression: a worker that was alone trained with them, until another one joined its cluster."""

    def run(weight: float) -> Callable[[Any], None]:
        def body(group: Any) -> None:
            held = torch.nn.Parameter(torch.zeros(2))
            held.grad = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]), (2,), check_invariants=True)
            with pytest.raises(ConfigError, match=r"gradient of w0 has layout torch\.sparse_coo, and cannot be"):
                mean(weight, held)(group)

        return body

    averaged(make_world, *map(run, weights))
