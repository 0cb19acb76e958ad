"""Asynchronous DiLoCo: nobody waits for a slower cluster, whose contribution is applied when it comes.

Liu et al., "Asynchronous Local-SGD Training for Language Modeling" (2024). A round begins with whoever is READY, after
a short grace for others who come with it. A cluster whose phase took longer finds the state further on: it goes on from
there with its own progress added, and brings that to a round of its own at once. Two things make this train as well as
waiting does, says the paper, and both are here:

- *Delayed Nesterov* (`delayed`): momentum is applied once per `clusters` contributions, the gradient at once, each as
  the share of a whole step that it is.
- *Dynamic local updates* (DyLU): a cluster takes steps in proportion to its speed, so that contributions are of about
  equal age. The agreed state says how fast the fastest is (`AdaptivePace`, whose H is held here).

With clusters of equal speed all are in every round, and this is `DiLoCo`, bit for bit. What it costs is the state: a
cluster that comes late fetches it anew, which a synchronous round does not need.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

import torch

from ictp2p.errors import ConfigError
from ictp2p.sync.mesh import Mesh
from ictp2p.sync.optimizers.delayed import DelayedNesterov
from ictp2p.sync.options import flag, whole
from ictp2p.sync.pace import AdaptivePace, Pace
from ictp2p.sync.two_level.policy import Policy
from ictp2p.sync.two_level.settings import Coded, Common, Compared, Decided, Divided, Overlapping, Stepped

_ANYBODY = 1e-9
"""Quorum of one: a share of the clusters that is less than any of them."""


class AsyncOptions(Common, Divided, Overlapping, Coded, Stepped, Decided, Compared, total=False):
    """All but who is waited for: nobody is."""


class AsyncDiLoCo(Policy):
    """Take an outer step with whoever has come.

    ```python
    with ictp2p.Peer(config) as peer, ictp2p.AsyncDiLoCo(peer, model, inner, clusters=4, sync_every=50) as policy:
        for batch in peer.steps(loader):
            ...
    ```
    """

    def __init__(
        self,
        peer: Mesh,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        clusters: int,
        sync_every: int = 50,
        lr: float = 0.7,
        momentum: float = 0.9,
        proportional: bool = True,
        **options: Unpack[AsyncOptions],
    ) -> None:
        """Set it up.

        Args:
            peer: as for `Policy`.
            model: as for `Policy`.
            inner: as for `Policy`.
            clusters: contributions that make a whole outer step: the clusters that are expected to train.
            sync_every: inner steps of the fastest cluster between outer rounds.
            lr: outer learning rate of a whole step.
            momentum: its decay per `clusters` contributions.
            proportional: whether slower clusters take fewer steps (DyLU).
            options: see `Settings`; all but `quorum` and `spread`.

        Raises:
            ConfigError: a value is out of range.
        """
        taken = next((name for name in ("quorum", "spread") if name in options), None)
        if taken is not None:
            raise ConfigError(f"AsyncDiLoCo waits for nobody, so it takes no {taken}")
        if "outer" in options:
            raise ConfigError("AsyncDiLoCo takes no outer: its step is Delayed Nesterov's, with lr and momentum")
        clusters, proportional = whole("clusters", clusters, 1), flag("proportional", proportional)
        if proportional and options.get("within") is not None:
            raise ConfigError(
                "proportional=True agrees in one mesh on how far each cluster trains, and with `within` each shard has "
                "its own: give proportional=False"
            )
        pace = AdaptivePace(sync_every, least=sync_every, most=sync_every) if proportional else Pace(sync_every)
        outer = partial(DelayedNesterov, lr=lr, momentum=momentum, every=clusters)
        super().__init__(peer, model, inner, outer, pace, name="async-diloco", quorum=_ANYBODY, spread=0.0, **options)
