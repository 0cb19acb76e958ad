"""How much longer a plan takes than its bytes need, because lines are divided among connections, and not as planned.

In the fluid model each share gets the rate that the plan gives it. A line gives every connection that crosses it about
as much as any other (max-min fairness; Bertsekas and Gallager, "Data Networks", 6.5.2). Where it is the only line that
is full, or where all that it carries is alike, this costs nothing. But where the connections of a full line have
different amounts to carry and end in other full lines, what is short takes from what is long, and the line later waits
for bytes that the others hold back: the lines are full by turns. On simulated lines of 30 to 100 Mbit/s a star at the
bound took 1.22 times as long as its bytes needed, and a chain with as high a load on its busiest line, in which every
line carries one connection each way, took as long as they needed.

So each line is reckoned with the part of its load that is divided unevenly, as far as it passes another full line. Of
plans that the fluid model thinks equal, the one that crowds its lines less is the faster one.
"""

from __future__ import annotations

import numpy as np

from ictp2p.collectives.planning.schedules.trees import Matrix

_SLACK = 0.2
"""Part of a line that has to be free for it to hold nothing back."""


def crowded(carried: Matrix, up: Matrix, down: Matrix) -> float:
    """Give the seconds that the slowest access line needs for what it carries; 0 if none is known to have a limit.

    Args:
        carried: bytes from each participant to each.
        up: bytes/s that each can send in all.
        down: bytes/s that each can receive in all.
    """
    sending, receiving = _seconds(carried.sum(axis=1), up), _seconds(carried.sum(axis=0), down)
    slowest = float(max(sending.max(initial=0.0), receiving.max(initial=0.0)))
    if not slowest:
        return 0.0
    out = sending * (1 + _uneven(carried) * _held_back(carried, receiving / slowest))
    into = receiving * (1 + _uneven(carried.T) * _held_back(carried.T, sending / slowest))
    return float(max(out.max(), into.max()))


def _seconds(load: Matrix, line: Matrix) -> Matrix:
    return np.divide(load, line, out=np.zeros_like(load), where=line > 0)


def _uneven(carried: Matrix) -> Matrix:
    """Give the part of each row's bytes that even parts would give to somebody else."""
    total, count = carried.sum(axis=1), (carried > 0).sum(axis=1)
    even = total / np.maximum(count, 1)
    more = np.maximum(carried - even[:, None], 0.0).sum(axis=1)
    part: Matrix = np.divide(more, total, out=np.zeros_like(total), where=total > 0)
    return part


def _held_back(carried: Matrix, others: Matrix) -> Matrix:
    """Give the part of each row's bytes that others hold back, by how full their lines are."""
    full = np.clip((others - (1 - _SLACK)) / _SLACK, 0.0, 1.0)
    total = carried.sum(axis=1)
    part: Matrix = np.divide(carried @ full, total, out=np.zeros_like(total), where=total > 0)
    return part
