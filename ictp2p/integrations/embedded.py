"""What a trainer's callback does with a policy, whichever library calls it.

A trainer that is broken off by an error need not say so: Hugging Face's tells its callbacks nothing. The policy is then
entered still, and its cluster waits for this worker's gradients. Whoever caught the error can leave it, and does so at
the latest by entering the next one: two trainers do not run in one thread at once.

Nor has a trainer a place where a policy could load and save what was agreed: it is made and entered in the same call.
So that is done here, with a file that the callback is given. The trainer has restored its own part by then.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ictp2p.errors import ConfigError
from ictp2p.peer import Peer
from ictp2p.sync.cluster.replica import Stateful
from ictp2p.sync.options import STATEFUL, each_has, kind
from ictp2p.sync.samples.sampler import ElasticSampler
from ictp2p.sync.state.checkpoint import place
from ictp2p.sync.two_level.policy import Policy


class Embedded:
    """A policy that is made, entered and left by somebody else's loop."""

    def __init__(
        self,
        peer: Peer,
        policy: Callable[..., Policy],
        options: dict[str, Any],
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        """Remember how the policy is made.

        Args:
            peer: started; it must stay so as long as training goes on.
            policy: takes the peer, the model, the optimizer, and `options`.
            options: of the policy.
            checkpoint: a file of this worker's own, which the policy loads if it is there, and saves after each round.

        Raises:
            ConfigError: what is to make the policy cannot; `carry` or `sampler` of the options is no such thing; or no
                file can have the name of `checkpoint`.
        """
        if not callable(policy):
            raise ConfigError(f"policy {policy!r} is not callable: give the class of a policy, such as ictp2p.DiLoCo")
        each_has("carry", options.get("carry", ()), STATEFUL)
        if options.get("sampler") is not None:
            kind("sampler", options["sampler"], ElasticSampler)
        self.policy: Policy | None = None
        """The one that was entered last; still readable after training."""
        self._peer, self._make, self._options = peer, policy, options
        self._file = None if checkpoint is None else place(checkpoint)
        self._saved = 0
        """The version that is in the file, if this policy has written it."""
        self._inside = False
        self._thread = 0
        """Where it was entered last."""
        self._steps: Iterator[None] = iter(())

    def enter(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        schedules: Sequence[Stateful],
        accumulate: int = 1,
    ) -> Policy:
        """Make the policy and join the cluster; what this thread has entered before with this peer has ended.

        Args:
            model: what is trained.
            optimizers: exactly one, or a wrapper that has it as `optimizer`.
            schedules: what a newcomer to the cluster must take over besides.
            accumulate: batches whose gradients the trainer adds up before each step.

        Raises:
            ConfigError: there is not exactly one optimizer, or the sampler counts otherwise than the trainer; or the
                checkpoint is another training's.
            StateError: the checkpoint is damaged.
        """
        if len(optimizers) != 1:
            raise ConfigError(
                f"the trainer has {len(optimizers)} optimizers, and a policy takes exactly one: join several "
                "in an ictp2p.JointOptimizer"
            )
        self.check_accumulation(accumulate)
        self._leave_broken_off()
        inner: Any = optimizers[0]
        while isinstance(getattr(inner, "optimizer", None), torch.optim.Optimizer):
            inner = inner.optimizer
        carry = (*self._options.get("carry", ()), *schedules)
        policy = self._make(self._peer, model, inner, **{**self._options, "carry": carry})
        kind(f"what {self._make!r} makes", policy, Policy)
        if self._file is not None and self._file.exists():
            policy.load(self._file)
        self.policy, self._saved = policy.__enter__(), 0
        self._inside, self._thread = True, threading.get_ident()
        self._peer.embedded = self
        self._steps = self._peer.steps(itertools.repeat(None))
        return policy

    @property
    def entered(self) -> Policy:
        """The policy, once training has begun; after training it still has the global parameters.

        Raises:
            ConfigError: training has not begun.
        """
        if self.policy is None:
            raise ConfigError("there is no policy yet: it is made when training begins")
        return self.policy

    @property
    def sampler(self) -> ElasticSampler | None:
        """What leases the samples, if anything does."""
        return self._options.get("sampler")

    @property
    def finished(self) -> bool:
        """Whether all samples have been trained as often as they are to be: a loader has nothing more to give."""
        return self.sampler is not None and self.sampler.finished

    def check_accumulation(self, batches: int) -> None:
        """Refuse a trainer that takes another number of batches per step than the sampler.

        All batches of a step count as one block. With fewer of them in a step than the sampler says, samples would
        count that are in no gradient; with more, gradients of samples that count for nothing would be in the model.

        Raises:
            ConfigError: the numbers differ.
        """
        if self.sampler is not None and self.sampler.accumulate != batches:
            raise ConfigError(
                f"the trainer adds up the gradients of {batches} batches before a step, the sampler of "
                f"{self.sampler.accumulate}: make it ElasticSampler(..., accumulate={batches})"
            )

    def over(self) -> bool:
        """After a step: whether the peer was asked to leave and has taken part in its last round, or all is trained.

        Raises:
            StateError: the checkpoint could not be written.
        """
        self._save()
        return next(self._steps, self) is self or self.finished

    def leave(self) -> None:
        """Leave the cluster, if it was entered."""
        if self._inside and self.policy is not None:
            self._inside = False
            self._peer.embedded = None
            self.policy.__exit__(None, None, None)

    def _save(self) -> None:
        """Write the checkpoint if there was a round."""
        if self._file is not None and self.entered.version > self._saved:
            self._saved = self.entered.version
            self.entered.save(self._file)

    def _leave_broken_off(self) -> None:
        self.leave()
        other = self._peer.embedded if isinstance(self._peer, Peer) else None
        if isinstance(other, Embedded) and other._thread == threading.get_ident():
            other.leave()


def check_alone(world_size: int) -> None:
    """Refuse a trainer that averages gradients between processes itself.

    Raises:
        ConfigError: it has a process group of its own.
    """
    if world_size != 1:
        raise ConfigError(
            f"the trainer runs {world_size} processes of its own: start each as a worker of the cluster instead, "
            "without torchrun; the policy averages their gradients"
        )


def check_unscaled(scaler: object) -> None:
    """Refuse gradients that are scaled differently on each worker.

    Raises:
        ConfigError: there is a loss scaler.
    """
    if scaler is not None:
        raise ConfigError("scaled float16 gradients cannot be averaged, each worker has its own scale: use bfloat16")


def samples(batch: Any) -> float:
    """Count the samples of a batch: the length of the first tensor in it, through tuples, lists and mappings.

    Raises:
        ConfigError: there is none.
    """
    parts: list[Any] = [batch]
    while parts:
        part = parts.pop(0)
        if isinstance(part, torch.Tensor) and part.dim():
            return float(len(part))
        if isinstance(part, Mapping):
            parts = [*part.values(), *parts]
        elif isinstance(part, Sequence) and not isinstance(part, str):
            parts = [*part, *parts]
    raise ConfigError(f"a batch of type {type(batch).__name__} has no tensor to count samples by: give `weigh`")
