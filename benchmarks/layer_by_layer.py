"""The two tables of `utilization` reckoned as the published simulator has it: each layer is reduced once it is done.

    python benchmarks/layer_by_layer.py

`utilization` runs the real policies, whose rounds carry a fragment as one. So with its rounds *in the backward pass*
all of a fragment may be hidden by that pass, and at 99 % this is what counts. The published simulator reduces layer by
layer: the gradient of the last layer is there first, that of the first one when the pass is over, so at least one
layer's bytes are never hidden. Here this is reckoned, without policies and peers: a step is one third forward; the
layers' gradients come evenly in the rest of it, and go over the line one after the other, each when it is there and the
line is free. Fragments are strided: layer l is in fragment l modulo their number. Nothing but bytes and steps counts.

Lines with overlap are left out: there what a pass may hide is little beside the step that follows it.
"""

from __future__ import annotations

import argparse
import math

from utilization import LINES, PARTS, TARGETS, Line, point, published_point

LAYERS = {1e9: 24, 1e10: 48, 1e11: 108}
"""Of the published models, by their parameters: three per fragment."""
BITS = 16.0
"""Per parameter; no line without overlap has fewer."""


def exposed(fragments: int, layers: int, transfer: float, backward: float) -> float:
    """Seconds by which the bytes of a round outlast the backward pass before it, in the mean over the fragments.

    Args:
        fragments: how many there are.
        layers: of the whole model.
        transfer: seconds that the bytes of a layer take.
        backward: seconds of the pass.
    """
    late = 0.0
    for fragment in range(fragments):
        free = 0.0
        for layer in range(layers - fragments + fragment, -1, -fragments):
            free = max(free, backward * (layers - layer) / layers) + transfer
        late += max(0.0, free - backward)
    return late / fragments


def gigabits(line: Line, target: float) -> float:
    """The slowest link, in Gbit/s, on which a line of a table computes the share `target` of the time."""
    layers, setting = LAYERS[line.parameters], line.setting
    allowed = setting.between * line.seconds * (1.0 / target - 1.0)
    backward = line.seconds * (PARTS - 1) / PARTS
    low, high = 1e-3, 1e6
    while high / low > 1.0001:
        rate = math.sqrt(low * high)
        late = exposed(setting.fragments, layers, line.parameters * BITS / 1e9 / layers / rate, backward)
        low, high = (rate, high) if late > allowed else (low, rate)
    return high


def steps(line: Line) -> list[int]:
    """By how many points of the published grid ours is above a line's cells."""
    return [
        point(gigabits(line, target)) - published_point(theirs)
        for target, theirs in zip(TARGETS, line.published, strict=True)
    ]


def main() -> None:
    """Print the tables."""
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    for paper in ("Streaming DiLoCo", "Scaling laws"):
        lines = [line for line in LINES if line.table.startswith(paper) and not line.setting.overlap]
        for line in lines:
            cells = " ".join(
                f"{gigabits(line, target):7.2f}/{theirs:5.1f} ({apart:+d})"
                for target, theirs, apart in zip(TARGETS, line.published, steps(line), strict=True)
            )
            print(f"{line.table:22} {line.name:18} {cells}")
        apart = [abs(step) for line in lines for step in steps(line)]
        near, same = sum(step <= 1 for step in apart), apart.count(0)
        print(f"{paper}: {near} of {len(apart)} cells within one step of the grid, {same} the same")


if __name__ == "__main__":
    main()
