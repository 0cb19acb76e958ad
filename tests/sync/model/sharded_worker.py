"""One rank with a model of FSDP2's: what its policy does with tensors that stand for more than is here.

Run by `test_sharding`, for a process group is the whole process's.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ictp2p.errors import ConfigError
from ictp2p.sync.cluster.replica import Replica
from ictp2p.sync.cluster.siblings import ProcessGroup
from ictp2p.sync.model.sharding import check_ranks
from ictp2p.sync.policies.diloco import DiLoCo
from tests.sync.policy_world import World

EVERY = 3


def made(*, sharded: bool = True, optimizer: Any = torch.optim.AdamW) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    if sharded:
        fully_shard(model, mesh=within())
    return model, optimizer(model.parameters(), lr=0.05)


def within() -> Any:
    return init_device_mesh("cpu", (1,))


def whole(tensors: Any) -> list[torch.Tensor]:
    return [t.full_tensor() if isinstance(t, DTensor) else t.detach().clone() for t in tensors]


def train(model: torch.nn.Module, inner: torch.optim.Optimizer, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        batch = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        (model(batch) - batch.sum(1, keepdim=True)).square().mean().backward()
        inner.step()
        inner.zero_grad()


def alone(body: Any) -> Any:
    return World(a=1).run(a_0=body)["a_0"]


def a_sharded_model_is_trained_as_a_whole_one() -> None:
    def body(mesh: Any, sharded: bool) -> list[torch.Tensor]:
        model, inner = made(sharded=sharded)
        with DiLoCo(mesh, model, inner, sync_every=EVERY, **({"within": within()} if sharded else {})) as policy:
            train(model, inner, 3 * EVERY + 1)
            agreed = policy.global_parameters()
            assert all(isinstance(t, DTensor) == sharded for t in agreed.values())
            return [*whole(model.parameters()), *whole(agreed.values())]

    pairs = zip(alone(lambda mesh: body(mesh, True)), alone(lambda mesh: body(mesh, False)), strict=True)
    assert all(torch.allclose(*pair, atol=1e-6) for pair in pairs)


def what_counts_for_nothing_is_not_trained() -> None:
    def body(mesh: Any) -> None:
        model, inner = made(optimizer=torch.optim.SGD)
        with DiLoCo(mesh, model, inner, sync_every=EVERY, within=within()) as policy:
            policy.weight = 0.0
            before = whole(model.parameters())
            train(model, inner, 2)
            assert all(map(torch.equal, before, whole(model.parameters())))

    alone(body)


def it_goes_on_from_a_file_as_if_it_had_not_been_stopped(folder: Path) -> None:
    path = folder / "shard.safetensors"

    def first(mesh: Any) -> list[torch.Tensor]:
        model, inner = made()
        with DiLoCo(mesh, model, inner, sync_every=EVERY, within=within()) as policy:
            train(model, inner, 2 * EVERY)
            policy.save(path, local=True)
            train(model, inner, EVERY, 2 * EVERY)
        return whole(model.parameters())

    def second(mesh: Any) -> list[torch.Tensor]:
        model, inner = made()
        policy = DiLoCo(mesh, model, inner, sync_every=EVERY, within=within())
        policy.load(path)
        with policy:
            train(model, inner, EVERY, 2 * EVERY)
        return whole(model.parameters())

    assert all(map(torch.equal, alone(first), alone(second)))


def evaluate(model: torch.nn.Module) -> None:
    with torch.no_grad():
        model(torch.zeros(1, 4))
    assert not all(isinstance(p, DTensor) for p in model.parameters()), "FSDP2 leaves what it has gathered"


def an_evaluation_leaves_nothing_that_is_not_a_shard(folder: Path) -> None:
    """Regression: it was refused as no shard, saved as a whole, and gone at the next backward pass."""
    path = folder / "evaluated.safetensors"

    def body(mesh: Any, before: bool) -> list[torch.Tensor]:
        model, inner = made()
        if before:
            evaluate(model)
        policy = DiLoCo(mesh, model, inner, sync_every=EVERY, within=within())
        evaluate(model)
        if not before:
            policy.load(path)
            evaluate(model)
        with policy:
            train(model, inner, EVERY, 0 if before else EVERY)
            evaluate(model)
            policy.save(path, local=True)
            train(model, inner, EVERY, EVERY if before else 2 * EVERY)
            train_with_a_look(model, inner)
        return whole(model.parameters())

    alone(lambda mesh: body(mesh, True))
    alone(lambda mesh: body(mesh, False))


def train_with_a_look(model: torch.nn.Module, inner: torch.optim.Optimizer) -> None:
    model(torch.ones(2, 4)).sum().backward()
    evaluate(model)
    inner.step()
    inner.zero_grad()


def a_pass_that_failed_is_named(folder: Path) -> None:
    def body(mesh: Any) -> None:
        model, inner = made()
        with DiLoCo(mesh, model, inner, sync_every=EVERY, within=within()) as policy:
            train(model, inner, 1)
            with pytest.raises(RuntimeError, match="shapes"):
                model(torch.zeros(1, 9))
            with pytest.raises(ConfigError, match=re.escape("parameter '0.weight' is gathered from its shards")):
                policy.save(folder / "failed.safetensors", local=True)
            model.state_dict()
            policy.save(folder / "failed.safetensors", local=True)
            train(model, inner, 1)

    alone(body)


def a_newcomer_becomes_the_same_and_takes_the_same_steps() -> None:
    (model, inner), (other, its) = made(), made()
    train(model, inner, 4)
    skeleton, tensors = Replica(model, inner, ()).take()
    Replica(other, its, ()).load(skeleton, [tensor.detach().clone() for tensor in tensors])
    train(model, inner, 3, 4)
    train(other, its, 3, 4)
    assert all(map(torch.equal, whole(model.parameters()), whole(other.parameters())))


def refused(message: str, **options: Any) -> None:
    def body(mesh: Any) -> None:
        model, inner = made()
        DiLoCo(mesh, options.pop("model", lambda m: m)(model), inner, sync_every=EVERY, **options)

    with pytest.raises(ConfigError, match=re.escape(message)):
        alone(body)


def what_cannot_be_is_named() -> None:
    refused("parameter '0.weight' is distributed among ranks (DTensor), each of which averages its part: give these")
    pieces = lambda model: torch.nn.ParameterList(p.to_local().detach() for p in model.parameters())  # noqa: E731
    refused("the inner optimizer holds 4 parameters", model=pieces, within=within())

    for ranks in ([], [1, 2]):
        with pytest.raises(ConfigError, match=re.escape(f"within has the ranks {ranks}, and parameter '0.weight'")):
            check_ranks(made()[0], ranks)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ProcessGroup, "ranks", property(lambda _: [1], lambda *_: None), raising=False)
        refused("within has the ranks [1], and parameter '0.weight' is distributed among [0]: [0]", within=within())
    check_ranks(made()[0], [0, 1])
    check_ranks(made(sharded=False)[0], [])

    def with_a_head(model: torch.nn.Module) -> torch.nn.Module:
        return torch.nn.ModuleDict({"body": model, "head": torch.nn.Linear(2, 2)})

    message = "parameter 'head.weight' is whole on several ranks, while 'body.0.weight'"
    refused(message, model=with_a_head, within=within())


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), 1), rank=0, world_size=1)
    a_sharded_model_is_trained_as_a_whole_one()
    what_counts_for_nothing_is_not_trained()
    it_goes_on_from_a_file_as_if_it_had_not_been_stopped(folder)
    an_evaluation_leaves_nothing_that_is_not_a_shard(folder)
    a_pass_that_failed_is_named(folder)
    a_newcomer_becomes_the_same_and_takes_the_same_steps()
    what_cannot_be_is_named()
    dist.destroy_process_group()
    sys.stdout.write("all of it\n")
