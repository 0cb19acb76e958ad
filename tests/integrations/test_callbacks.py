"""What both libraries' callbacks make of what their trainers are told."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
import types

import pytest

import ictp2p
from ictp2p.errors import ConfigError
from tests.integrations.callbacks import ENVIRONMENT, EXAMPLES, LIBRARIES, callback_of


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
    ("module", "base"), [("huggingface", "transformers.TrainerCallback"), ("lightning", "lightning.pytorch.Callback")]
)
def test_a_checkpoint_that_no_file_can_be_is_refused_where_it_is_given(
    module: str, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="3 is not valid as the name of a checkpoint"):
        callback_of(module, base, monkeypatch)(None, ictp2p.DiLoCo, checkpoint=3)
