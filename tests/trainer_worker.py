"""Trains leased samples inside a library's own `Trainer`, which adds gradients up, until the sampler has no more.

Its arguments are `transformers` or `lightning`, batches per step, and what the sampler is told of these.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import torch
from torch.utils.data import DataLoader

import ictp2p
from tests.tally import Count, Summing, Tally, Watched
from tests.telling import tell

SIZE, BATCH, EPOCHS = 51, 2, 2


class Whole(Count):
    """Undoes also that a trainer takes the mean over the batches of a step; counts its steps."""

    def __init__(self, model: Any, sampler: Watched) -> None:
        super().__init__(model, sampler)
        self.steps = 0
        self.param_groups[0]["lr"] = 1.0  # a trainer's schedule wants one

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        if closure is not None:
            with torch.enable_grad():
                closure()
        self.steps += 1
        for param in self.param_groups[0]["params"]:
            if param.grad is not None:
                param.grad.mul_(self.sampler.accumulate)
        super().step()


def with_transformers(peer: ictp2p.Peer, sampler: Watched, batches: int) -> tuple[Any, Whole, int]:
    from transformers import Trainer, TrainingArguments

    from ictp2p.integrations.huggingface import PolicyCallback

    class Model(Tally):
        def forward(self, indices: torch.Tensor) -> Any:
            return {"loss": super().forward(indices)}

    class Leasing(Trainer):
        def get_train_dataloader(self) -> Any:
            return DataLoader([{"indices": index} for index in range(SIZE)], batch_sampler=sampler)

    model = Model(SIZE)
    inner = Whole(model, sampler)
    callback = PolicyCallback(peer, Summing, sync_every=2, sampler=sampler)
    with tempfile.TemporaryDirectory(prefix="trainer-") as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=100.0,
            gradient_accumulation_steps=batches,
            max_grad_norm=0.0,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        constant = torch.optim.lr_scheduler.LambdaLR(inner, lambda _: 1.0)
        trainer = Leasing(model, arguments, callbacks=[callback], optimizers=(inner, constant))
        trainer.train()
    return callback.policy, inner, trainer.state.global_step


def with_lightning(peer: ictp2p.Peer, sampler: Watched, batches: int) -> tuple[Any, Whole, int]:
    import lightning

    from ictp2p.integrations.lightning import PolicyCallback

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.tally = torch.nn.Parameter(torch.zeros(SIZE))

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.tally[batch].sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return inner

    model = Model()
    inner = Whole(model, sampler)
    callback = PolicyCallback(peer, Summing, sync_every=2, sampler=sampler)
    off: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = lightning.Trainer(
        max_epochs=-1, accumulate_grad_batches=batches, accelerator="cpu", callbacks=[callback], **off
    )
    trainer.fit(model, DataLoader(torch.arange(SIZE), batch_sampler=sampler))
    return callback.policy, inner, trainer.global_step


def main(library: str, batches: str, leased: str) -> None:
    sampler = Watched(SIZE, BATCH, accumulate=int(leased), seed=3, epochs=EPOCHS)
    train = {"transformers": with_transformers, "lightning": with_lightning}[library]
    with ictp2p.Peer(ictp2p.Config.local(cluster="oslo", token="0123456789abcdef0123456789abcdef")) as peer:
        policy, inner, trainer_steps = train(peer, sampler, int(batches))
        tally = policy.global_parameters()["tally"].tolist()
        blocks = len(sampler) // sampler.accumulate
        counted = {"steps": inner.steps, "trainer_steps": trainer_steps, "blocks": blocks, "weight": policy.weight}
        tell("trained", tally=tally, **counted)


if __name__ == "__main__":
    main(*sys.argv[1:])
