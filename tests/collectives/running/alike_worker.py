"""What everybody works out for itself, in a process of its own: processors differ, and torch takes one per process.

Reads from a file the bytes that all have in common, and writes a digest of each result to the standard output.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from pathlib import Path

import torch

from ictp2p.collectives.codecs.schemes import SCHEMES
from ictp2p.collectives.running.alike import add_up
from ictp2p.collectives.running.coding import Coder
from ictp2p.collectives.running.flat import Flat
from ictp2p.collectives.running.sums import Weights

SUMMED = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DECODED = (torch.float32, torch.bfloat16, torch.float16)
CUTS = (0, 5, 33, 300)
"""Where the outputs are cut: what a conversion makes of an element depends on how many stand beside it."""
WEIGHTS = (1.0, 2.0, 3.5)


def run(path: Path) -> dict[str, str]:
    """Work it all out."""
    bodies, wires, elements = pickle.loads(path.read_bytes())
    found = {}
    for dtype in SUMMED:
        for op in ("sum", "avg", "product", "min", "max"):
            target = Flat([torch.zeros(len(bodies[0]) // dtype.itemsize, dtype=dtype)])
            add_up(bodies, target, Weights(WEIGHTS, op, target))
            found[f"{op} of {dtype}"] = digest(target.tensors)
    for codec, wire in wires.items():
        for dtype in DECODED:
            for cut in CUTS:
                whole = torch.zeros(elements, dtype=dtype)
                outputs = Flat([whole[:cut], whole[cut:]])
                coder = Coder(SCHEMES[codec](2), outputs, outputs, Weights([1.0] * 2, "sum", outputs), 0, elements)
                coder.land(0, elements, memoryview(bytearray(wire)), 0)
                found[f"{codec} decoded to {dtype}, cut at {cut}"] = digest([whole])
    return found


def digest(tensors: list[torch.Tensor]) -> str:
    """Of all their bits."""
    return hashlib.sha256(b"".join(bytes(tensor.view(torch.uint8).numpy().data) for tensor in tensors)).hexdigest()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(Path(sys.argv[1]))))
