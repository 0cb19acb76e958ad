"""What everybody works out for itself comes out alike, on whatever processor: also where it is no number."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from ictp2p.collectives.codecs.schemes import SCHEMES
from tests.collectives.running import alike_worker

ELEMENTS = 1000
PROCESSORS = ("default", "avx2")
"""torch's words for what it may use of one (`ATEN_CPU_CAPABILITY`); more than there is counts for what there is."""


def test_results_have_the_same_bits_on_every_processor(tmp_path: Path) -> None:
    """Regression: a NaN of 16 bits had others where torch had vectors, and clusters went on apart, with success."""
    chance, path = np.random.default_rng(1), tmp_path / "common"
    bodies = [chance.bytes(4 * ELEMENTS) for _ in alike_worker.WEIGHTS]  # any bits, so every kind of NaN and infinity
    path.write_bytes(pickle.dumps((bodies, _results(chance), ELEMENTS)))
    command = [sys.executable, "-m", alike_worker.__name__, str(path)]
    others = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "ATEN_CPU_CAPABILITY": processor})
        for processor in PROCESSORS
    ]
    ours, found = alike_worker.run(path), [other.communicate()[0] for other in others]
    for processor, answer in zip(PROCESSORS, found, strict=True):
        theirs = json.loads(answer)
        assert [what for what in ours if theirs[what] != ours[what]] == [], processor
    for codec in SCHEMES:
        for dtype in alike_worker.DECODED:
            cuts = {ours[f"{codec} decoded to {dtype}, cut at {cut}"] for cut in alike_worker.CUTS}
            assert len(cuts) == 1, f"{codec} decoded to {dtype} depends on where the outputs are cut"


def _results(chance: np.random.Generator) -> dict[str, bytes]:
    """A result of each codec, of ordinary numbers and, here and there, what is none."""
    values = chance.standard_normal(ELEMENTS).astype(np.float32)
    values[::7], values[1::50], values[2::50] = -np.nan, np.inf, -np.inf
    wires = {}
    for name, scheme in SCHEMES.items():
        codec = scheme(2).result
        wire = torch.empty(codec.size(ELEMENTS), dtype=torch.uint8)
        codec.encode(torch.from_numpy(values.copy()), wire)
        wires[name] = wire.numpy().tobytes()
    return wires
