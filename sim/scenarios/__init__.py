"""The scenarios that are shipped: one module each, whose docstring is its help text.

A module has a dataclass `Settings` (see `sim.settings`) and a function `play(stage, settings)`, and is registered by
its line here.
"""

from __future__ import annotations

SCENARIOS = (
    "follower_dies",
    "leader_dies",
    "cluster_joins",
    "bandwidth_changes",
    "partition_and_heal",
    "asymmetric_partition",
    "flapping_link",
    "nat_relay",
    "rolling_restart",
    "heterogeneous_wan",
    "large_mesh",
)
"""Names, in the order in which they are shown."""
