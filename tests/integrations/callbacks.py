"""Callbacks of libraries that need not be installed, and the examples that use them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ictp2p

EXAMPLES = Path(__file__).parents[2] / "examples"
ENVIRONMENT = {**os.environ, "ICTP2P_TOKEN": "0123456789abcdef0123456789abcdef", "OMP_NUM_THREADS": "1"}
LIBRARIES = {"hf_trainer.py": "transformers", "lightning_module.py": "lightning"}


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
