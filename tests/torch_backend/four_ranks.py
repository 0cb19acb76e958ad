"""What four processes do for several tests: one start of torch each is dear enough."""

from __future__ import annotations

from typing import Any

from tests.torch_backend.test_examples import examples
from tests.torch_backend.test_training import everything


def run(place: str, ports: list[int]) -> dict[str, Any]:
    """In each process: the training of `test_training`, then the examples."""
    return {"training": everything(place), "examples": examples(ports)}
