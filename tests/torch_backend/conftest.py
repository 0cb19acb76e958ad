"""Groups whose ranks are threads of this process: real sockets, keys and seals, without the price of processes.

And one start of four processes for all tests that need as many.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from ictp2p.torch_backend import Options, ProcessGroup

T = TypeVar("T")
SECONDS = 20.0


def together(
    size: int,
    act: Callable[[ProcessGroup, int], T],
    *,
    seconds: float = SECONDS,
    options: Callable[[int], Options] = lambda rank: Options(host="127.0.0.1"),
) -> list[T | Exception]:
    """Form a group, run `act(group, rank)` on each rank, end the group when all have; what each returned or raised."""
    store = dist.HashStore()

    def form(rank: int) -> ProcessGroup:
        return ProcessGroup(store, rank, size, timedelta(seconds=seconds), options(rank))

    with ThreadPoolExecutor(size) as ranks:
        groups = list(ranks.map(_caught(form), range(size)))
        try:
            return list(ranks.map(_caught(lambda pair: act(*pair)), zip(groups, range(size), strict=True)))
        finally:
            list(ranks.map(lambda group: group.shutdown() if isinstance(group, ProcessGroup) else None, groups))


def formed(size: int, *, seconds: float = SECONDS, options: Callable[[int], Options]) -> list[Any]:
    """What comes of forming a group whose ranks are given different options."""
    store = dist.HashStore()

    def form(rank: int) -> str:
        ProcessGroup(store, rank, size, timedelta(seconds=seconds), options(rank)).shutdown()
        return "formed"

    with ThreadPoolExecutor(size) as ranks:
        return list(ranks.map(_caught(form), range(size)))


def _caught(act: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(given: Any) -> Any:
        try:
            return act(given)
        except Exception as error:
            return error

    return run
