"""What every two-level synchronization policy has in common: when to do what, and what to do when it breaks.

The user's loop stays as it is; the policy hooks the inner optimizer. Before each inner step the gradients are
averaged inside the cluster (`averaging`). After every `sync_every` inner steps the cluster takes part in an outer
round (`outer_round`): the leader brings the pseudo-gradient, *old global minus local*, to the mesh, the followers get
the average streamed (`stream`), and everybody takes the same outer step from the parameters of the last sync, beside
the current ones, and applies it when the mesh has committed it.

Every worker holds the same parameters, inner state and global state, so any of them can lead. When the group breaks,
or changes for a newcomer, the workers meet in the next one, are made identical (`heal`), and go on with whatever was
due: the step is retried, the outer round repeated. Three rules keep anything from being counted twice or lost:

1. A worker that healing moved to another step had its gradient counted already, or computed it for other parameters:
   it contributes weight zero to the next average.
2. A round that committed through a leader that died since holds this cluster's contribution: the new leader takes the
   result and drops the local progress, which is inside. If the mesh committed *without* this cluster, the local
   progress is carried over: theta <- G_new + (theta - G_old).
3. A round that was not committed changes nothing at all; the pseudo-gradient of the next one starts from the same base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar, get_args

import torch
from torch import Tensor

from ictp2p.errors import ConfigError, LocalGroupError
from ictp2p.sync.averaging import Averager
from ictp2p.sync.heal import Progress, Replica, Stateful, heal
from ictp2p.sync.manifest import config_digest, describe
from ictp2p.sync.mesh import Group, Mesh
from ictp2p.sync.outer import OuterFactory
from ictp2p.sync.outer_round import OuterRound, WithoutQuorum
from ictp2p.sync.state import GlobalState
from ictp2p.sync.values import Spec
from ictp2p.sync.weights import Weights

_T = TypeVar("_T")


class _Moved(Exception):
    """Everybody leaves the group at this step boundary."""


class Policy:
    """Keeps a model in step with the mesh, as a context manager around an ordinary training loop."""

    def __init__(
        self,
        peer: Mesh,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        outer: torch.optim.Optimizer | OuterFactory | None,
        sync_every: int,
        *,
        name: str,
        codec: str = "none",
        without_quorum: WithoutQuorum = "wait",
        carry: Sequence[Stateful] = (),
    ) -> None:
        """Set it up without touching the network.

        Args:
            peer: the connection to the mesh.
            model: what is trained.
            inner: its optimizer, on which the training loop calls `step()`.
            outer: the outer optimizer; None for DiLoCo's default.
            sync_every: inner steps between outer rounds, at least 1.
            name: of the policy; must be the same everywhere.
            codec: what the pseudo-gradients are encoded with on the wire.
            without_quorum: what to do while the mesh cannot decide.
            carry: further objects that a newcomer to the cluster must take over (a learning-rate schedule, say).

        Raises:
            ConfigError: a value is out of range, or an optimizer does not fit.
        """
        if sync_every < 1:
            raise ConfigError(f"sync_every {sync_every!r} is not at least 1")
        if without_quorum not in get_args(WithoutQuorum):
            raise ConfigError(f"without_quorum {without_quorum!r} is none of {get_args(WithoutQuorum)}")
        self.weight: float = 1.0
        """Weight of this worker's next steps in every average: tokens or samples per step. 0 to look on."""
        self.progress = Progress()
        """How far this worker is; read it, do not write it."""
        self.sync_every = sync_every
        self._peer, self._inner = peer, inner
        settings = [("policy", name), ("sync_every", str(sync_every)), ("codec", codec)]
        self._weights = weights = Weights(model, outer, settings)
        self._items = describe(self.state.entries, self.state.settings)
        dtype = str(weights.dtype).removeprefix("torch.")
        spec = Spec("sync", name, dtype, weights.delta.numel(), "avg", codec, config_digest(self._items))
        self._outer_round = OuterRound(peer, weights, self.progress, spec, without_quorum)
        self._averager = Averager(list(weights.trained.values()), list(weights.buffers.values()))
        self._replica = Replica(model, inner, carry)
        self._group: Group | None = None
        self._seen: tuple[int, int] | None = None
        self._spent = False
        """Whether the gradient in hand must not count."""
        self._hooks: list[Any] = []

    def __repr__(self) -> str:
        at = self.progress
        return f"<{type(self).__name__} step {at.step} version {at.version}, sync in {self.sync_every - at.since}>"

    @property
    def state(self) -> GlobalState:
        """The global state: what the mesh agrees on."""
        return self._weights.state

    @property
    def version(self) -> int:
        """Version of the global state: 1 for the initial weights, one more with each committed round."""
        return self.state.version

    def digest(self) -> str:
        """Digest of the global state, in hexadecimal: the same on every worker at the same version."""
        return self.state.digest.hex()

    def global_parameters(self) -> dict[str, Tensor]:
        """Copies of the agreed parameters and floating-point buffers by name: what should be evaluated and saved."""
        return self._weights.agreed()

    def __enter__(self) -> Self:
        """Join: meet the cluster, agree on the weights to start from, and hook the inner optimizer.

        Raises:
            MeshMismatch: the mesh, or this cluster, trains something else.
            PeerClosed: the peer was closed meanwhile.
        """
        self._peer.serve_state(self.state)
        self._peer.roster_ready(True)
        try:
            self._settle()
        except BaseException:
            self._leave()
            raise
        self._hooks = [
            self._inner.register_step_pre_hook(self._before_step),
            self._inner.register_step_post_hook(self._after_step),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the cluster's group; the others go on."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._leave()

    # The inner loop.

    def _before_step(self, optimizer: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs.get("closure") is not None or any(a is not None for a in args[1:]):
            raise ConfigError("inner.step(closure) cannot be averaged: call loss.backward() first, then inner.step()")
        self.progress.weight += self._in_group(self._average)
        self._spent = False

    def _after_step(self, optimizer: object, args: object, kwargs: object) -> None:
        self.progress.step += 1
        self.progress.since += 1
        if self._due():
            self._settle()

    def _average(self, group: Group) -> float:
        """Average the gradients; the weight that went into the mean."""
        weight = 0.0 if self._spent else float(self.weight)
        moves = self._peer.roster_moves(group.generation)
        heads = self._averager.heads(group, weight, self.progress.step, moves)
        if heads.moves:
            raise _Moved
        self._averager.average(group, heads)
        return heads.weight

    # The group.

    def _due(self) -> bool:
        return self.state.version == 0 or self.progress.since >= self.sync_every

    def _settle(self) -> None:
        """Have a group and no outer round due. There is no gradient in hand."""
        self._in_group(lambda group: None)
        self._spent = False

    def _in_group(self, action: Callable[[Group], _T]) -> _T:
        """Do what is due and then `action`, in as many groups as it takes."""
        while True:
            try:
                group = self._group or self._regroup()
                if self._due():
                    self._outer_round.run(group)
                return action(group)
            except _Moved:
                self._drop()
                if group.rank == 0:
                    self._peer.roster_boundary(self.progress.step)
            except LocalGroupError as error:
                self._drop()
                if self._seen is not None:
                    self._peer.roster_failed(self._seen, str(error))

    def _regroup(self) -> Group:
        roster = self._peer.wait_roster(self._seen)
        self._seen = roster.generation
        self._group = group = self._peer.open_group(roster)
        before = (self.progress.version, self.progress.step)
        heal(group, self.progress, self._replica, self.state, self._items)
        self._spent = self._spent or before != (self.progress.version, self.progress.step)
        self._peer.event("group", generation=roster.generation, size=group.size, step=self.progress.step)
        return group

    def _drop(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None

    def _leave(self) -> None:
        self._drop()
        self._peer.roster_ready(False)
