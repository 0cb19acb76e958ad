"""The examples on process groups, one after the other in processes that have torchrun's environment."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ("--epochs", "2", "--samples", "8", "--length", "32", "--batch", "4")
RUNS = [
    ("ddp.py",),
    ("fsdp2.py",),
    ("hsdp.py",),
    ("fsdp2_lanes.py",),
    ("parameter_server_ring.py", "--how", "ring", *SMALL),
    ("parameter_server_ring.py", "--how", "parameter_server", *SMALL),
]


def examples(ports: list[int]) -> list[str]:
    """In each process: what every example printed; a temporary folder that one leaves behind is an error."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["TORCHELASTIC_USE_AGENT_STORE"], os.environ["TORCHELASTIC_RESTART_COUNT"] = "True", "0"
    printed = []
    with tempfile.TemporaryDirectory() as temporary:
        tempfile.tempdir = temporary
        for port, (script, *arguments) in zip(ports, RUNS, strict=True):
            os.environ["MASTER_PORT"], sys.argv = str(port), [script, *arguments]
            with contextlib.redirect_stdout(io.StringIO()) as out:
                runpy.run_path(str(EXAMPLES / script), run_name="__main__")
            assert not list(Path(temporary).iterdir()), f"{script} left a folder, as fsdp2.py once its checkpoint"
            printed.append(out.getvalue())
        tempfile.tempdir = None
    return printed
