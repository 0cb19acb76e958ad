"""Codecs on one core: float32 bytes per second encoded, added and decoded, and the wire below which each one pays.

    python benchmarks/codecs.py --json codecs.json

Chunks of a mebibyte of float32 go one after the other through a tensor that fits no cache, as in a collective; medians.
The wire is full duplex, N participants reduce by the star, and no work of a codec overlaps with the wire: a codec
pays below the rate at which the bytes that it saves take as long as its work. Errors are of Gaussian elements, relative
root mean square; top-k is there without its error feedback, which makes up for what it leaves out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from arguments import megabytes, output

from ictp2p.collectives.codecs.cast import Cast
from ictp2p.collectives.codecs.codec import Codec
from ictp2p.collectives.codecs.prices import ADD, PRICES, price
from ictp2p.collectives.codecs.schemes import SCHEMES, scheme

CHUNK = 256 * 1024
ROUNDS = 3
BITS = 8 / 1e9


def speed(action: Callable[[torch.Tensor], object], tensor: torch.Tensor) -> float:
    """Give the median GB/s of `action` on the chunks of `tensor`, by this thread's CPU time."""
    times = []
    for _ in range(ROUNDS):
        for chunk in tensor.split(CHUNK):
            began = time.thread_time()
            action(chunk)
            times.append(time.thread_time() - began)
    return CHUNK * 4 / statistics.median(times) / 1e9


def measure(name: str, codec: Codec, source: torch.Tensor) -> dict[str, Any]:
    """Measure one codec."""
    wire = torch.empty(codec.size(CHUNK), dtype=torch.uint8)
    total = torch.zeros_like(source)
    codec.encode(source[:CHUNK], wire)
    one = torch.empty(CHUNK)
    codec.decode(wire, one)
    error = ((one - source[:CHUNK]).norm() / source[:CHUNK].norm()).item()
    return {
        "codec": name,
        "bytes_per_element": codec.size(CHUNK) / CHUNK,
        "relative_error": error,
        "encode_gb_s": speed(lambda chunk: codec.encode(chunk, wire), source),
        "add_gb_s": speed(lambda chunk: codec.add(wire, chunk), total),
        "decode_gb_s": speed(lambda chunk: codec.decode(wire, chunk), total),
    }


def pays(row: dict[str, Any], plain_add: float, participants: int) -> float:
    """Give the Gbit/s below which the measured codec beats float32."""
    others, own = (participants - 1) / participants, 1 / participants
    result = price(row["codec"], participants).result
    saved = others * (2 - row["bytes_per_element"] / 4 - result)
    coding = others * (1 / row["encode_gb_s"] + 1 / row["add_gb_s"]) + own / row["encode_gb_s"] + 1 / row["decode_gb_s"]
    return 8 * saved / (coding - others / plain_add)


def pays_below(name: str, participants: int) -> float:
    """Give the bytes/s below which the planner's price of `name` is less than float32's."""
    codec, plain = price(name, participants), PRICES["none"]
    saved = (participants - 1) / participants * (2 - codec.contribution - codec.result)
    work = codec.seconds(1.0, participants) - plain.seconds(1.0, participants)
    return saved / work


def main() -> None:
    """Measure all codecs; print, and perhaps save, a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mb", type=megabytes, default=100.0, help="tensor size in MB (1e6 bytes)")
    parser.add_argument("--json", type=output, help="file to write the rows to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    source = torch.randn(int(options.mb * 1e6 / 4) // CHUNK * CHUNK)
    rows = [measure("float32", Cast(torch.float32), source)]
    for name in SCHEMES:
        made = scheme(name, 2)
        assert made is not None
        row = measure(name, made.contribution, source)
        row["pays_below_gbit_s"] = {n: pays(row, rows[0]["add_gb_s"], n) for n in (2, 4, 8)}
        row["planned_below_gbit_s"] = {n: pays_below(name, n) * BITS for n in (2, 4, 8)}
        rows.append(row)
    print(f"{'codec':>9} {'B/element':>9} {'error':>8} {'encode':>7} {'add':>6} {'decode':>7}   pays below (Gbit/s)")
    for row in rows:
        below = row.get("pays_below_gbit_s", {})
        print(
            f"{row['codec']:>9} {row['bytes_per_element']:9.3f} {row['relative_error']:8.2g} {row['encode_gb_s']:7.1f} "
            f"{row['add_gb_s']:6.1f} {row['decode_gb_s']:7.1f}   "
            + ", ".join(f"{n} peers {rate:.1f}" for n, rate in below.items())
        )
    print(f"the planner reckons with {ADD / 1e9:g} GB/s for adding float32")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
