"""Clusters far apart train one model together, with nobody in the middle.

    with ictp2p.Peer(config) as peer, ictp2p.DiLoCo(peer, model, inner, sync_every=100):
        for batch in peer.steps(loader):
            ...

Names are loaded when they are first used, because torch alone takes over a second to import and `ictp2p status` does
not need it (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ictp2p.async_peer import AsyncPeer
    from ictp2p.collective_calls import AVG, SUM, Work
    from ictp2p.config import Config
    from ictp2p.peer import Peer
    from ictp2p.shards import shard_token
    from ictp2p.sync.optimizers.delayed import DelayedNesterov
    from ictp2p.sync.optimizers.joint import JointOptimizer
    from ictp2p.sync.optimizers.mirror import MirrorDescent
    from ictp2p.sync.optimizers.outer import Nesterov
    from ictp2p.sync.pace import AdaptivePace
    from ictp2p.sync.policies.asynchronous import AsyncDiLoCo
    from ictp2p.sync.policies.diloco import DiLoCo
    from ictp2p.sync.policies.dipaco import DiPaCo
    from ictp2p.sync.policies.eager import EagerDiLoCo
    from ictp2p.sync.policies.local_sgd import LocalSGD
    from ictp2p.sync.policies.noloco import NoLoCo
    from ictp2p.sync.policies.sparse import SparseDiLoCo
    from ictp2p.sync.policies.streaming import StreamingDiLoCo
    from ictp2p.sync.samples.sampler import ElasticSampler

__all__ = [
    "AVG",
    "SUM",
    "AdaptivePace",
    "AsyncDiLoCo",
    "AsyncPeer",
    "Config",
    "DelayedNesterov",
    "DiLoCo",
    "DiPaCo",
    "EagerDiLoCo",
    "ElasticSampler",
    "JointOptimizer",
    "LocalSGD",
    "MirrorDescent",
    "Nesterov",
    "NoLoCo",
    "Peer",
    "SparseDiLoCo",
    "StreamingDiLoCo",
    "Work",
    "shard_token",
]

_HOMES = {
    "AVG": "ictp2p.collective_calls",
    "AdaptivePace": "ictp2p.sync.pace",
    "AsyncDiLoCo": "ictp2p.sync.policies.asynchronous",
    "AsyncPeer": "ictp2p.async_peer",
    "Config": "ictp2p.config",
    "DelayedNesterov": "ictp2p.sync.optimizers.delayed",
    "DiLoCo": "ictp2p.sync.policies.diloco",
    "DiPaCo": "ictp2p.sync.policies.dipaco",
    "EagerDiLoCo": "ictp2p.sync.policies.eager",
    "ElasticSampler": "ictp2p.sync.samples.sampler",
    "JointOptimizer": "ictp2p.sync.optimizers.joint",
    "LocalSGD": "ictp2p.sync.policies.local_sgd",
    "MirrorDescent": "ictp2p.sync.optimizers.mirror",
    "Nesterov": "ictp2p.sync.optimizers.outer",
    "NoLoCo": "ictp2p.sync.policies.noloco",
    "Peer": "ictp2p.peer",
    "SparseDiLoCo": "ictp2p.sync.policies.sparse",
    "StreamingDiLoCo": "ictp2p.sync.policies.streaming",
    "SUM": "ictp2p.collective_calls",
    "Work": "ictp2p.collective_calls",
    "shard_token": "ictp2p.shards",
}


if not TYPE_CHECKING:  # to a type checker there would be every name, also the misspelt ones

    def __getattr__(name: str) -> Any:
        """Import what is asked for."""
        if name not in _HOMES:
            raise AttributeError(f"module 'ictp2p' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """What there is, imported or not."""
    return sorted(__all__)
