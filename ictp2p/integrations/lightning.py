"""A policy around an unmodified Lightning `Trainer`.

```python
with ictp2p.Peer(config) as peer:
    trainer = Trainer(max_steps=1000, callbacks=[PolicyCallback(peer, ictp2p.DiLoCo, sync_every=100)])
    trainer.fit(module, loader)
```

The policy is made once the trainer has its optimizer and has loaded what it resumes from. Lightning computes gradients
inside of `optimizer.step`, and clips them there, on each worker, before the policy averages them in the cluster. A step
counts as many samples as its batches have. The policy is left when training ends, and when an error or Ctrl-C breaks it
off, of which Lightning tells its callbacks. Fitting again begins from the agreed state, also where nobody but this
process holds it any more; what was trained since the last round is not in it.

A batch for which `training_step` returns None has no gradient, and counts for nothing. Lightning takes its step all the
same, and so does this worker: the others of its cluster step with it. With a sampler a step of such batches alone
leaves them out of the epoch, as `ElasticSampler.skip` does: to return None is to say that they are not wanted, and to
give them again would be to ask the same again. They are not lost unseen, for Lightning warns of the first.

A module that optimizes by hand (`automatic_optimization = False`) may take several steps with one batch, each of which
counts as many samples as the batch has. With a sampler it may not: of that a batch is trained once, in one step.

With an `ElasticSampler` in the loader training ends when the sampler is finished, which may be within an epoch of the
trainer: that takes each for one of the whole mesh (`max_epochs=-1` leaves it to the sampler). The sampler's
`accumulate` must be the trainer's `accumulate_grad_batches`, and stay so: all batches of a step are one block.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ictp2p.errors import ConfigError
from ictp2p.integrations.embedded import Embedded, check_alone, check_unscaled, samples
from ictp2p.peer import Peer
from ictp2p.sync.two_level.policy import Policy

try:
    from lightning.pytorch import Callback
except ImportError as error:
    missing = f"Lightning is not installed ({error}): pip install 'ictp2p[lightning]'"
    raise ImportError(missing, name=error.name) from error


class PolicyCallback(Callback):
    """Enters a policy when training begins, and leaves it when training ends or the peer has drained."""

    def __init__(
        self,
        peer: Peer,
        policy: Callable[..., Policy],
        *,
        weigh: Callable[[Any], float] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        """Set it up without touching the network.

        Args:
            peer: started; it must stay so as long as training goes on.
            policy: such as `ictp2p.DiLoCo`: takes the peer, the model, the optimizer, and `options`.
            weigh: what a batch weighs, its tokens say; None for its samples, the length of its first tensor.
            checkpoint: a file of this worker's own for the agreed state: loaded if it is there, saved after each round.
            options: of the policy.

        Raises:
            ConfigError: one of these is no such thing.
        """
        self._embedded = Embedded(peer, policy, options, checkpoint)
        if weigh is not None and not callable(weigh):
            raise ConfigError(
                f"weigh {weigh!r} is not callable: give a function that takes a batch and returns its weight"
            )
        self._weigh = weigh or samples
        self._weight = 0.0
        """What the batch in hand weighs."""
        self._since: list[float] = []
        """The same of all batches since the last step that are in its gradients."""

    @property
    def policy(self) -> Policy:
        """The policy, once training has begun; after training it still has the global parameters.

        Raises:
            ConfigError: training has not begun.
        """
        return self._embedded.entered

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the policy, and join the cluster.

        Raises:
            ConfigError: the trainer runs several processes itself, scales gradients, has not one optimizer, or takes
                another number of batches per step than the sampler.
        """
        check_alone(trainer.world_size)
        check_unscaled(getattr(trainer.precision_plugin, "scaler", None))
        schedules = [config.scheduler for config in trainer.lr_scheduler_configs]
        self._embedded.enter(pl_module, trainer.optimizers, schedules, trainer.accumulate_grad_batches)
        self._weight, self._since = 0.0, []
        if self._embedded.finished:  # there will be no batch after which to say so
            trainer.should_stop = True

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Weigh what is in the batch. Of a module that optimizes by hand nobody sees how it makes its gradients."""
        self._weight = self._weigh(batch)
        if not pl_module.automatic_optimization:
            self._since.append(self._weight)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """Count the batch: there is a gradient of it."""
        if pl_module.automatic_optimization:
            self._since.append(self._weight)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Say what this step weighs: the batches since the last one; by hand, if there are none, the one in hand again.

        Raises:
            ConfigError: the trainer takes another number of batches per step by now than the sampler, or none.
        """
        self._embedded.check_accumulation(trainer.accumulate_grad_batches)
        sampler, since, self._since = self._embedded.sampler, self._since, []
        if not since and not pl_module.automatic_optimization:
            if sampler is not None:
                raise ConfigError(
                    "the module took a second optimizer step with the same batch: with a sampler each is trained in one"
                )
            since = [self._weight]
        elif not since and sampler is not None:
            sampler.leave_out()
        self.policy.weight = sum(since)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Stop when the peer has drained, or all samples were trained."""
        if self._embedded.over():
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the cluster; the others go on."""
        self._embedded.leave()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the cluster as well when training broke off."""
        self._embedded.leave()
