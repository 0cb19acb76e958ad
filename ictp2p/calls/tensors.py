"""The memory of a call: the caller's tensors, seen as one flat vector of one type or as bytes.

What goes out is a copy (or, in a cluster of one worker, the tensors themselves, which are only read), and what comes
in lands in memory of our own. The caller's tensors are written once, when the call has succeeded.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ictp2p.collectives.running.usable import awaited, unreadable, unwritable
from ictp2p.core.planning import ITEM_SIZES
from ictp2p.errors import ConfigError, shown
from ictp2p.sync.mesh import Group
from ictp2p.sync.model.trainees import LEAST_WEIGHT, MOST_WEIGHT
from ictp2p.sync.state.manifest import ITEM_BYTES

_PIECE = 4 * 1024 * 1024
"""Elements per sum inside the cluster: bounds the staging memory, and gives each piece its own deadline."""
_BRIEF = 256
"""Characters of types and shapes that travel with each call as they are."""


class Bundle:
    """The tensors of one call, looked at before anybody else hears of it: one that fails later fails in the group.

    Args:
        tensors: one or several.
        written: whether the call changes them.

    Raises:
        ConfigError: there are none; or one is not a tensor, has no memory of its own, is of a type that cannot be sent,
            or cannot be written to; it is named.
    """

    def __init__(self, tensors: Tensor | Sequence[Tensor], *, written: bool = False) -> None:
        try:
            self.tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        except TypeError:
            raise ConfigError(f"tensors {shown(tensors)} is neither a tensor nor a sequence of tensors") from None
        if not self.tensors:
            raise ConfigError("tensors is empty: give at least one")
        for number, tensor in enumerate(self.tensors):
            if not isinstance(tensor, Tensor):
                raise ConfigError(f"tensors[{number}] is not a tensor: {type(tensor).__name__}")
            self.tensors[number] = awaited(tensor)
            if objection := unusable(self.tensors[number], written):
                raise ConfigError(f"tensors[{number}] {objection}")
        self.elements = sum(t.numel() for t in self.tensors)
        self._starts, self.nbytes = _layout(self.tensors)

    @property
    def shapes(self) -> str:
        """Types and shapes, for people and to be compared."""
        return ", ".join(f"{name_of(t)}{list(t.shape)}" for t in self.tensors)

    @property
    def brief(self) -> bytes:
        """The same, for the others to be told in what theirs differ; how many and a digest where that would be long."""
        text = self.shapes
        if len(text) > _BRIEF:
            digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
            count = f"{len(self.tensors)} of {self.elements} elements in all"
            text = f"{count}, whose types and shapes have digest {digest}"
        return text.encode()

    def single_type(self, op: str) -> torch.dtype:
        """The one type of all tensors, if it can be reduced by `op`.

        Raises:
            ConfigError: they mix types, or it cannot.
        """
        names = sorted({name_of(t) for t in self.tensors})
        if len(names) > 1:
            raise ConfigError(f"tensors mix the types {', '.join(names)}: reduce them in separate calls, one per type")
        dtype = self.tensors[0].dtype
        if names[0] not in ITEM_SIZES:
            raise ConfigError(f"tensors of type {names[0]} cannot be reduced")
        if op == "avg" and not dtype.is_floating_point:
            raise ConfigError(f"{names[0]} cannot be averaged without rounding: use op='sum'")
        return dtype

    @torch.no_grad()
    def readable(self) -> list[Tensor]:
        """The tensors themselves, flat, where they can be read as they lie; else copies."""
        return [t.detach().resolve_neg().cpu().contiguous().view(-1) for t in self.tensors]

    @torch.no_grad()
    def copied(self) -> Tensor:
        """All bytes, flat; zeros between tensors of different types."""
        held = torch.zeros(self.nbytes, dtype=torch.uint8, device="cpu")
        for view, tensor in zip(self.shaped(held), self.tensors, strict=True):
            view.copy_(tensor.detach())
        return held

    def deliver(self, held: Tensor) -> None:
        """Write flat bytes into the caller's tensors."""
        for view, tensor in zip(self.shaped(held), self.tensors, strict=True):
            overwrite(tensor, view)

    def parts(self, held: Tensor) -> list[Tensor]:
        """Flat bytes as one flat tensor per tensor, of its type."""
        ends = [start + t.numel() * t.itemsize for start, t in zip(self._starts, self.tensors, strict=True)]
        spans = zip(self._starts, ends, self.tensors, strict=True)
        return [held[start:end].view(t.dtype) for start, end, t in spans]

    def shaped(self, held: Tensor) -> list[Tensor]:
        """Flat bytes as tensors of the types and shapes of ours, sharing memory with them."""
        return [part.view(t.shape) for part, t in zip(self.parts(held), self.tensors, strict=True)]


@torch.no_grad()
def overwrite(tensor: Tensor, content: Tensor) -> None:
    """Copy into a tensor of the caller, from a thread that need not be in the mode that the caller is in.

    What was made under `torch.inference_mode` may be written to in that mode alone, which is of a thread. A view of it
    that is detached may be written to in every mode.
    """
    tensor.detach().copy_(content)


def unusable(tensor: Tensor, written: bool) -> str:
    """Why a tensor cannot be sent, or written if it is to be, after its name; nothing if it can."""
    if objection := unreadable(tensor) or (unwritable(tensor) if written else ""):
        return objection
    if name_of(tensor) not in ITEM_BYTES:
        return f"has type {tensor.dtype}, which cannot be sent"
    if written and tensor.is_inference() and not torch.is_inference_mode_enabled():
        return "was made in inference mode, and cannot be written outside of it; give a clone()"
    return ""


def as_weight(weight: object) -> float:
    """Convert a weight, a number of any kind, to a float; one that no float holds is infinite.

    Raises:
        ConfigError: it is not a number; text is not, whatever it says.
    """
    try:
        return float("" if isinstance(weight, str) else weight)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):  # of a tensor of several
        raise ConfigError(f"weight {shown(weight)} is not a number") from None
    except OverflowError:
        return math.inf


@dataclass(frozen=True, slots=True)
class Addend:
    """What one worker brings to a sum or mean.

    Raises:
        ConfigError: the tensors cannot be added up, there is no such operation, or the weight is out of range.
    """

    bundle: Bundle
    op: Literal["avg", "sum"]
    """Whether it is the mean or the sum that is wanted."""
    weight: float = 1.0
    """This worker's share in a mean."""

    def __post_init__(self) -> None:
        if not isinstance(self.op, str) or self.op not in ("avg", "sum"):
            raise ConfigError(f"op {shown(self.op)} is not 'avg' or 'sum'")
        if not LEAST_WEIGHT <= self.weight <= MOST_WEIGHT:
            raise ConfigError(f"weight {self.weight!r} is not from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}")
        self.bundle.single_type(self.op)

    @property
    def dtype(self) -> torch.dtype:
        """The one type of its tensors."""
        return self.bundle.single_type(self.op)


def local_sum(group: Group, flat: Tensor, share: float | None) -> None:
    """Add `flat` up over the workers of a cluster, in place, each times its share if there is one.

    Types that are narrower than what processors add are widened: half floats would round at every step, and Gloo
    does not know all integers. Sums of integers wrap around in either width alike.

    Raises:
        LocalGroupError: the group broke; `flat` is garbage.
    """
    if group.size == 1:
        return
    wide = _wide(flat.dtype)
    for piece in torch.split(flat, _PIECE):
        staging = group.staging(piece.numel(), wide)
        staging.copy_(piece)
        if share is not None:
            staging.mul_(share)
        group.all_reduce(staging)
        piece.copy_(staging)


def name_of(tensor: Tensor) -> str:
    """A tensor's type as the wire names it."""
    return str(tensor.dtype).removeprefix("torch.")


def _layout(tensors: Sequence[Tensor]) -> tuple[list[int], int]:
    """First byte of each tensor, and how many there are; an element can only be seen where its size divides."""
    starts, end = [], 0
    for tensor in tensors:
        start = -(-end // tensor.itemsize) * tensor.itemsize
        starts.append(start)
        end = start + tensor.numel() * tensor.itemsize
    return starts, end


def _wide(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_floating_point:
        return torch.float64 if dtype is torch.float64 else torch.float32
    return torch.int64 if dtype is torch.int64 else torch.int32
