"""One participant adds everything up: the parameter server. `(N-1)` times the vector crosses its link each way.

Best where one participant has far more bandwidth than the rest, or where all the others only reach that one.
"""

from __future__ import annotations

from ictp2p.collectives.schedules.star import star
from ictp2p.collectives.schedules.trees import Tree


def trees(size: int, server: int) -> tuple[Tree, ...]:
    """Give the one star around `server`."""
    return (star(size, server),)
