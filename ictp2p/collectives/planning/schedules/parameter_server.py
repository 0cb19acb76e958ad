"""One participant adds everything up: the parameter server. `(N-1)` times the vector crosses its link each way.

Best where one participant has far more bandwidth than the rest, where all the others only reach that one, and for
tensors so small that the number of messages is all that counts.
"""

from __future__ import annotations

from ictp2p.collectives.planning.schedules.star import star
from ictp2p.collectives.planning.schedules.trees import Tree


def trees(size: int) -> tuple[Tree, ...]:
    """Give the star around each participant; one of them is a plan by itself."""
    return tuple(star(size, server) for server in range(size))
