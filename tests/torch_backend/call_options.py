"""The options of torch's calls, as tests give them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist


def sums(op: Any = dist.ReduceOp.SUM, seconds: float | None = None) -> Any:
    options = dist.distributed_c10d.AllreduceOptions()
    options.reduceOp = op
    if seconds is not None:
        options.timeout = timedelta(seconds=seconds)
    return options


def rooted(kind: str, root: int) -> Any:
    options = getattr(dist.distributed_c10d, kind)()
    options.rootRank = root
    return options
