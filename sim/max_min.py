"""Max-min fair shares of what many flows pass together, by progressive filling.

All flows grow together until a resource is full, whose flows are then frozen, and so on (Bertsekas and Gallager, "Data
Networks", 6.5.2). Those that want less than an even part of everything that they pass are frozen first, all in one
step, since most flows of a world are held by their own windows, each at another rate.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


def shares(
    caps: npt.NDArray[np.float64],
    flow: npt.NDArray[np.intp],
    resource: npt.NDArray[np.intp],
    capacity: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Max-min fair rates.

    Args:
        caps: of each flow, what it may have at most; infinite for none.
        flow: of each use of a resource, the flow.
        resource: of each use of a resource, the resource.
        capacity: of each resource.
    """
    count, resources = len(caps), len(capacity)
    rates, left = np.zeros(count), capacity.astype(float)
    endless, active = np.isinf(left), np.ones(count, dtype=bool)
    while active.any():
        live = active[flow]
        by, of = flow[live], resource[live]
        users = np.bincount(of, minlength=resources)
        used = users > 0
        level = np.full(resources, math.inf)
        level[used] = left[used] / users[used]
        fair = np.full(count, math.inf)
        np.minimum.at(fair, by, level[of])
        limit = np.where(active, caps, 0.0) - np.where(active, rates, 0.0)
        # No resource is full before each of its users has an even part of what is left: who wants no more gets it.
        done = active & (limit <= fair)
        if np.array_equal(done, active):  # of a world at ease, at once: every flow is held by its own window
            return np.where(done, caps, rates)
        grown = np.where(done, limit, 0.0) if done.any() else np.where(active, level.min(), 0.0)
        rates = np.where(done, caps, rates + grown)
        taken = np.bincount(of, weights=grown[by], minlength=resources)
        left = np.where(endless, math.inf, np.maximum(left - np.where(endless, 0.0, taken), 0.0))
        if not done.any():
            full = used & (left <= 1e-9 * capacity + 1e-9)
            done[by[full[of]]] = True
        active &= ~done
    return rates
