"""Breaks every safety rule in a copy of the source, one at a time, and looks whether the tests notice.

    python -m tests.mutations.runner [--limit SECONDS] [NAME ...]

For each mutation: its tests pass on the copy as it is (so a test that is broken anyway kills nothing), its text is
replaced, the tests run again, the text is put back. Only failed tests count as a kill. A mutant that cannot be
imported, tests that are not found, and a run that is ended by the limit show nothing, and are reported as such.

Runs are repeatable: hash and hypothesis seeds are fixed, test order is that of the files, and no bytecode is
written, which could outlive the source it was made of when two versions have one size and one second.
"""

from __future__ import annotations

import argparse
import ast
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.mutations.catalogue import CATALOGUE
from tests.mutations.mutation import Mutation

ROOT: Final = Path(__file__).resolve().parents[2]
LIMIT: Final = 300.0
"""Seconds that one run of a selection may take."""

_PARTS: Final = ("ictp2p", "sim", "tests", "pyproject.toml")
_CACHES: Final = shutil.ignore_patterns("__pycache__", ".*_cache", ".hypothesis")
_OPTIONS: Final = ("-x", "-q", "--tb=no", "-p", "no:randomly", "-p", "no:cacheprovider", "--hypothesis-seed=0")
_PASSED, _FAILED = 0, 1  # pytest's exit codes; the others mean that nothing was tested


class Verdict(StrEnum):
    """What became of a mutation. Only `KILLED` is good."""

    KILLED = "killed"
    SURVIVED = "survived"
    INAPPLICABLE = "not applicable"
    BROKEN_TESTS = "tests fail without it"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Result:
    """A verdict, the test that killed it or why there is none, and how long that took."""

    mutation: Mutation
    verdict: Verdict
    detail: str
    seconds: float


def misfit(root: Path, mutation: Mutation) -> str | None:
    """Say why a mutation does not apply to the source at `root`, or None."""
    path = root / mutation.file
    if not path.is_file():
        return f"there is no {mutation.file}"
    text = path.read_text()
    found = text.count(mutation.old)
    if found != 1:
        return f"its text stands {found} times in {mutation.file}"
    try:
        changed = _parsed(text.replace(mutation.old, mutation.new)) != _meaning(text)
    except SyntaxError as error:
        return f"its code does not parse: {error}"
    return None if changed else "it changes nothing"


def _parsed(text: str) -> str:
    return ast.dump(ast.parse(text))


_meaning = functools.lru_cache(maxsize=4)(_parsed)
"""Of a source that many mutations in a row are about."""


@dataclass(slots=True)
class Laboratory:
    """A copy of the source in which mutations are tried."""

    root: Path
    limit: float = LIMIT
    _sound: set[tuple[str, ...]] = field(default_factory=set)

    @classmethod
    def set_up(cls, root: Path, limit: float = LIMIT, source: Path = ROOT) -> Laboratory:
        """Copy the source to an empty directory."""
        for part in _PARTS:
            if (source / part).is_dir():
                shutil.copytree(source / part, root / part, ignore=_CACHES)
            else:
                shutil.copy(source / part, root / part)
        return cls(root, limit)

    def judge(self, mutation: Mutation) -> Result:
        """Try one mutation; the copy is as before afterwards."""
        began = time.monotonic()
        verdict, detail = self._verdict(mutation)
        return Result(mutation, verdict, detail, time.monotonic() - began)

    def _verdict(self, mutation: Mutation) -> tuple[Verdict, str]:
        wrong = misfit(self.root, mutation)
        if wrong is not None:
            return Verdict.INAPPLICABLE, wrong
        if mutation.killers not in self._sound:
            status, said = self._test(mutation.killers)
            if status != _PASSED:
                return Verdict.BROKEN_TESTS, said
            self._sound.add(mutation.killers)
        path = self.root / mutation.file
        original = path.read_text()
        path.write_text(original.replace(mutation.old, mutation.new))
        try:
            status, said = self._test(mutation.killers)
        finally:
            path.write_text(original)
        known = {_PASSED: Verdict.SURVIVED, _FAILED: Verdict.KILLED}
        return known.get(status, Verdict.INCONCLUSIVE), said

    def _test(self, killers: Sequence[str]) -> tuple[int | None, str]:
        """Run tests in the copy; give pytest's exit code (None past the limit) and its most telling line."""
        command = [sys.executable, "-m", "pytest", *_OPTIONS, *(f"tests/{killer}" for killer in killers)]
        fixed = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "COLUMNS": "200", "PYTEST_ADDOPTS": ""}
        environment = {**os.environ, **fixed, "PYTHONPATH": str(self.root)}
        try:
            done = subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=self.limit, check=False
            )
        except subprocess.TimeoutExpired:
            return None, f"not done after {self.limit:g} s"
        told = re.search(r"^(?:FAILED|ERROR) (?:tests/)?(.*)$", done.stdout, re.MULTILINE)
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        return done.returncode, told[1] if told else "; ".join(lines[-1:])


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the named mutations, or all; 0 if every one was killed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations.runner", description="Break rules; see who notices."
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="a mutation; all of them without any")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds per run of tests (default: %(default)g)")
    options = parser.parse_args(arguments)
    known = {mutation.name: mutation for mutation in CATALOGUE}
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no mutation is called {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = [known[name] for name in dict.fromkeys(options.names)] or list(CATALOGUE)
    with tempfile.TemporaryDirectory(prefix="ictp2p-mutations-") as directory:
        laboratory = Laboratory.set_up(Path(directory), options.limit)
        results = [_told(laboratory.judge(mutation)) for mutation in chosen]
    return _summary(results)


def _told(result: Result) -> Result:
    name, verdict = result.mutation.name, result.verdict
    sys.stdout.write(f"{verdict:<14} {name:<38} {result.seconds:6.1f} s  {result.detail}\n")
    sys.stdout.flush()
    return result


def _summary(results: Sequence[Result]) -> int:
    """Name what was not killed, with its rule, and count."""
    alive = [result for result in results if result.verdict is not Verdict.KILLED]
    for result in alive:
        sys.stdout.write(f"\n{result.verdict.upper()}: {result.mutation.name} ({result.mutation.file})\n")
        sys.stdout.write(f"    rule:   {result.mutation.rule}\n    detail: {result.detail}\n")
    counts = Counter(result.verdict for result in results)
    sys.stdout.write("\n" + "".join(f"{verdict:<22} {counts[verdict]:4d}\n" for verdict in Verdict))
    sys.stdout.write(f"{'in all':<22} {len(results):4d}   {sum(r.seconds for r in results):.0f} s\n")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
