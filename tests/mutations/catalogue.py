"""The safety rules of ictp2p, each broken on purpose, with the tests that must notice.

A test that passes proves little until it has been seen to fail. Each `Mutation` replaces one piece of text, which
stands exactly once in its file, by code that breaks one rule and nothing else; the selection must then fail. The
killers are chosen to be certain: tests with fixed inputs, or searches under a fixed seed whose target is dense.

`rules` mirrors the source: how `ictp2p/bulk/pool.py` may be broken stands in `rules/ictp2p/bulk/pool.py`. When code
moves, its entry moves with it: text that is not found is an error, not a mutation that was survived.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Final

from tests.mutations.mutation import Mutation

_RULES: Final = Path(__file__).with_name("rules")


def _broken(file: str) -> list[Mutation]:
    """Give the mutations of one file of the source."""
    module = import_module(f"tests.mutations.rules.{file.removesuffix('.py').replace('/', '.')}")
    return [replace(mutation, file=file) for mutation in module.MUTATIONS]


CATALOGUE: Final[tuple[Mutation, ...]] = tuple(
    mutation for path in sorted(_RULES.rglob("*.py")) for mutation in _broken(path.relative_to(_RULES).as_posix())
)
"""Every mutation, by file."""
