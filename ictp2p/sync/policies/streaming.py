"""Streaming DiLoCo: one fragment of the model at a time, while training goes on.

Douillard et al., "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch" (2025). Three
changes to DiLoCo, each an option of its own here:

- *Fragments.* Each of P fragments takes its outer step every `sync_every` inner steps, at an offset of its own. The
  offsets are spread evenly, to a step where P does not divide `sync_every` (`pace.turn`), so the peak bandwidth is that
  of a fragment, and the mean no more than DiLoCo's.
- *Overlap.* The round of a fragment is under way while `overlap` further inner steps are taken; then what it brought is
  mixed in: *new global (1 - mix) + local mix*. The pseudo-gradient was captured before, and the outer step starts from
  the fragment's last sync, not from where training is by now.
- *Low precision on the wire* (`codec="e3m0"`, four bits), accumulated in float32.

With one fragment and no overlap it is `DiLoCo`. The paper's outer learning rate is 0.4 with momentum 0.9; up to five
steps of overlap cost it no loss. What should be evaluated and saved are the global parameters
(`Policy.global_parameters`), which were better than any replica's own.
"""

from __future__ import annotations

from typing import Unpack

import torch

from ictp2p.sync.mesh import Mesh
from ictp2p.sync.optimizers.outer import Nesterov, OuterFactory
from ictp2p.sync.pace import Pace
from ictp2p.sync.two_level.policy import Policy
from ictp2p.sync.two_level.settings import Awaited, Coded, Common, Compared, Decided, Fragments, Stepped


class StreamingOptions(Common, Coded, Awaited, Stepped, Decided, Compared, total=False):
    """What is no parameter of `StreamingDiLoCo` itself."""


class StreamingDiLoCo(Policy):
    """Synchronize one fragment after the other, under cover of training.

    ```python
    with ictp2p.Peer(config) as peer, ictp2p.StreamingDiLoCo(peer, model, inner, fragments=8, overlap=5) as policy:
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
        sync_every: int | Pace = 100,
        fragments: Fragments = 4,
        overlap: int = 1,
        mix: float = 0.0,
        **options: Unpack[StreamingOptions],
    ) -> None:
        """Set it up.

        Args:
            peer: as for `Policy`.
            model: as for `Policy`.
            inner: as for `Policy`.
            outer: as for `Policy`; None for Nesterov SGD with learning rate 0.4 and momentum 0.9 (the paper's).
            sync_every: inner steps between two rounds of the same fragment, or an `AdaptivePace`.
            fragments: how many fragments, each of every P-th layer; or the names of the modules in each.
            overlap: inner steps between the capture of a pseudo-gradient and the landing of its round; at most those
                between two rounds.
            mix: how much of the local value stays at a landing, in [0, 1).
            options: see `Settings`.

        Raises:
            ConfigError: a value is out of range, or an optimizer does not fit.
        """
        super().__init__(
            peer,
            model,
            inner,
            _nesterov if outer is None else outer,
            sync_every,
            name="streaming-diloco",
            fragments=fragments,
            overlap=overlap,
            mix=mix,
            **options,
        )


def _nesterov(parameters: list[torch.nn.Parameter]) -> Nesterov:
    return Nesterov(parameters, lr=0.4)
