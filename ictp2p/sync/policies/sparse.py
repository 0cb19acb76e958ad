"""Sparse DiLoCo: a round carries the few largest elements, and what was left out comes with a later one.

Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo" (2025). Of every `chunk` elements of the
pseudo-gradient the `keep` largest are brought; the rest, and what rounding took from those, is the residual
of error feedback, of which `decay` is added to the next pseudo-gradient before its largest are chosen:

    a = pseudo-gradient + decay residual        brought = largest(a)        residual <- a - brought, if committed

The residual does a momentum's work, so the outer step is plain SGD with learning rate 1. All is chosen before the
round, and the codec carries what was chosen as it is, sums included: nothing more is lost on the way, and the
average is that of what was brought, whichever the schedule and whoever owns which share.

A residual is its cluster's own. It moves on only with a round that was committed with the contribution in it; after
any other the same is brought again, once. It is carried to newcomers of the cluster, and dies with its last worker. The
average of a round that others finished without this cluster takes nothing of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Literal, Unpack

import torch
from torch import Tensor

from ictp2p.collectives.codecs.feedback import Feedback
from ictp2p.collectives.codecs.topk import BLOCK, TopK
from ictp2p.collectives.codecs.topk2bit import KEPT, TopK2Bit
from ictp2p.errors import ConfigError, shown
from ictp2p.sync.mesh import Mesh
from ictp2p.sync.model.arithmetic import check_finite
from ictp2p.sync.model.weights import Weights
from ictp2p.sync.optimizers.outer import OuterFactory, plain
from ictp2p.sync.options import number, whole
from ictp2p.sync.pace import Pace
from ictp2p.sync.two_level.policy import Policy
from ictp2p.sync.two_level.settings import Awaited, Common, Compared, Decided, Divided, Overlapping, Stepped

_MOST_CHUNK = 65536


class SparseOptions(Common, Divided, Overlapping, Awaited, Stepped, Decided, Compared, total=False):
    """All but the codec, which is a parameter of `SparseDiLoCo` itself."""


class SparseDiLoCo(Policy):
    """Average every `sync_every` inner steps what moved most, and remember the rest.

    ```python
    with ictp2p.Peer(config) as peer, ictp2p.SparseDiLoCo(peer, model, inner, sync_every=30) as policy:
        for batch in peer.steps(loader):
            ...
    ```
    """

    def __init__(
        self,
        peer: Mesh,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        outer: torch.optim.Optimizer | OuterFactory | None = None,
        sync_every: int | Pace = 30,
        chunk: int = BLOCK,
        keep: int = KEPT,
        decay: float = 0.95,
        codec: Literal["topk", "topk2bit", "none"] = "topk",
        **options: Unpack[SparseOptions],
    ) -> None:
        """Set it up.

        Args:
            peer: as for `Policy`.
            model: what is trained. Its floating-point buffers are thinned out like its parameters.
            inner: as for `Policy`.
            outer: as for `Policy`; None for SGD with learning rate 1 and no momentum (the paper's).
            sync_every: inner steps between outer rounds, or an `AdaptivePace`.
            chunk: elements among which the largest are chosen, from 1 to 65536.
            keep: how many of them, from 1 to `chunk`.
            decay: how much of the residual is added to the next pseudo-gradient, in [0, 1]; 1 loses nothing ever.
            codec: `topk`, which carries up to 64 of every 4096 elements as bfloat16; `topk2bit`, which carries exactly
                those in two bits each, the paper's choice; `none` for more than these: then everything is sent, zeros
                too.
            options: see `Settings`. `without_quorum="continue"` is none: which of several contributions was committed
                in the end would not be known, nor what is left of it.

        Raises:
            ConfigError: a value is out of range, or an optimizer or the model's dtype does not fit.
        """
        chunk, keep, decay = _checked(chunk, keep, decay, codec)
        if shown(options.get("without_quorum")) == "'continue'":
            raise ConfigError("without_quorum 'continue' leaves open what a round in doubt carried: 'wait' or 'stop'")
        super().__init__(
            peer,
            model,
            inner,
            plain if outer is None else outer,
            sync_every,
            name="sparse-diloco",
            codec=codec,
            arithmetic=partial(SparseWeights, chunk=chunk, keep=keep, decay=decay, codec=codec),
            **options,
        )


class SparseWeights(Weights):
    """`Weights` that bring the largest elements of a pseudo-gradient, and keep the rest for the next one."""

    keeps_residual = True

    def __init__(
        self,
        model: torch.nn.Module,
        outer: torch.optim.Optimizer | OuterFactory | None,
        settings: Sequence[tuple[str, str]],
        *args: Any,
        chunk: int,
        keep: int,
        decay: float,
        codec: str,
    ) -> None:
        """As `Weights`, with what `SparseDiLoCo` has besides."""
        super().__init__(model, outer, [*settings, ("kept", f"{keep} of {chunk}, decay {decay!r}")], *args)
        if self.dtype != torch.float32:
            raise ConfigError(f"a model in {self.dtype} cannot be sparse: what is kept is written as bfloat16")
        sizes = [self.elements(fragment) for fragment in range(len(self.fragments))]
        self._kept = [
            Feedback(TopK2Bit() if codec == "topk2bit" else TopK(keep, torch.bfloat16, chunk), size, decay)
            for size in sizes
        ]

    @property
    def residuals(self) -> tuple[Tensor, ...]:
        """By fragment, what committed contributions have left out so far, flat."""
        return tuple(feedback.residual for feedback in self._kept)

    def capture(self, weight: float) -> None:
        """Compute the pseudo-gradient, and keep back what is not among its largest elements.

        Without weight the residual stays where it is: in a contribution that counts for nothing it would be lost.

        Raises:
            NotFinite: as for `Weights`, and where a pseudo-gradient overflows with what was kept back. Of such elements
                only so many of a block would be brought, and the others neither brought nor kept.
        """
        super().capture(weight)
        kept = self._kept[self._captured]
        if weight:
            kept.apply(self.delta)
            check_finite(self._views(self.delta))
        else:
            kept.pending.copy_(kept.residual)

    def commit(self, version: int) -> None:
        """Make the finished state the agreed one: what was kept back is the residual now."""
        super().commit(version)
        self._kept[self._captured].commit()

    def adopt(self, *, mine: Collection[int]) -> None:
        """Train on from a state just received; if the contribution is in it, what was kept back is the residual now.

        Of another fragment that is in it, by another worker, nobody knows any more what that kept back.
        """
        super().adopt(mine=mine)
        for fragment in mine:
            if fragment == self._captured:
                self._kept[fragment].commit()
            else:
                self._kept[fragment].clear()

    def load(self) -> None:
        """Train on from the agreed state; a residual of what was here before does not belong to it."""
        super().load()
        for feedback in self._kept:
            feedback.clear()

    def carried(self, *, captured: bool) -> dict[str, Any]:
        """What a newcomer to the cluster needs, beside the model and the agreed state."""
        pending = {"pending": self._kept[self._captured].pending} if captured else {}
        return {**super().carried(captured=captured), "residuals": list(self.residuals), **pending}

    @torch.no_grad()
    def take_over(self, carried: dict[str, Any]) -> None:
        """Hold what another worker holds."""
        super().take_over(carried)
        for residual, theirs in zip(self.residuals, carried["residuals"], strict=True):
            residual.copy_(theirs)
        if "pending" in carried:
            self._kept[self._captured].pending.copy_(carried["pending"])


def _checked(chunk: int, keep: int, decay: float, codec: str) -> tuple[int, int, float]:
    chunk, keep = whole("chunk", chunk, 1), whole("keep", keep, 1)
    if chunk > _MOST_CHUNK:
        raise ConfigError(f"chunk {chunk!r} is not from 1 to {_MOST_CHUNK}")
    if keep > chunk:
        raise ConfigError(f"keep {keep!r} is not from 1 to the {chunk} elements of a chunk")
    decay = number("decay", decay, lambda share: 0.0 <= share <= 1.0, "in [0, 1]")
    if not isinstance(codec, str) or codec not in ("topk", "topk2bit", "none"):
        raise ConfigError(
            f"codec {shown(codec)} would lose more than the residual knows of: 'topk', 'topk2bit' or 'none'"
        )
    if codec == "topk2bit" and (keep, chunk) != (KEPT, BLOCK):
        raise ConfigError(f"codec 'topk2bit' carries {KEPT} of {BLOCK} elements, not {keep} of {chunk}")
    most = _most_in_a_block(chunk, keep)
    if codec == "topk" and most > KEPT:
        raise ConfigError(
            f"{keep} of {chunk} may be {most} of {BLOCK} elements, of which codec 'topk' carries {KEPT}: "
            "keep fewer, or have codec='none' send everything"
        )
    return chunk, keep, decay


def _most_in_a_block(chunk: int, keep: int) -> int:
    """How many kept elements may lie in one block of the codec."""
    touched = -(-BLOCK // chunk) + (BLOCK % chunk != 0 and chunk % BLOCK != 0)
    return min(BLOCK, touched * keep)
