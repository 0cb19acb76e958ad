"""The examples on process groups, one after the other in four processes that have torchrun's environment."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests import forked

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


@pytest.mark.real
@pytest.mark.timeout(150)
def test_every_rank_ends_with_the_same_parameters_and_has_learned(four_ranks: list[dict[str, Any]]) -> None:
    ddp, fsdp2, hsdp, lanes, ring, server = zip(*(each["examples"] for each in four_ranks), strict=True)
    for texts in (ddp, hsdp):
        assert len({text.partition("weights")[2] for text in texts}) == 1
    assert all("the same as the other cluster: True" in text for text in lanes)
    assert all("loaded what was saved: True" in text for text in fsdp2)
    assert all("'dp_replicate': 'ictp2p', 'dp_shard': 'gloo'" in text for text in hsdp)
    for texts in (ring, server):
        assert len({tuple(re.findall(r"parameters (\w+)", text)) for text in texts}) == 1
        assert all(len(re.findall("everywhere", text)) == 2 for text in texts)
    for text in (*ddp, *fsdp2, *hsdp, *ring, *server):
        first, *_, last = [float(loss) for loss in re.findall(r"loss ([\d.]+)", text)]
        assert last < first


@pytest.mark.real
@pytest.mark.parametrize("script", ["hsdp.py", "fsdp2_lanes.py"])
@pytest.mark.parametrize("environment", [{}, {"RANK": "0", "WORLD_SIZE": "3"}], ids=["alone", "three"])
def test_ranks_that_two_clusters_cannot_share_are_refused_in_a_sentence(
    script: str, environment: dict[str, str]
) -> None:
    """Regression: it ended in an IndexError."""
    ran = forked.run(str(EXAMPLES / script), env={**os.environ, **environment})
    assert ran.returncode == 1
    number = environment.get("WORLD_SIZE", "1")
    assert ran.stderr == (f"{number} ranks cannot be shared among 2 clusters: give torchrun an even --nproc-per-node\n")
