"""DiLoCo: an inner optimizer for many local steps, an outer one on the averaged pseudo-gradient.

Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models" (2023): AdamW inside, Nesterov
momentum outside with learning rate 0.7 and momentum 0.9, H about 500. The pseudo-gradient is *old global minus local*,
averaged by weight over the clusters that contributed to this round, and the outer step starts from the parameters of
the last sync, not from the current ones. The state of the inner optimizer stays where it is: exchanging it triples the
traffic and gains nothing (same paper). With fewer inner steps, or few clusters, a lower outer learning rate is better:
0.4 for two (Charles et al., "Communication-Efficient Language Model Training Scales Reliably and Robustly", 2025).
"""

from __future__ import annotations

from typing import Unpack

import torch

from ictp2p.sync.mesh import Mesh
from ictp2p.sync.optimizers.outer import OuterFactory
from ictp2p.sync.pace import Pace
from ictp2p.sync.two_level.policy import Policy
from ictp2p.sync.two_level.settings import AllOptions


class DiLoCo(Policy):
    """Train apart for `sync_every` inner steps, then take one outer step together.

    ```python
    with ictp2p.Peer(config) as peer, ictp2p.DiLoCo(peer, model, inner, sync_every=100):
        for batch in peer.steps(loader):
            loss = model(batch).mean()
            loss.backward()
            inner.step()
            inner.zero_grad()
    ```
    """

    def __init__(
        self,
        peer: Mesh,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        outer: torch.optim.Optimizer | OuterFactory | None = None,
        sync_every: int | Pace = 100,
        **options: Unpack[AllOptions],
    ) -> None:
        """Set it up.

        Args:
            peer: as for `Policy`.
            model: as for `Policy`.
            inner: as for `Policy`.
            outer: as for `Policy`; None for Nesterov SGD with learning rate 0.7 and momentum 0.9 (the paper's).
            sync_every: inner steps between outer rounds, or an `AdaptivePace`.
            options: see `Settings`.

        Raises:
            ConfigError: a value is out of range, or an optimizer does not fit.
        """
        super().__init__(peer, model, inner, outer, sync_every, name="diloco", **options)
