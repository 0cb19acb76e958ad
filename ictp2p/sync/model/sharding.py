"""What a model must be whose shards are averaged each by a mesh of its own.

Each rank of a cluster averages what it holds, and a round of one shard may come to nothing while that of another is
committed. So what several ranks hold a copy of, as tensor parallelism has norms, would come apart between them, in
silence: only what is in one place may be trained. And a sharded model without `within` would have each rank take its
part for the whole.

After a forward pass without a backward one, as an evaluation makes it, FSDP2 leaves what it has gathered in the place
of the shards. Whoever looks at the model from outside of a pass puts them back first.
"""

from __future__ import annotations

import sys
from collections.abc import Collection

import torch
from torch import Tensor

from ictp2p.errors import ConfigError
from ictp2p.sync.state.local import is_distributed

_WHERE = 'see "Where a cluster shards its model" in docs/policies.md'


def reshard(model: torch.nn.Module) -> None:
    """Have the parameters of a model of FSDP2's be their shards again. Not within a forward or backward pass."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:  # what is not loaded has sharded nothing
        return
    for module in model.modules():
        if isinstance(module, fsdp.FSDPModule):
            module.reshard()


def check_shards(model: torch.nn.Module, *, within: bool) -> None:
    """See that each trained parameter is in one place.

    Args:
        model: of the policy.
        within: whether the ranks are named among which it is sharded.

    Raises:
        ConfigError: a parameter is not; it is named.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    sharded = [name for name, p in trained.items() if is_distributed(p)]
    if sharded and not within:
        raise ConfigError(
            f"parameter {sharded[0]!r} is distributed among ranks (DTensor), each of which averages its part: give "
            f"these as `within`; {_WHERE}"
        )
    if not sharded:
        return
    for name, parameter in trained.items():
        if not is_distributed(parameter) or _is_copied(parameter):
            raise ConfigError(
                f"parameter {name!r} is whole on several ranks, while {sharded[0]!r} is sharded: each of them would "
                f"average it in a mesh of its own, and they would come apart; {_WHERE}"
            )


def check_ranks(model: torch.nn.Module, ranks: Collection[int]) -> None:
    """See that all who hold parts of a model's parameters are among these ranks: who is not would not keep step.

    There may be more of them: stages of a pipeline are sharded each among its own.

    Raises:
        ConfigError: some are not; a parameter of theirs is named.
    """
    for name, parameter in model.named_parameters():
        holders = _holders(parameter) if is_distributed(parameter) else []
        lacking = sorted({*holders}.difference(ranks))
        if lacking:
            raise ConfigError(
                f"within has the ranks {sorted(ranks)}, and parameter {name!r} is distributed among {sorted(holders)}: "
                f"{lacking} would not keep step with the others; {_WHERE}"
            )


def _holders(parameter: Tensor) -> list[int]:
    found: list[int] = parameter.device_mesh.mesh.flatten().tolist()  # type: ignore[attr-defined]
    return found


def _is_copied(parameter: Tensor) -> bool:
    mesh, placements = parameter.device_mesh, parameter.placements  # type: ignore[attr-defined]
    return any(size > 1 and not placed.is_shard() for size, placed in zip(mesh.shape, placements, strict=True))
