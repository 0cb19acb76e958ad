"""Turning a `state_dict` into plain bytes and tensors, and back: no pickle, so nothing received is ever executed.

A tree of dicts, lists, tuples, numbers, strings and tensors becomes a MessagePack skeleton, in which each tensor is its
number, dtype and shape, and the list of the tensors; of a distributed one, what of it is here. The skeleton is checked
before anything is allocated for it. NumPy's scalars, as a schedule leaves them in an optimizer, are the numbers that
they hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from ictp2p.errors import ConfigError, StateError
from ictp2p.sync import options
from ictp2p.sync.state.local import local
from ictp2p.sync.state.manifest import ITEM_BYTES

_PLAIN = (bool, int, float, str, bytes, type(None))
_BYTES = ITEM_BYTES | {
    "complex64": 8, "complex128": 16, "uint16": 2, "uint32": 4, "uint64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
"""Bytes per element: a worker may hold tensors, such as angles as complex numbers, that no global state does."""


def pack(tree: Any, where: str = "state") -> tuple[bytes, list[Tensor]]:
    """Take a tree apart.

    Raises:
        ConfigError: something in it is neither plain data nor a tensor; the message says where.
    """
    tensors: list[Tensor] = []
    return msgspec.msgpack.encode(_flatten(tree, where, tensors)), tensors


def unpack(skeleton: bytes, tensors: Sequence[Tensor]) -> Any:
    """Put a tree together again."""
    return _build(_decode(skeleton), iter(tensors))


def allocate(skeleton: bytes, most: int) -> list[Tensor]:
    """Make CPU tensors for those that a skeleton speaks of.

    Raises:
        StateError: it makes no sense, or asks for more than `most` bytes.
    """
    leaves = list(_leaves(_decode(skeleton)))
    for dtype, shape in leaves:
        if dtype not in _BYTES or any(not isinstance(n, int) or n < 0 for n in shape):
            raise StateError(f"skeleton names a tensor of {dtype!r} {shape!r}")
    size = sum(_BYTES[dtype] * math.prod(shape) for dtype, shape in leaves)
    if size > most:
        raise StateError(f"skeleton asks for {size} bytes, more than {most}")
    return [torch.empty(shape, dtype=getattr(torch, dtype), device="cpu") for dtype, shape in leaves]


def octets(tensor: Tensor) -> memoryview:
    """The bytes of a tensor on the CPU: its own memory if it is contiguous, a copy else.

    One that is a conjugate, or negative, by a mark alone has that in its bytes: whoever receives them has no mark.
    """
    held = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    flat = held.as_strided((held.numel(),), (1,))  # a single element of a column would keep the column's stride
    return flat.view(torch.uint8).numpy().data


def _flatten(tree: Any, where: str, tensors: list[Tensor]) -> list[Any]:
    if isinstance(tree, Tensor):
        part = local(tree)
        return ["t", _dtype(part, where, tensors), list(part.shape)]
    if isinstance(tree, dict):
        return ["d", [[_key(k, where), _flatten(v, f"{where}[{k!r}]", tensors)] for k, v in tree.items()]]
    if isinstance(tree, (list, tuple)):
        kind = "l" if isinstance(tree, list) else "u"
        return [kind, [_flatten(v, f"{where}[{i}]", tensors) for i, v in enumerate(tree)]]
    value = options.plain(tree)
    if type(value) is int and not -(2**63) <= value < 2**64:
        raise ConfigError(f"{where} is a whole number of more than 64 bits, {value}: it cannot be sent to a newcomer")
    if type(value) in _PLAIN:
        return ["v", value]
    raise ConfigError(f"{where} is a {type(tree).__name__}: only plain data and tensors can be sent to a newcomer")


def _dtype(tensor: Tensor, where: str, tensors: list[Tensor]) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _BYTES or tensor.layout is not torch.strided:
        raise ConfigError(f"{where} is a tensor of {tensor.dtype}, {tensor.layout}: it cannot be sent to a newcomer")
    tensors.append(tensor)
    return name


def _key(key: Any, where: str) -> Any:
    value = options.plain(key)
    if type(value) not in _PLAIN:
        raise ConfigError(f"{where} has a key of type {type(key).__name__}: only plain keys can be sent to a newcomer")
    return value


def _decode(skeleton: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(skeleton)
    # Text that is no UTF-8, and nesting without end, are not msgspec's own errors.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StateError(f"skeleton does not decode: {error}") from error


def _leaves(node: Any) -> Iterator[tuple[str, list[int]]]:
    match node:
        case ["t", str(dtype), list(shape)]:
            yield dtype, shape
        case ["d", list(items)]:
            for item in items:
                yield from _leaves(_valued(item))
        case ["l" | "u", list(items)]:
            for item in items:
                yield from _leaves(item)
        case ["v", _]:
            return
        case _:
            raise StateError(f"skeleton holds {node!r}")


def _valued(item: Any) -> Any:
    match item:
        case [key, value] if type(key) in _PLAIN:
            return value
    raise StateError(f"skeleton holds the pair {item!r}")


def _build(node: Any, remaining: Iterator[Tensor]) -> Any:
    """Put the tensors back. A function in here that calls itself would keep them: it is a cycle."""
    kind, content = node[0], node[1]
    if kind == "t":
        return next(remaining)
    if kind == "d":
        return {key: _build(value, remaining) for key, value in content}
    if kind == "l":
        return [_build(value, remaining) for value in content]
    return tuple(_build(value, remaining) for value in content) if kind == "u" else content
