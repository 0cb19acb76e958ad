"""What every two-level synchronization policy has in common: when to do what, and what to do when it breaks.

The user's loop stays as it is; the policy hooks the inner optimizer. Before each inner step the gradients are
averaged inside the cluster (`averaging`). After every `sync_every` inner steps the cluster takes part in an outer
round: the leader brings the pseudo-gradient, *old global minus local*, to the mesh, the followers get the average
streamed (`stream`), and everybody takes the same outer step from the parameters of the last sync, beside the current
ones, and applies it when the mesh has committed it.

Every worker holds the same parameters, inner state and global state, so any of them can lead. When the group breaks,
or changes for a newcomer, the workers meet in the next one, are made identical (`heal`), and go on with whatever was
due: the step is retried, the outer round repeated. Three rules keep anything from being counted twice or lost:

1. A worker that healing moved to another step had its gradient counted already, or computed it for other parameters:
   it contributes weight zero to the next average.
2. A round that committed through a leader that died since holds this cluster's contribution: the new leader takes the
   state and drops the local progress, which is inside. If the mesh committed *without* this cluster, the local
   progress is carried over: theta <- G_new + (theta - G_old).
3. A round that was not committed changes nothing at all; the pseudo-gradient of the next one starts from the same base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, TypeVar

import torch
from torch import Tensor

from ictp2p.errors import (
    ConfigError,
    IctError,
    LocalGroupError,
    MeshMismatch,
    NoQuorum,
    PeerClosed,
    RoundAborted,
    RoundError,
    RoundMissed,
    RoundTimeout,
    StateError,
)
from ictp2p.sync.averaging import Averager
from ictp2p.sync.heal import Progress, Replica, Stateful, heal, share_state
from ictp2p.sync.manifest import config_digest, describe
from ictp2p.sync.mesh import Group, Mesh, RoundRequest
from ictp2p.sync.outer import Outer, OuterFactory, wide
from ictp2p.sync.state import GlobalState, entry
from ictp2p.sync.stream import Kind, Publisher, Verdict, follow
from ictp2p.sync.values import Spec, StateRef

WithoutQuorum = Literal["wait", "continue", "stop"]
"""What to do while too few voters can be reached: `wait` for them, `continue` with inner steps, or `stop`."""

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
        if without_quorum not in ("wait", "continue", "stop"):
            raise ConfigError(f"without_quorum {without_quorum!r} is none of 'wait', 'continue', 'stop'")
        self.weight: float = 1.0
        """Weight of this worker's next steps in every average: tokens or samples per step. 0 to look on."""
        self.progress = Progress()
        """How far this worker is; read it, do not write it."""
        self.sync_every = sync_every
        self._peer, self._inner, self._name, self._codec = peer, inner, name, codec
        self._without_quorum = without_quorum
        self._trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._buffers = {f"buffer {n}": b for n, b in model.named_buffers() if b.is_floating_point()}
        self._tensors: dict[str, Tensor] = {**self._trained, **self._buffers}
        self._dtype = wide([t.dtype for t in self._tensors.values()])
        self._outer = Outer(outer, self._trained, self._dtype)
        self.state = self._initial()
        """The global state: what the mesh agrees on."""
        self._items = describe(self.state.entries, self.state.settings)
        self._averager = Averager(list(self._trained.values()), list(self._buffers.values()))
        self._replica = Replica(model, inner, carry)
        elements = sum(t.numel() for t in self._tensors.values())
        self._delta, self._average = (torch.zeros(elements, dtype=self._dtype) for _ in range(2))
        self._sealed = b""
        """Digest of what `state.tentative` holds, if that is the result of a round; it outlives a leader's death."""
        self._group: Group | None = None
        self._seen: tuple[int, int] | None = None
        self._spent = False
        self._hooks: list[Any] = []

    def __repr__(self) -> str:
        at = self.progress
        return f"<{type(self).__name__} step {at.step} version {at.version}, sync in {self.sync_every - at.since}>"

    @property
    def version(self) -> int:
        """How many versions of the global state there have been: one at the start, one per committed round."""
        return self.state.version

    def digest(self) -> str:
        """The digest of the global state, hexadecimal: equal on every worker that holds the same version."""
        return self.state.digest.hex()

    def global_parameters(self) -> dict[str, Tensor]:
        """A copy of the agreed parameters and buffers by name: what to evaluate and to save, on the CPU."""
        held = self.state.committed
        names = {name: name.removeprefix("buffer ") for name in self._tensors}
        return {plain: held[name].to(self._tensors[name].dtype, copy=True) for name, plain in names.items()}

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
        total = self._in_group(self._average_gradients)
        self._spent = False
        self.progress.weight += total

    def _after_step(self, optimizer: object, args: object, kwargs: object) -> None:
        self.progress.step += 1
        self.progress.since += 1
        if self._due():
            self._settle()

    def _average_gradients(self, group: Group) -> float:
        weight = 0.0 if self._spent else float(self.weight)
        moves = self._peer.roster_moves(group.generation)
        heads = self._averager.heads(group, weight, self.progress.step, moves)
        if heads.moves:
            raise _Moved
        self._averager.average(group, heads)
        return heads.weight

    # The group.

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
                    self._sync(group)
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

    # The outer round.

    def _due(self) -> bool:
        return self.state.version == 0 or self.progress.since >= self.sync_every

    def _sync(self, group: Group) -> None:
        """Take part in an outer round, as leader or as follower, to its verdict."""
        self._subtract()
        if group.rank == 0:
            self._lead(group)
        else:
            verdict = follow(group, self._average, self._finish)
            if verdict.kind is Kind.ADOPT:
                self._sealed = b""
                share_state(group, self.state, 0, verdict.version)
            self._conclude(verdict)

    def _lead(self, group: Group) -> None:
        publisher = Publisher(group, self._average)
        try:
            verdict = self._decide(publisher)
        except PeerClosed:
            raise
        except IctError as error:
            publisher.tell(Verdict(Kind.STOP, reason=f"{type(error).__name__}: {error}"))
            raise
        self._conclude(verdict)
        publisher.tell(verdict)
        if publisher.broken is not None:
            raise publisher.broken
        if verdict.kind is Kind.ADOPT:
            share_state(group, self.state, 0, verdict.version)

    def _decide(self, publisher: Publisher) -> Verdict:
        """Learn from the mesh what becomes of this round. With ADOPT the state has been fetched."""
        if self.state.version == 0:
            first = self._peer.first_state(self._spec(), self.state.digest, publisher.wait)
            own = first.digest == self.state.digest
            return Verdict(Kind.COMMIT, first.version, first.digest) if own else self._adopt(first, True, publisher)
        if self.progress.weight <= 0.0:
            return Verdict(Kind.ABANDON, reason="nothing was contributed")
        while True:
            try:
                result = self._peer.outer_round(self._request(publisher))
            except RoundMissed:
                return self._follow_mesh(self._peer.decided_state(), False, publisher)
            except NoQuorum as error:
                if self._without_quorum == "stop":
                    raise
                if self._without_quorum == "continue":
                    return Verdict(Kind.ABANDON, reason=str(error))
                continue
            except (RoundAborted, RoundTimeout) as error:
                return Verdict(Kind.ABANDON, reason=str(error))
            return self._follow_mesh(result.state, result.mine, publisher)

    def _request(self, publisher: Publisher) -> RoundRequest:
        return RoundRequest(
            spec=self._spec(),
            base=StateRef(self.state.version, self.state.digest, ()),
            weight=self.progress.weight,
            inputs=[self._delta],
            outputs=[self._average],
            finish=self._finish,
            progress=publisher.data,
            restarted=publisher.restart,
            idle=publisher.wait,
        )

    def _follow_mesh(self, decided: StateRef, mine: bool, publisher: Publisher) -> Verdict:
        """Go to the agreed state. Its bytes may be here although another led the round, and died after the commit."""
        if decided.digest == self.state.digest:
            return Verdict(Kind.ABANDON, reason="the round was missed, and the state did not move")
        if decided.digest == self._sealed:
            return Verdict(Kind.COMMIT, decided.version, decided.digest)
        return self._adopt(decided, mine, publisher)

    def _adopt(self, ref: StateRef, mine: bool, publisher: Publisher) -> Verdict:
        """Fetch the agreed state; a newer one, if nobody provides this one any longer."""
        self._sealed = b""
        while True:
            try:
                self._peer.fetch_state(ref, self.state, publisher.wait)
                return Verdict(Kind.ADOPT, ref.version, ref.digest, mine)
            except StateError:
                newer = self._peer.decided_state()
                if newer.version <= ref.version:
                    raise
                ref = newer

    def _conclude(self, verdict: Verdict) -> None:
        """Do what the mesh decided. Until here nothing has changed."""
        match verdict.kind:
            case Kind.COMMIT if verdict.digest == self.state.digest:
                self.state.confirm(verdict.version)
            case Kind.COMMIT if verdict.digest == self._sealed:
                self.state.commit(verdict.version)
                self._sealed = b""
                self._load()
                self.progress.weight = 0.0
            case Kind.COMMIT:
                ours, theirs = self._sealed.hex()[:16] or "nothing", verdict.digest.hex()[:16]
                raise LocalGroupError(f"this worker computed {ours} where the mesh committed {theirs}")
            case Kind.ADOPT:
                self._carry_over(verdict.mine)
            case Kind.STOP:
                raise _stopped(verdict.reason)
            case _:
                self.state.rollback()
        self.progress.version, self.progress.since = self.state.version, 0
        self._peer.event("outer", verdict=verdict.kind.name, version=self.state.version, reason=verdict.reason)

    # Arithmetic.

    def _initial(self) -> GlobalState:
        settings = [("policy", self._name), ("sync_every", str(self.sync_every)), ("codec", self._codec)]
        entries = [entry(name, t.detach().to("meta", self._dtype)) for name, t in self._tensors.items()]
        state = GlobalState([*entries, *self._outer.entries], [*settings, *self._outer.describe()])
        with torch.no_grad():
            for name, tensor in self._tensors.items():
                state.tentative[name].copy_(tensor)
        state.seal({"round": 0})
        state.commit(0)
        return state

    def _spec(self) -> Spec:
        dtype = str(self._dtype).removeprefix("torch.")
        return Spec("sync", self._name, dtype, self._delta.numel(), "avg", self._codec, config_digest(self._items))

    @torch.no_grad()
    def _subtract(self) -> None:
        """The pseudo-gradient: what was loaded at the last sync, minus what it has become."""
        for name, view in self._views(self._delta).items():
            tensor = self._tensors[name]
            view.copy_(self.state.committed[name].to(tensor.dtype))
            view.sub_(tensor.to("cpu", self._dtype))

    @torch.no_grad()
    def _finish(self) -> bytes:
        """Compute the next state from the average, beside the current one; give its digest."""
        deltas = self._views(self._average)
        tentative = self.state.begin()
        self._outer.step(tentative, {name: deltas[name] for name in self._trained})
        for name in self._buffers:
            tentative[name].sub_(deltas[name])
        self._sealed = self.state.seal({"round": self.state.counters["round"] + 1})
        return self._sealed

    @torch.no_grad()
    def _load(self) -> None:
        for name, tensor in self._tensors.items():
            tensor.copy_(self.state.committed[name])

    @torch.no_grad()
    def _carry_over(self, mine: bool) -> None:
        """Move to the state just adopted; `tentative` is the one before it."""
        if mine:
            self._load()
            self.progress.weight = 0.0
            return
        for name, tensor in self._tensors.items():
            moved = tensor.to("cpu", self._dtype, copy=True).sub_(self.state.tentative[name].to(tensor.dtype))
            tensor.copy_(moved.add_(self.state.committed[name]))

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        parts = torch.split(flat, [t.numel() for t in self._tensors.values()])
        return {n: part.view(t.shape) for (n, t), part in zip(self._tensors.items(), parts, strict=True)}


def _stopped(reason: str) -> IctError:
    """A follower's form of the error that made its leader stop."""
    name, _, text = reason.partition(": ")
    kinds: dict[str, type[IctError]] = {k.__name__: k for k in (NoQuorum, MeshMismatch, StateError)}
    return kinds.get(name, RoundError)(f"the leader of this cluster stopped: {text}")
