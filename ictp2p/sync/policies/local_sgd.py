"""LocalSGD: workers train apart and average their parameters every so often.

Stich, "Local SGD Converges Fast and Communicates Little" (2018); with H = 1 it is data-parallel training. Averaging
the parameters is an outer step along the mean pseudo-gradient with learning rate 1 and no momentum, and that is how it
is done here: the machinery, the agreed state and the weights by contribution are those of `DiLoCo`.
"""

from __future__ import annotations

from typing import Unpack

import torch

from ictp2p.errors import ConfigError
from ictp2p.sync.mesh import Mesh
from ictp2p.sync.optimizers.outer import plain
from ictp2p.sync.pace import Pace
from ictp2p.sync.two_level.policy import Policy
from ictp2p.sync.two_level.settings import Awaited, Coded, Common, Compared, Decided, Divided, Overlapping


class LocalSGDOptions(Common, Divided, Overlapping, Coded, Awaited, Decided, Compared, total=False):
    """All but what is about an outer step: there is none."""


class LocalSGD(Policy):
    """Average the parameters of all clusters every `sync_every` inner steps.

    ```python
    with ictp2p.Peer(config) as peer, ictp2p.LocalSGD(peer, model, inner, sync_every=20):
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
        sync_every: int | Pace = 1,
        **options: Unpack[LocalSGDOptions],
    ) -> None:
        """Set it up.

        Args:
            peer: as for `Policy`.
            model: as for `Policy`.
            inner: as for `Policy`.
            sync_every: inner steps between averages; 1 is data-parallel training.
            options: see `Settings`; all but `outer_schedule`.

        Raises:
            ConfigError: a value is out of range.
        """
        given = next((name for name in ("outer", "outer_schedule") if name in options), None)
        if given is not None:
            raise ConfigError(f"LocalSGD takes no {given}: the average itself is its step; DiLoCo takes one")
        super().__init__(peer, model, inner, plain, sync_every, name="local-sgd", **options)
