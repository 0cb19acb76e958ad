"""A policy around an unmodified Hugging Face `Trainer`.

```python
with ictp2p.Peer(config) as peer:
    trainer = Trainer(model, arguments, train_dataset=data)
    together = PolicyCallback(peer, ictp2p.DiLoCo, sync_every=100)
    trainer.add_callback(together)
    try:
        trainer.train()
    finally:
        together.leave()
```

The trainer tells its callbacks when training ends, but not when an error (or Ctrl-C) breaks it off: hence `leave`. The
other workers of the cluster would wait for this one as long as its peer lives, or until this thread trains again with
that peer. Training again begins from the agreed state, also where nobody but this process holds it any more; so does
what `auto_find_batch_size` begins anew, and what was trained since the last round is not in it.

The trainer makes its optimizer when training begins, so the policy is made then, with the trainer's own model,
optimizer and learning-rate schedule. Gradients are accumulated and clipped by the trainer, on each worker, before the
policy averages them in the cluster. A step counts as many tokens as the trainer saw, if it counts them
(`include_num_input_tokens_seen`), else its samples: have all clusters do the same. Tokens are exact. Samples are those
of full batches, as many as are added up: that the last step of an epoch has fewer the trainer tells nobody.

With an `ElasticSampler`, which the trainer's `get_train_dataloader` has to return a loader of, training ends when the
sampler is finished, however many epochs the trainer would go on. The trainer takes each of its epochs for one of the
whole mesh, and begins another when it has had that many batches; nothing depends on it. The sampler's `accumulate` must
be the trainer's `gradient_accumulation_steps`: all batches of a step are one block.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ictp2p.integrations.embedded import Embedded, check_alone, check_unscaled
from ictp2p.peer import Peer
from ictp2p.sync.two_level.policy import Policy

try:
    from transformers import TrainerCallback
except ImportError as error:
    missing = f"transformers is not installed ({error}): pip install 'ictp2p[hf]'"
    raise ImportError(missing, name=error.name) from error


class PolicyCallback(TrainerCallback):
    """Enters a policy when training begins, and leaves it when training ends or the peer has drained."""

    def __init__(
        self,
        peer: Peer,
        policy: Callable[..., Policy],
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        """Set it up without touching the network.

        Args:
            peer: started; it must stay so as long as training goes on.
            policy: such as `ictp2p.DiLoCo`: takes the peer, the model, the optimizer, and `options`.
            checkpoint: a file of this worker's own for the agreed state: loaded if it is there, saved after each round.
            options: of the policy.

        Raises:
            ConfigError: one of these is no such thing.
        """
        self._embedded = Embedded(peer, policy, options, checkpoint)
        self._seen = 0

    @property
    def policy(self) -> Policy:
        """The policy, once training has begun; after training it still has the global parameters.

        Raises:
            ConfigError: training has not begun.
        """
        return self._embedded.entered

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Make the policy, and join the cluster.

        Raises:
            ConfigError: the trainer runs several processes itself, scales gradients, or takes another number of batches
                per step than the sampler.
        """
        check_alone(args.world_size)
        optimizer, schedule = kwargs["optimizer"], kwargs.get("lr_scheduler")
        check_unscaled(getattr(optimizer, "scaler", None))
        self._seen = state.num_input_tokens_seen
        schedules, batches = [] if schedule is None else [schedule], args.gradient_accumulation_steps
        self._embedded.enter(kwargs["model"], [optimizer], schedules, batches)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Say what this step weighs."""
        tokens, self._seen = state.num_input_tokens_seen - self._seen, state.num_input_tokens_seen
        sampler = self._embedded.sampler
        # Of a state that was loaded it is what it was then, but where the trainer goes on with that.
        found = state.train_batch_size if args.auto_find_batch_size else None
        batch = (found or args.train_batch_size) if sampler is None else sampler.batch_size
        self.policy.weight = float(tokens or batch * args.gradient_accumulation_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Stop when the peer has drained, or all samples were trained."""
        if self._embedded.over():
            control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the cluster; the others go on."""
        self.leave()

    def leave(self) -> None:
        """Leave the cluster, if it has not been left; the others go on. For when an error has broken training off."""
        self._embedded.leave()
