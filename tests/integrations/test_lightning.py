"""What a Lightning module does with a batch counts as its trainer takes it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ictp2p
from ictp2p.errors import ConfigError
from tests.integrations.callbacks import ENVIRONMENT, callback_of, epochs
from tests.tally import Count, Summing, Tally, Watched


@pytest.fixture
def lightnings_callback(monkeypatch: pytest.MonkeyPatch) -> Any:
    return callback_of("lightning", "lightning.pytorch.Callback", monkeypatch)


class Lightning:
    """The order in which Lightning calls, around a module that takes its steps by hand, or leaves them to it."""

    world_size = 1
    precision_plugin = None
    lr_scheduler_configs: tuple[Any, ...] = ()
    should_stop = False

    def __init__(self, callback: Any, model: Any, inner: torch.optim.Optimizer, accumulate: int = 0) -> None:
        self.callback, self.model, self.optimizers = callback, model, [inner]
        self.model.automatic_optimization = bool(accumulate)
        self.accumulate_grad_batches = accumulate or 1

    def train(self, batch: torch.Tensor, steps: int) -> list[float]:
        """One batch; gives what its steps weigh."""
        weights = []
        self.callback.on_train_batch_start(self, self.model, batch, 0)
        for _ in range(steps):
            self.optimizers[0].zero_grad()
            self.model(batch).sum().backward()
            self.callback.on_before_optimizer_step(self, self.model, self.optimizers[0])
            self.optimizers[0].step()
            weights.append(self.callback.policy.weight)
        self.callback.on_train_batch_end(self, self.model, None, batch, 0)
        return weights

    def step(self, *batches: tuple[torch.Tensor, bool]) -> float:
        """Batches, and of which of them there is a loss; gives what the step with them weighs."""
        for number, (batch, loss) in enumerate(batches, 1):
            self.callback.on_train_batch_start(self, self.model, batch, 0)
            if number == 1:
                self.optimizers[0].zero_grad()
            if loss:
                self.model(batch).sum().backward()
                self.callback.on_after_backward(self, self.model)
            if number == self.accumulate_grad_batches:
                self.callback.on_before_optimizer_step(self, self.model, self.optimizers[0])
                self.optimizers[0].step()
            self.callback.on_train_batch_end(self, self.model, None, batch, 0)
        return float(self.callback.policy.weight)


@pytest.mark.real
def test_further_steps_with_a_batch_of_a_lightning_module_count_too(lightnings_callback: Any) -> None:
    """Regression: they weighed nothing, so their gradients were dropped, and the model stayed where it was."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    with ictp2p.Peer(ictp2p.Config.local(cluster="oslo", token=ENVIRONMENT["ICTP2P_TOKEN"])) as peer:
        callback = lightnings_callback(peer, ictp2p.LocalSGD, sync_every=100)
        trainer = Lightning(callback, model, inner)
        callback.on_train_start(trainer, model)
        assert trainer.train(torch.ones(2, 1), 3) == [2.0, 2.0, 2.0]
        assert model.weight.item() == -6.0
        weights = [trainer.train(torch.ones(size, 1), steps) for size, steps in ((3, 0), (4, 2), (0, 2))]
        assert weights == [[], [7.0, 4.0], [0.0, 0.0]]
        assert callback.policy.progress.weights == [2.0 * 3 + 7.0 + 4.0]
        callback.on_train_end(trainer, model)


@pytest.mark.real
def test_a_batch_without_a_loss_counts_nothing_in_a_lightning_module(lightnings_callback: Any) -> None:
    """Regression: `training_step` had returned None, and the batch kept its weight, with a gradient of zero."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    three, five = torch.ones(3, 1), torch.ones(5, 1)
    with ictp2p.Peer(ictp2p.Config.local(cluster="oslo", token=ENVIRONMENT["ICTP2P_TOKEN"])) as peer:
        callback = lightnings_callback(peer, ictp2p.LocalSGD, sync_every=100)
        trainer = Lightning(callback, model, inner, 2)
        callback.on_train_start(trainer, model)
        of_each = [trainer.step((three, one), (five, other)) for one in (True, False) for other in (True, False)]
        assert of_each == [8.0, 3.0, 5.0, 0.0]
        assert callback.policy.progress.weights == [16.0]
        assert callback.policy.progress.step == 4
        callback.on_train_end(trainer, model)


@pytest.mark.real
def test_a_leased_batch_without_a_loss_is_left_out_of_the_epoch(lightnings_callback: Any) -> None:
    """Regression: it was counted as trained, with all others of its step, as if it had been asked for."""
    sampler = ictp2p.ElasticSampler(8, 2, seed=3, epochs=1)
    model = Tally(8)
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    steps, lost = 0, set[int]()
    with ictp2p.Peer(ictp2p.Config.local(cluster="oslo", token=ENVIRONMENT["ICTP2P_TOKEN"])) as peer:
        callback = lightnings_callback(peer, ictp2p.LocalSGD, sync_every=2, sampler=sampler)
        trainer = Lightning(callback, model, inner, 1)
        callback.on_train_start(trainer, model)
        while not sampler.finished:
            for indices in sampler:
                steps += 1
                assert steps < 20, "the epoch does not end"
                wanted = not {5, *lost} & {*indices}
                lost |= set() if wanted else set(indices)
                assert trainer.step((torch.tensor(indices), wanted)) == 2.0 * wanted
        callback.on_train_end(trainer, model)
    assert len(lost) == 2
    assert callback.policy.global_parameters()["tally"].tolist() == [-float(i not in lost) for i in range(8)]


@pytest.mark.real
def test_a_batch_that_was_leased_is_not_stepped_with_twice_in_a_lightning_module(lightnings_callback: Any) -> None:
    """It would count for nothing, for its samples are counted with the first step."""
    sampler = Watched(8, 2, seed=3, epochs=1)
    model = Tally(8)
    with ictp2p.Peer(ictp2p.Config.local(cluster="oslo", token=ENVIRONMENT["ICTP2P_TOKEN"])) as peer:
        callback = lightnings_callback(peer, Summing, sync_every=2, sampler=sampler)
        trainer = Lightning(callback, model, Count(model, sampler))
        callback.on_train_start(trainer, model)
        batches = epochs(sampler)
        assert trainer.train(torch.tensor(next(batches)), 1) == [2.0]
        with pytest.raises(ConfigError, match="a second optimizer step with the same batch"):
            trainer.train(torch.tensor(next(batches)), 2)
        callback.on_exception(trainer, model, ConfigError())
