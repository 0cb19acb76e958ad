"""`import ictp2p.torch_backend` makes "ictp2p" a backend of torch.distributed: nearly all that runs on Gloo runs on it.

    import torch.distributed as dist
    import ictp2p.torch_backend

    dist.init_process_group("ictp2p")

DDP, FSDP2, HSDP meshes (`init_device_mesh(..., backend_override={"dp_replicate": "ictp2p"})`, or for what can be chosen
`("ictp2p", Options(...))` in its place), functional collectives, checkpoints and point-to-point calls then go over the
sealed connections of `bulk`, on the schedules of `collectives`: the data plane that clusters use between each other,
without agreement or healing, since a torch group has a fixed membership and dies with its first member. What that costs
against Gloo stands in `docs/performance.md`.

The device is the host's memory. CUDA tensors are staged through it, so `"cpu:ictp2p,cuda:ictp2p"` and `"ictp2p"` mean
the same; mixing it with another backend for another device in one group is not possible (torch takes a group that is
written in Python whole), and refused by the first call: torch lets nobody know before.

What else there is not stands in `docs/guarantees.md`: sparse gradients, DDP's built-in `FP16_COMPRESS` (hooks in Python
work, unless their callbacks call collectives, as PowerSGD's do), `dist.monitored_barrier()` (the group's works), and a
view of `dist`'s calls in `CommDebugMode` or in a profile.
"""

from __future__ import annotations

import torch.distributed as dist

from ictp2p.torch_backend.errors import (
    CalledInCallback,
    CardRefused,
    GroupClosed,
    RankLost,
    RankRefused,
    RanksDiffer,
    RanksMissing,
    RankTimeout,
    SizeRefused,
    VersionRefused,
)
from ictp2p.torch_backend.group import ProcessGroup, create
from ictp2p.torch_backend.options import Options

__all__ = [
    "NAME",
    "CalledInCallback",
    "CardRefused",
    "GroupClosed",
    "Options",
    "ProcessGroup",
    "RankLost",
    "RankRefused",
    "RankTimeout",
    "RanksDiffer",
    "RanksMissing",
    "SizeRefused",
    "VersionRefused",
]

NAME = "ictp2p"
"""What `init_process_group` calls this backend."""

dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
