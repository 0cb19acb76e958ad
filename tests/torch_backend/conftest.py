"""Groups whose ranks are threads of this process: real sockets, keys and seals, without the price of processes.

And one start of four processes for all tests that need as many.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import pytest
import torch.distributed as dist
from torch.distributed import TCPStore

from ictp2p.torch_backend import Options, ProcessGroup
from tests.torch_backend import ranks

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


@pytest.fixture(scope="session")
def four_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of four processes found; see `four_ranks.run`."""
    from tests.torch_backend import four_ranks
    from tests.torch_backend.test_examples import RUNS

    folder = tmp_path_factory.mktemp("four_ranks")
    stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in RUNS]
    ports = [store.port for store in stores]
    return ranks.run(four_ranks.run, 4, folder, place=str(folder / "checkpoint"), ports=ports)


def _caught(act: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(given: Any) -> Any:
        try:
            return act(given)
        except Exception as error:
            return error

    return run
