"""Fragments of a model, so that a round carries a part of it and the link is busy all the time instead of now and then.

Streaming DiLoCo (Douillard et al., 2025) synchronizes one fragment per round. Fragment *k* of *P* takes every *P*-th
layer: `strided`, which the paper found slightly better than consecutive layers, because what a round changes is spread
over the depth of the model. A layer is never cut: its parameters and buffers are a unit, and so is every module outside
the stack of layers (embedding, head).

The division must be the same on every worker. It follows from the module tree alone, and its result is part of what
the digest of the configuration covers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from ictp2p.errors import ConfigError, shown

Fragments = tuple[tuple[str, ...], ...]
"""Names of the tensors in each fragment."""


def fragments(model: torch.nn.Module, names: Sequence[str], wanted: int | Sequence[Collection[str]]) -> Fragments:
    """Divide a model.

    Args:
        model: what is trained.
        names: its tensors that are synchronized, parameters and buffers, in their order.
        wanted: how many strided fragments; or for each fragment the names of the modules (or single tensors) in it,
            where the last fragment also takes what none of them names.

    Returns:
        For each fragment its tensors, in the order of `names`. None is empty.

    Raises:
        ConfigError: there are fewer layers than fragments, a name is unknown or in two fragments, or one is empty.
    """
    placed = _strided(model, names, wanted) if isinstance(wanted, int) else _listed(names, wanted)
    count = wanted if isinstance(wanted, int) else len(wanted)
    return tuple(tuple(name for name in names if placed[name] == number) for number in range(count))


def _strided(model: torch.nn.Module, names: Sequence[str], count: int) -> dict[str, int]:
    units = _units(model, names)
    kinds = list(dict.fromkeys(units.values()))
    if not 1 <= count <= len(kinds):
        raise ConfigError(f"fragments {count} is not from 1 to {len(kinds)}, the layers that this model has")
    return {name: kinds.index(unit) % count for name, unit in units.items()}


def _units(model: torch.nn.Module, names: Sequence[str]) -> dict[str, str]:
    """The unit that each tensor belongs to: a layer of the longest stack, or the module at its side."""
    stack = _stack(model)
    depth = len(stack.split(".")) + 1 if stack else 0

    def unit(name: str) -> str:
        parts = name.split(".")
        inside = stack is not None and (stack == "" or name.startswith(f"{stack}."))
        return ".".join(parts[: depth or 1]) if inside else ".".join(parts[:-1]) or name

    return {name: unit(name) for name in names}


def _stack(model: torch.nn.Module) -> str | None:
    """The name of the longest list of modules: the layers of a transformer."""
    lists = {
        name: len(module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList | torch.nn.Sequential)
    }
    return max(lists, key=lists.__getitem__) if lists else None


def _listed(names: Sequence[str], wanted: Sequence[Collection[str]]) -> dict[str, int]:
    for number, prefixes in enumerate(wanted):
        if not _are_names(prefixes):
            raise ConfigError(f"fragment {number} is {shown(prefixes)}, not a list of names")
    if not any(wanted):
        raise ConfigError(f"fragments {shown(wanted)} name no module: 1 is for all of the model in one")
    placed: dict[str, int] = {}
    for number, prefixes in enumerate(wanted):
        for prefix in sorted(prefixes):
            found = [name for name in names if name == prefix or name.startswith(f"{prefix}.")]
            twice = next((name for name in found if name in placed), None)
            if not found or twice is not None:
                what = f"{twice!r} is in fragment {placed[twice]} already" if twice else "names nothing that is trained"
                raise ConfigError(f"{shown(prefix)} of fragment {number} {what}")
            placed.update(dict.fromkeys(found, number))
    last = len(wanted) - 1
    placed = {name: placed.get(name, last) for name in names}
    empty = next((number for number in range(len(wanted)) if number not in placed.values()), None)
    if empty is not None:
        raise ConfigError(f"fragment {empty} is empty")
    return placed


def _are_names(prefixes: object) -> bool:
    return (
        isinstance(prefixes, Collection)
        and not isinstance(prefixes, str)
        and all(isinstance(prefix, str) for prefix in prefixes)
    )
