"""Policies inside other libraries' trainers: the examples in two clusters, and what needs none of the libraries."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import ictp2p
from ictp2p.errors import ConfigError, LocalProtocolError
from ictp2p.integrations.embedded import Embedded, check_alone, check_unscaled, samples
from tests import forked
from tests.tally import Count, Summing, Tally, Watched

EXAMPLES = Path(__file__).parent.parent / "examples"
ENVIRONMENT = {**os.environ, "ICTP2P_TOKEN": "0123456789abcdef0123456789abcdef", "OMP_NUM_THREADS": "1"}
LIBRARIES = {"hf_trainer.py": "transformers", "lightning_module.py": "lightning"}
NAMES = {
    "transformers.py": "TrainerCallback = GPT2Config = GPT2LMHeadModel = Trainer = TrainingArguments = dict",
    "lightning/__init__.py": "LightningModule = object",
    "lightning/pytorch.py": "Callback = object",
}
MODULES = {"huggingface": ("transformers", "hf"), "lightning": ("lightning", "lightning")}


Start = Callable[..., subprocess.Popen[str]]


@contextlib.contextmanager
def starting(script: str, **environment: str) -> Iterator[Start]:
    """Starts an example with arguments, as often as it is called; what it has started ends with this."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(EXAMPLES / script), *arguments]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, text=True, env={**ENVIRONMENT, **environment}, **pipes))
        return processes[-1]

    try:
        yield start
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.fixture(params=LIBRARIES)
def two(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Starts the example in two clusters."""
    script = request.param
    if importlib.util.find_spec(LIBRARIES[script]) is None:
        pytest.skip(f"{LIBRARIES[script]} is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"

    with starting(script) as start:
        places = (("oslo", "--listen", address), ("tokyo", "--join", address))
        yield lambda steps: [start("--steps", str(steps), "--cluster", *place) for place in places]


def ended(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=150)
    assert process.returncode == 0, errors
    return output


@pytest.mark.real
@pytest.mark.timeout(180)
def test_a_trainer_in_each_of_two_clusters(two: Any) -> None:
    texts = [ended(process) for process in two(40)]
    found = [re.findall(r"version (\d+)  digest (\w+)", text)[0] for text in texts]
    # One that was in before the other may have had rounds alone; the other's begin from there.
    assert all(int(version) >= 5 for version, _ in found)
    assert len(set(found)) == len({version for version, _ in found}), "equal versions are equal states"
    for text in texts:
        losses = [float(loss) for loss in re.findall("losses (.*)", text)[0].split()]
        assert losses[-1] < losses[0]
        assert float(re.findall(r"weight ([\d.]+)", text)[0]) in (8 * 32, 16), "tokens for one, samples for the other"


@pytest.mark.real
@pytest.mark.timeout(180)
def test_a_trainer_ends_when_its_peer_has_drained(two: Any) -> None:
    oslo, tokyo = two(1_000_000)
    for process in (oslo, tokyo):
        assert next(line for line in process.stdout if "loss" in line)
        process.send_signal(signal.SIGINT)
        assert "digest" in ended(process)


@pytest.fixture
def names(tmp_path: Path) -> str:
    """A path with nothing but the names of the libraries: they do for all that an example says before it trains."""
    for path, text in NAMES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return os.pathsep.join([str(tmp_path), str(EXAMPLES.parent)])


@pytest.mark.real
@pytest.mark.parametrize("script", LIBRARIES)
@pytest.mark.parametrize("steps", ["-1", "0"])
def test_a_number_of_steps_that_cannot_be_is_refused_at_once(names: str, script: str, steps: str) -> None:
    """Regression: it waited for another cluster, and then ended with a traceback."""
    environment = {**ENVIRONMENT, "PYTHONPATH": names}
    ran = forked.run(str(EXAMPLES / script), "--cluster", "oslo", "--steps", steps, env=environment)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"error: --steps {steps} is less than 1\n" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.real
@pytest.mark.parametrize("script", LIBRARIES)
def test_who_waits_for_another_cluster_says_so_and_can_be_stopped(names: str, script: str) -> None:
    """Regression: it waited without a word, and a first Ctrl-C then was no drain."""
    with starting(script, PYTHONPATH=names) as start:
        process = start("--cluster", "oslo")
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert re.fullmatch(r"oslo listens on 127\.0\.0\.1:\d+, and waits for another cluster\n", line)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "draining; Ctrl-C again to end at once\n"
        process.send_signal(signal.SIGINT)
        assert (process.wait(60), process.stderr.read()) == (130, "")


@pytest.mark.parametrize("module", MODULES)
def test_a_missing_library_is_named_with_its_extra(module: str) -> None:
    library, extra = MODULES[module]
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    with pytest.raises(ConfigError, match=rf"pip install 'ictp2p\[{extra}\]'"):
        importlib.import_module(f"ictp2p.integrations.{module}")


@pytest.mark.real
@pytest.mark.parametrize("script", LIBRARIES)
def test_an_example_without_its_library_says_in_one_line_what_to_install(script: str) -> None:
    """Regression: it was a traceback."""
    library = LIBRARIES[script]
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    ran = forked.run(str(EXAMPLES / script), "--cluster", "oslo", env=ENVIRONMENT)
    extra = {"transformers": "hf", "lightning": "lightning"}[library]
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"No module named '{library}': pip install 'ictp2p[{extra}]'\n"


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


def epochs(sampler: ictp2p.ElasticSampler) -> Iterator[list[int]]:
    """The batches of one epoch after the other."""
    while not sampler.finished:
        yield from sampler
    raise AssertionError("a trainer that was not told to end begins one empty epoch after the other")


def callback_of(module: str, base: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ours for a library, also where there is nothing but the library's names."""
    library, _, inside = base.rpartition(".")
    if importlib.util.find_spec(library.partition(".")[0]) is None:
        named = types.ModuleType(library)
        setattr(named, inside, object)
        monkeypatch.setitem(sys.modules, library.partition(".")[0], named)
        monkeypatch.setitem(sys.modules, library, named)
    path = EXAMPLES.parent / "ictp2p" / "integrations" / f"{module}.py"
    spec = importlib.util.spec_from_file_location(f"ictp2p.integrations.{module} under test", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded.PolicyCallback


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
        with pytest.raises(ConfigError, match="a further step with the same batch"):
            trainer.train(torch.tensor(next(batches)), 2)
        callback.on_exception(trainer, model, ConfigError())


@pytest.mark.parametrize(
    ("finds", "found", "tokens", "weight"),
    [(False, 8, 0, 16.0), (True, 4, 0, 8.0), (True, None, 0, 16.0), (False, 4, 0, 16.0), (True, 4, 70, 70.0)],
)
def test_a_step_of_hugging_faces_trainer_weighs_what_it_found_to_fit(
    monkeypatch: pytest.MonkeyPatch, finds: bool, found: int | None, tokens: int, weight: float
) -> None:
    """Regression: where it had to take smaller batches, its samples were still counted as if they were asked for."""
    callback = callback_of("huggingface", "transformers.TrainerCallback", monkeypatch)(None, ictp2p.LocalSGD)
    callback._embedded.policy = types.SimpleNamespace(weight=1.0)
    arguments = types.SimpleNamespace(train_batch_size=8, gradient_accumulation_steps=2, auto_find_batch_size=finds)
    state = types.SimpleNamespace(train_batch_size=found, num_input_tokens_seen=tokens)
    callback.on_pre_optimizer_step(arguments, state, None)
    assert callback.policy.weight == weight


@pytest.mark.real
@pytest.mark.parametrize("library", LIBRARIES.values())
@pytest.mark.parametrize(("batches", "leased"), [(1, 1), (3, 3), (3, 1)])
def test_what_a_trainer_accumulates_is_counted_once(library: str, batches: int, leased: int) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    command = [sys.executable, "-m", "tests.trainer_worker", library, str(batches), str(leased)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, cwd=EXAMPLES.parent, timeout=100, check=False
    )
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"what"')]
    if batches != leased:
        assert "make it ElasticSampler(..., accumulate=3)" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    (found,) = (line for line in told if line["what"] == "trained")
    assert found["tally"] == [2.0] * len(found["tally"])
    assert found["steps"] == found["trainer_steps"] == 2 * found["blocks"]
    assert found["weight"] == 2.0 * batches or library == "lightning", "Lightning counts what is in the last block"


@pytest.mark.parametrize(
    ("policy", "options", "named"),
    [
        (ictp2p.DiLoCo, {"carry": 3}, "carry must be a list, not 3"),
        (ictp2p.DiLoCo, {"carry": [3]}, "carry: 3 has no state_dict"),
        (ictp2p.DiLoCo, {"sampler": "x"}, "sampler must be a .*ElasticSampler, not 'x'"),
        (None, {}, "policy None makes no policy"),
    ],
)
def test_what_a_policy_cannot_be_made_of_is_refused_where_it_is_given(policy: Any, options: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Embedded(None, policy, options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "base"), [("huggingface", "transformers.TrainerCallback"), ("lightning", "lightning.pytorch.Callback")]
)
def test_a_checkpoint_that_no_file_can_be_is_refused_where_it_is_given(
    module: str, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="3 is not valid as the name of a checkpoint"):
        callback_of(module, base, monkeypatch)(None, ictp2p.DiLoCo, checkpoint=3)


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
