"""The simulator: real peers on a virtual clock, an in-memory network, and faults as values.

    from sim import World

See `sim.world` for how to build and run one, `sim.faults` for what can go wrong, `sim.invariants` for what is
checked. `sim` imports `ictp2p`, never the reverse, and patches nothing of it.
"""

from sim.host import Host
from sim.invariants import Breach
from sim.plan import FaultPlan
from sim.world import World

__all__ = ["Breach", "FaultPlan", "Host", "World"]
