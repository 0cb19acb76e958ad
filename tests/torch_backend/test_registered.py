"""What torch asks of a group that it has made by name, beside collectives: one rank, in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from ictp2p.errors import ConfigError
from ictp2p.torch_backend import Options, ProcessGroup

_c10d: Any = dist.distributed_c10d
LOCAL = Options(host="127.0.0.1")


@contextlib.contextmanager
def world(backend: str = "ictp2p", **given: Any) -> Iterator[ProcessGroup]:
    """Torch's default group, of one rank."""
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, pg_options=LOCAL, **given)
    try:
        group = dist.group.WORLD
        assert isinstance(group, ProcessGroup)
        yield group
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("key", ["a", 0])
def test_a_device_mesh_may_give_options_for_one_dimension(key: str | int) -> None:
    """Regression: torch reads a timeout from any options."""
    override: Any = {key: ("ictp2p", Options(host="127.0.0.1", stall=7.0))}
    with world() as default:
        group = init_device_mesh("cpu", (1,), mesh_dim_names=("a",), backend_override=override).get_group("a")
        assert isinstance(group, ProcessGroup)
        assert group is not default
        assert (group._chosen.stall, group._timeout) == (7.0, _c10d.default_pg_timeout)
        dist.all_reduce(mine := torch.ones(3), group=group)
        assert mine.tolist() == [1.0] * 3


def test_torch_finds_the_group_itself_behind_it_for_every_device_and_none_of_the_extras(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: whatever asked failed, `init_process_group` with a device of its own too."""
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr("torch.accelerator.device_count", lambda: 1)
    with world(device_id=torch.device("cuda:0")) as group:
        monkeypatch.undo()
        for device in map(torch.device, ("cpu", "cuda")):
            backend = group._get_backend(device)
            assert backend is group
            assert (backend.name(), backend.options) == ("ictp2p", LOCAL)
            assert not backend.supports_tensor_alloc(device)
            for extra in ("splitting", "coalescing", "time_estimate", "shrinking"):
                assert getattr(backend, f"supports_{extra}") is False
        assert _c10d._get_process_group_uid(group) == -1
        with pytest.raises(RuntimeError, match="split"):
            dist.split_group(group, [[0]])
        if hasattr(dist, "set_timeout"):  # since torch 2.14, for every backend
            dist.set_timeout(timedelta(seconds=5), group)
            assert group._timeout == timedelta(seconds=5)
        else:
            with pytest.warns(UserWarning, match="only supported for either nccl or gloo"):
                _c10d._set_pg_timeout(timedelta(seconds=5), group)
        group.allreduce([mine := torch.ones(3)]).wait()
        assert mine.tolist() == [1.0] * 3


@pytest.mark.parametrize("backend", ["cpu:ictp2p,cuda:gloo", "cpu:gloo,cuda:ictp2p"])
def test_another_backend_beside_this_one_is_refused_by_the_first_call_and_every_other(backend: str) -> None:
    """Regression: torch drops it without a word, and all went over this one."""
    with world(backend) as group:
        mine = torch.ones(3)
        calls = [group.barrier, group.barrier, lambda: dist.all_reduce(mine), lambda: group.send([mine], 0, 0)]
        for call in calls:
            with pytest.raises(ConfigError, match=f"backend '{backend}' is not possible"):
                call()


@pytest.mark.parametrize("backend", ["ictp2p", "cpu:ictp2p", "cpu:ictp2p,cuda:ictp2p", "cuda:ictp2p,cpu:ictp2p"])
def test_one_backend_for_all_devices_may_be_named_in_any_way(backend: str) -> None:
    with world(backend):
        dist.all_reduce(mine := torch.ones(3))
        assert mine.tolist() == [1.0] * 3
