"""Every collective against Gloo, in the same processes: each operation, type and odd size, results equal bit by bit.

The values are whole numbers that every type holds, so sums are exact and their order does not matter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from tests.torch_backend import ranks

OPS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool", "complex64"]
SIZES = [0, 1, 3, 1001]
FLOATS = {"float64", "float32", "float16", "bfloat16"}
Case = tuple[str, Callable[[Any], list[torch.Tensor]]]


def value(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    flat = torch.arange(max(1, torch.Size(shape).numel()))[: torch.Size(shape).numel()]
    return ((flat * (rank + 3)) % 5 - (0 if dtype in (torch.uint8, torch.bool) else 2)).to(dtype).reshape(shape)


def shapes(rank: int, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    for size in SIZES:
        yield f"[{size}]", value(rank, size, dtype=dtype)
    yield "scalar", value(rank, 1, dtype=dtype)[0].clone()
    yield "misaligned", value(rank, 78, dtype=dtype)[1:]
    yield "matrix", value(rank, 4, 5, dtype=dtype)


def cases(rank: int, size: int) -> Iterator[Case]:
    names = DTYPES if size > 2 else DTYPES[1::3]
    for op in OPS:
        for name in names:
            for label, tensor in shapes(rank, getattr(torch, name)) if defined(op, name) else ():
                yield f"all_reduce {op} {name} {label}", partial(all_reduce, tensor, op)
            if op in ("SUM", "MAX") and defined(op, name):
                yield f"reduce {op} {name}", partial(reduce, value(rank, 41, dtype=getattr(torch, name)), op, size - 1)
                yield f"reduce_scatter {op} {name}", partial(scatter_sums, rank, size, op, getattr(torch, name))
    for name in names:
        for label, tensor in shapes(rank, getattr(torch, name)):
            yield f"broadcast {name} {label}", partial(broadcast, tensor, size - 1)
            yield f"all_gather {name} {label}", partial(all_gather, tensor, size)
            yield f"gather {name} {label}", partial(gather, tensor, rank, size)
            yield f"scatter {name} {label}", partial(scatter, tensor, rank, size)
            yield f"send {name} {label}", partial(pass_on, tensor, rank, size)
        yield f"all_to_all {name}", partial(swap, value(rank, size * 7, 3, dtype=getattr(torch, name)), None, None)
    outgoing = [[(a + 2 * b) % 4 for b in range(size)] for a in range(size)]
    incoming = [outgoing[a][rank] for a in range(size)]
    tensor = value(rank, sum(outgoing[rank]), 2)
    yield "all_to_all uneven", partial(swap, tensor, outgoing[rank], incoming)
    yield "coalesced", partial(coalesced, rank, size)
    for op in ("sum", "max"):
        yield f"coalesced {op} of several types", partial(coalesced_of_several_types, rank, size, op)
    yield "functional results", partial(functional_results, rank, size)
    yield "objects", partial(objects, rank, size)
    yield "any source", partial(from_anybody, rank, size)
    yield "batch", partial(batch, rank, size)
    yield "barrier", lambda group: [torch.zeros(0)] if dist.barrier(group) is None else []


def defined(op: str, name: str) -> bool:
    """Say whether a type has an operation; Gloo breaks the whole group over some that it has not."""
    if op == "AVG":
        return name in FLOATS
    return name not in FLOATS | {"complex64"} if op[0] == "B" else name != "complex64" or op == "SUM"


def all_reduce(tensor: torch.Tensor, op: str, group: Any) -> list[torch.Tensor]:
    mine = tensor.clone()
    dist.all_reduce(mine, getattr(dist.ReduceOp, op), group)
    return [mine]


def reduce(tensor: torch.Tensor, op: str, root: int, group: Any) -> list[torch.Tensor]:
    mine = tensor.clone()
    dist.reduce(mine, root, getattr(dist.ReduceOp, op), group)
    return [mine] if dist.get_rank() == root else []


def scatter_sums(rank: int, size: int, op: str, dtype: torch.dtype, group: Any) -> list[torch.Tensor]:
    single, listed = torch.zeros(13, dtype=dtype), torch.zeros(7, dtype=dtype)
    dist.reduce_scatter_single(single, value(rank, 13 * size, dtype=dtype), getattr(dist.ReduceOp, op), group)
    parts = [value(rank + n, 7, dtype=dtype) for n in range(size)]
    dist.reduce_scatter(listed, parts, getattr(dist.ReduceOp, op), group)
    return [single, listed]


def broadcast(tensor: torch.Tensor, root: int, group: Any) -> list[torch.Tensor]:
    mine = tensor.clone()
    dist.broadcast(mine, root, group)
    return [mine]


def all_gather(tensor: torch.Tensor, size: int, group: Any) -> list[torch.Tensor]:
    parts = [torch.zeros_like(tensor) for _ in range(size)]
    dist.all_gather(parts, tensor, group)
    if not tensor.shape:
        return parts
    whole = torch.zeros(size * tensor.shape[0], *tensor.shape[1:], dtype=tensor.dtype)
    dist.all_gather_single(whole, tensor, group)
    return [*parts, whole]


def gather(tensor: torch.Tensor, rank: int, size: int, group: Any) -> list[torch.Tensor]:
    parts = [torch.zeros_like(tensor) for _ in range(size)]
    dist.gather(tensor, parts if rank == 0 else None, 0, group)
    return parts


def scatter(tensor: torch.Tensor, rank: int, size: int, group: Any) -> list[torch.Tensor]:
    mine = torch.zeros_like(tensor)
    parts = [tensor if n % 2 else torch.zeros_like(tensor) for n in range(size)]
    dist.scatter(mine, parts if rank == 1 else None, 1, group)
    return [mine]


def pass_on(tensor: torch.Tensor, rank: int, size: int, group: Any) -> list[torch.Tensor]:
    got = torch.zeros_like(tensor)
    sending = dist.isend(tensor, (rank + 1) % size, group, tag=5)
    assert sending is not None
    dist.recv(got, (rank - 1) % size, group, tag=5)
    sending.wait()
    return [got]


def swap(
    tensor: torch.Tensor, outgoing: list[int] | None, incoming: list[int] | None, group: Any
) -> list[torch.Tensor]:
    rows = len(tensor) if incoming is None else sum(incoming)
    out = torch.zeros(rows, *tensor.shape[1:], dtype=tensor.dtype)
    dist.all_to_all_single(out, tensor, incoming, outgoing, group)
    return [out]


def coalesced(rank: int, size: int, group: Any) -> list[torch.Tensor]:
    tensors = [value(rank, n) for n in (5, 0, 300)]
    dist.all_reduce_coalesced(tensors, group=group)
    lists = [[torch.zeros(3), torch.zeros(2)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [value(rank, 3), value(rank, 2)], group)
    return [*tensors, *(t for each in lists for t in each)]


def coalesced_of_several_types(rank: int, size: int, op: str, group: Any) -> list[torch.Tensor]:
    """Regression: all were reduced as what the first one is, a float beside a bool by the greatest of its bytes."""
    kinds = [torch.bool, torch.float32, torch.uint8, torch.bfloat16, torch.float32]
    whole = [value(rank, size * (3 + n), dtype=kind) for n, kind in enumerate(kinds)]
    found: list[torch.Tensor] = functional.reduce_scatter_tensor_coalesced(whole, op, [0] * len(kinds), group)
    parts = [torch.zeros(len(each) // size, dtype=each.dtype) for each in whole[:2]]
    with dist._coalescing_manager(group):
        for part, each in zip(parts, whole, strict=False):
            dist.reduce_scatter_tensor(part, each, group=group)
    return [each.clone() for each in found] + parts


def functional_results(rank: int, size: int, group: Any) -> list[torch.Tensor]:
    """Regression: what stands for a result that is under way was refused, and is what a tensor parallel layer gives."""
    both = [functional.all_reduce(value(rank, 7), "sum", group) for _ in range(2)]
    gathered = torch.zeros(7 * size)
    dist.all_gather_into_tensor(gathered, both[0], group=group)
    dist.all_reduce(both[1], group=group)
    return [gathered, both[1].clone()]


def objects(rank: int, size: int, group: Any) -> list[torch.Tensor]:
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (10 + 1000 * rank)}, group)
    told: list[Any] = [rank, None]
    dist.broadcast_object_list(told, 1, group)
    return [torch.tensor([len(each["text"]) for each in gathered]), torch.tensor(told[0])]


def from_anybody(rank: int, size: int, group: Any) -> list[torch.Tensor]:
    if rank:
        dist.send(value(rank, 9), 0, group, tag=11)
        return []
    parts = {}
    for _ in range(size - 1):
        part = torch.zeros(9)
        parts[dist.recv(part, None, group, tag=11)] = part
    assert sorted(parts) == list(range(1, size))
    return [parts[n] for n in sorted(parts)]


def batch(rank: int, size: int, group: Any) -> list[torch.Tensor]:
    got = [torch.zeros(17) for _ in range(40)]
    calls = [dist.P2POp(dist.isend, value(rank + n, 17), (rank + 1) % size, group) for n in range(40)]
    calls += [dist.P2POp(dist.irecv, part, (rank - 1) % size, group) for part in got]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return got


def compare() -> dict[str, Any]:
    """In each process: run every case on both groups."""
    import ictp2p.torch_backend  # noqa: F401

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=os.environ["STORE"], rank=rank, world_size=size)
    ours, compared, beyond, wrong = dist.new_group(backend="ictp2p"), 0, [], []
    for name, case in cases(rank, size):
        found = case(ours)
        try:
            theirs = case(dist.group.WORLD)
        except (RuntimeError, TypeError, ValueError) as error:
            beyond.append(f"{name}: {error}")
            continue
        compared += 1
        if not all(map(torch.equal, found, theirs)):
            wrong.append(f"{name}: {found} instead of {theirs}")
    dist.destroy_process_group()
    return {"compared": compared, "beyond": beyond, "wrong": wrong}


@pytest.mark.real
@pytest.mark.timeout(150)
@pytest.mark.parametrize("size", [2, 3])
def test_every_collective_gives_what_gloo_gives(size: int, tmp_path: Path) -> None:
    for found in ranks.run(compare, size, tmp_path):
        assert not found["wrong"]
        assert found["compared"] > (600 if size > 2 else 200)
        assert all(text.startswith("gather complex64") for text in found["beyond"]), "Gloo can what it could"
