"""Real processes, one per rank, that run one function of a module in this folder.

As a script: `python ranks.py MODULE:FUNCTION`. The function gets what the test gave, as keywords, and may return
anything that JSON has.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import forked

SECONDS = 120


def run(target: Callable[..., Any], size: int, folder: Path, **given: Any) -> list[Any]:
    """Run `target` in `size` processes with torch's environment for a file store; what each returned, by rank."""
    ranks = [start(target, rank, size, folder, **given) for rank in range(size)]
    try:
        return [end(rank) for rank in ranks]
    except subprocess.TimeoutExpired as hung:
        raise AssertionError("\n\n".join(testimony(rank) for rank in ranks)) from hung
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def start(target: Callable[..., Any], rank: int, size: int, folder: Path, **given: Any) -> forked.Fork:
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "STORE": f"file://{folder / 'store'}",
        "OMP_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONPATH": str(root),
    }
    module = Path(target.__code__.co_filename)
    return forked.Fork(__file__, f"{module}:{target.__name__}", json.dumps(given), env=environment)


def end(process: forked.Fork) -> Any:
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, f"{out}\n{err}"
    return json.loads(out.splitlines()[-1])


def testimony(process: forked.Fork) -> str:
    """End a process that hangs, and give the stacks of its threads."""
    process.send_signal(signal.SIGABRT)
    out, err = process.communicate(timeout=SECONDS)
    return f"{process.pid} ended with {process.returncode}\n{out}\n{err}"


def main() -> None:
    where, _, name = sys.argv[1].rpartition(":")
    spec = importlib.util.spec_from_file_location("ranks_target", where)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ranks_target"] = module
    spec.loader.exec_module(module)
    print(json.dumps(getattr(module, name)(**json.loads(sys.argv[2]))), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
