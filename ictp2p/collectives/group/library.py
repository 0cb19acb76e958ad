"""The vendors' collective libraries, by the names under which torch registers them: NCCL, XCCL, HCCL and what comes.

All that differs between them is how a worker describes its device and how the communicator is made; their operations
and `abort` are those of torch's `Backend`, Gloo's too, so deadlines, aborts and burial are the same code for all
(`local`) and are tested through Gloo. A library that is not built into torch registers itself as a plug-in of
`torch.distributed` when its package is imported (`torch_npu` for HCCL), and is made by the function that it registered.

NCCL's own answer to a fault is to end the process: a watchdog thread of torch tears it down when an operation failed or
timed out, since a training with fixed ranks could not go on anyway. Here it can. So while the communicator is made, the
environment says that the watchdog is to report and do nothing else (it is read then and only then, and put back, for
the user's own groups), and the communicator is made non-blocking, without which aborting one whose peer never came
waits for that peer.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed
import torch.distributed.distributed_c10d

from ictp2p.errors import LocalGroupError
from ictp2p.sync.rosters.devices import GLOO, HOST, Device

_c10d: Any = torch.distributed.distributed_c10d
"""Untyped: torch's stubs lack the operations of a group that is built directly."""

_WATCHDOG = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # report errors, do not end the process
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",  # and do not ask the store every second whether another rank timed out
}
_environment = threading.Lock()


def describe(device: torch.device) -> Device:
    """What this worker says of the device that it computes on."""
    if device.type == "cpu":
        return HOST
    library = torch.distributed.Backend.default_device_backend_map.get(device.type, GLOO)
    if library == GLOO or not _registered(library):
        return Device(device.type)
    module = torch.get_device_module(device)
    index = device.index if device.index is not None else module.current_device()
    facts = module.get_device_properties(index)
    unit = f"{_machine()}/{getattr(facts, 'uuid', '') or index}"
    release = _nccl_release() if library == "nccl" else ""
    return Device(device.type, unit[:128], str(getattr(facts, "name", ""))[:128], library, release)


def connect(library: str, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    """Make one member's end of a communicator; the first operation connects it.

    Args:
        library: torch's name of it.
        store: where the members find each other; to be kept as long as what is returned.
        rank: this member.
        size: how many there are.
        timeout: of an operation that has none of its own.

    Raises:
        LocalGroupError: torch has no such library here.
        RuntimeError: the library failed.
    """
    if not _registered(library):
        raise LocalGroupError(f"torch {torch.__version__} has no collective library {library!r} here")
    makers: dict[str, Callable[..., Any]] = {"nccl": _nccl, "xccl": _xccl}
    make = makers.get(library, functools.partial(_plugin, library))
    return make(_c10d.PrefixStore(f"{library}/", store), rank, size, timeout)


def _registered(library: str) -> bool:
    built_in: dict[str, Callable[[], bool]] = {
        "nccl": torch.distributed.is_nccl_available,
        "xccl": torch.distributed.is_xccl_available,
    }
    if library in built_in:
        return built_in[library]()
    return library.upper() in torch.distributed.Backend._plugins


def _nccl(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    options = _c10d.ProcessGroupNCCL.Options()
    options.config.blocking = 0
    options._timeout = timeout
    with _environment, _set(_WATCHDOG):
        # How long a non-blocking call may take; torch reads it once per process, and waits half an hour by default.
        os.environ.setdefault("TORCH_NCCL_NONBLOCKING_TIMEOUT", str(max(1, int(timeout.total_seconds()))))
        return _c10d.ProcessGroupNCCL(store, rank, size, options)


def _xccl(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    options = _c10d.ProcessGroupXCCL.Options()
    options._timeout = timeout
    return _c10d.ProcessGroupXCCL(store, rank, size, options)


def _nccl_release() -> str:
    nccl: Any = torch.cuda.nccl
    version: tuple[int, ...] = nccl.version()
    return ".".join(map(str, version))


def _plugin(library: str, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    plugin = torch.distributed.Backend._plugins[library.upper()]
    if not plugin.extended_api:
        return plugin.creator_fn(store, rank, size, timeout)
    options = _c10d._DistributedBackendOptions()
    options.store, options.group_rank, options.group_size, options.timeout = store, rank, size, timeout
    options.group_id, options.global_ranks_in_group = f"ictp2p {library}", list(range(size))
    return plugin.creator_fn(options, None)


@contextlib.contextmanager
def _set(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _machine() -> str:
    """What is the same for two processes exactly if they run on one machine, also in two containers of it."""
    with contextlib.suppress(OSError):
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return os.uname().nodename
