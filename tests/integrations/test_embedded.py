"""A policy that another library's loop enters and leaves, with none of the libraries at hand."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import ictp2p
from ictp2p.errors import ConfigError, LocalProtocolError
from ictp2p.integrations.embedded import Embedded, check_alone, check_unscaled, samples
from tests.integrations.callbacks import ENVIRONMENT, epochs
from tests.tally import Count, Summing, Tally, Watched


class Wrapper(torch.optim.Optimizer):
    """What libraries hand out in place of an optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer


@pytest.mark.real
def test_a_policy_that_somebody_elses_loop_enters_and_leaves() -> None:
    model = torch.nn.Linear(2, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(inner, 3)
    config = ictp2p.Config.local(cluster="oslo", token=ENVIRONMENT["ICTP2P_TOKEN"])
    with ictp2p.Peer(config) as peer:
        embedded = Embedded(peer, ictp2p.LocalSGD, {"sync_every": 2})
        embedded.leave()
        with pytest.raises(ConfigError, match="2 optimizers"):
            embedded.enter(model, [inner, inner], [])
        for _ in range(2):  # entering again leaves the one before
            policy = embedded.enter(model, [Wrapper(Wrapper(inner))], [schedule])
        steps = 0
        while not embedded.over():
            model(torch.ones(1, 2)).sum().backward()
            inner.step()
            steps += 1
            if steps == 3:
                peer.drain()
        embedded.leave()
        assert (steps, policy.version, embedded.policy) == (4, 3, policy)


@pytest.mark.real
def test_a_checkpoint_has_the_newest_agreed_state_and_another_process_goes_on_from_it(tmp_path: Path) -> None:
    """Regression: a trainer had no place for it, and a mesh that was stopped as a whole waited for one for ever."""
    file = tmp_path / "checkpoint.safetensors"

    def embedded(peer: ictp2p.Peer) -> tuple[Embedded, ictp2p.LocalSGD, torch.nn.Module, torch.optim.Optimizer]:
        model = torch.nn.Linear(2, 1)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        loop = Embedded(peer, ictp2p.LocalSGD, {"sync_every": 2}, file)
        return loop, loop.enter(model, [inner], []), model, inner

    config = ictp2p.Config.local(cluster="oslo", token=ENVIRONMENT["ICTP2P_TOKEN"])
    with ictp2p.Peer(config) as peer:
        loop, policy, model, inner = embedded(peer)
        for version in (1, 2, 2, 3):
            model(torch.ones(1, 2)).sum().backward()
            inner.step()
            assert not loop.over()
            assert policy.version == version
            assert torch.equal(load_file(file)["weight"], policy.global_parameters()["weight"])
        loop.leave()
    with ictp2p.Peer(config) as peer:  # a mesh of its own, which would begin with the weights that it is given
        loop, again, model, inner = embedded(peer)
        assert torch.equal(again.global_parameters()["weight"], policy.global_parameters()["weight"])
        assert again.rounds == policy.rounds == 2
        loop.leave()


@pytest.mark.real
def test_what_an_error_broke_off_is_left_by_the_next_one_that_its_thread_enters() -> None:
    """Regression: Hugging Face's trainer tells nobody of an error, and its peer was of no use to another one."""
    model = torch.nn.Linear(2, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with ictp2p.Peer(ictp2p.Config.local(cluster="oslo", token=ENVIRONMENT["ICTP2P_TOKEN"])) as peer:
        broken, other = (Embedded(peer, ictp2p.LocalSGD, {"sync_every": 1}) for _ in range(2))
        first = broken.enter(model, [inner], [])
        model(torch.ones(1, 2)).sum().backward()
        inner.step()
        with ThreadPoolExecutor() as pool, pytest.raises(LocalProtocolError, match="trains with this peer already"):
            pool.submit(other.enter, model, [inner], []).result()
        second = other.enter(model, [inner], [])
        assert second.version == first.version == 2
        inner.step()
        assert (second.version, first.version) == (3, 2), "the one that was left is hooked no more"
        broken.leave()  # whoever caught the error says so late
        inner.step()
        assert second.version == 4
        other.leave()
        with ictp2p.LocalSGD(peer, model, inner, sync_every=1) as third:
            assert third.version == 4


@pytest.mark.real
def test_a_trainer_that_accumulates_takes_a_block_per_step_and_ends_with_its_samples() -> None:
    """A loop in the order in which both trainers call: so many batches before each step of the optimizer."""
    batches, steps = 3, 0
    sampler = Watched(51, 2, accumulate=batches, seed=3, epochs=2)
    model = Tally(51)
    inner = Count(model, sampler)
    options = {"sync_every": 2, "sampler": sampler}
    with ictp2p.Peer(ictp2p.Config.local(cluster="oslo", token=ENVIRONMENT["ICTP2P_TOKEN"])) as peer:
        embedded = Embedded(peer, Summing, options)
        with pytest.raises(ConfigError, match="made when training begins"):
            _ = embedded.entered
        with pytest.raises(ConfigError, match=r"of 2 batches before a step, the sampler of 3: .*accumulate=2"):
            embedded.enter(model, [inner], [], 2)
        policy = embedded.enter(model, [inner], [], batches)
        assert embedded.entered is policy
        assert not embedded.finished
        for indices in epochs(sampler):
            model(torch.tensor(indices)).backward()
            batches -= 1
            if batches:
                continue
            inner.step()
            inner.zero_grad()
            batches, steps = 3, steps + 1
            if embedded.over():
                break
        embedded.leave()
        with pytest.raises(ConfigError, match="of 1 batches"):
            embedded.check_accumulation(1)
    assert (steps, policy.progress.step) == (18, 18), "nine blocks per epoch, the last of three samples"
    assert policy.global_parameters()["tally"].tolist() == [2.0] * 51


@pytest.mark.parametrize(
    ("policy", "options", "named"),
    [
        (ictp2p.DiLoCo, {"carry": 3}, "carry must be a list, not 3"),
        (ictp2p.DiLoCo, {"carry": [3]}, "carry: 3 has no state_dict"),
        (ictp2p.DiLoCo, {"sampler": "x"}, "sampler must be a .*ElasticSampler, not 'x'"),
        (None, {}, "policy None is not callable"),
    ],
)
def test_what_a_policy_cannot_be_made_of_is_refused_where_it_is_given(policy: Any, options: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Embedded(None, policy, options)  # type: ignore[arg-type]


def test_what_makes_something_else_than_a_policy_is_named() -> None:
    model = torch.nn.Linear(2, 1)
    embedded = Embedded(None, lambda *given, **options: 3, {})  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match=r"what <function .*> makes must be a .*Policy, not 3"):
        embedded.enter(model, [torch.optim.SGD(model.parameters())], [])
    assert embedded.policy is None


def test_trainers_that_would_average_themselves_are_refused() -> None:
    check_alone(1)
    with pytest.raises(ConfigError, match="2 processes"):
        check_alone(2)
    check_unscaled(None)
    with pytest.raises(ConfigError, match="bfloat16"):
        check_unscaled(object())


def test_samples_of_a_batch() -> None:
    inputs = torch.zeros(7, 3)
    nested = {"name": "x", "parts": [torch.tensor(1.0), (inputs, torch.zeros(9))]}
    assert [samples(batch) for batch in (inputs, [inputs, 3], nested)] == [7.0, 7.0, 7.0]
    with pytest.raises(ConfigError, match="`weigh`"):
        samples({"text": "abc"})
