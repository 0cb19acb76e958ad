"""The configuration itself, and what each kind of network begins with."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from ictp2p import torchrun
from ictp2p.config.checks import (
    address,
    addresses,
    advertised,
    at_least_two,
    checked,
    duration,
    folder,
    isolated,
    order,
    parameter,
    patience,
    profile,
    rate,
    room,
    secret,
    unknown,
    validate,
)
from ictp2p.errors import ConfigError
from ictp2p.types import Address, ClusterId, cluster_id

_LISTEN = "[::]:7450"
"""Every address of the machine, of both families if it has both; see `TcpNetwork.serve`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long to wait, on one of the two networks."""

    connect: float = parameter(
        "s",
        "to dial a peer, its handshake included; raise it above three round trips",
        duration,
    )
    stall: float = parameter(
        "s",
        "in which a collective or transfer must make progress; a lower value finds a silent peer sooner, "
        "but takes a busy one for dead",
        duration,
    )
    form: float = parameter(
        "s",
        "to wait for the others before a group or a round begins without them",
        duration,
    )
    complete: float = parameter(
        "s",
        "that one collective may take in all; for outer rounds at least 2 x bytes / bandwidth of the slowest cluster",
        duration,
    )

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One worker's configuration. `local`, `lan` and `wan` fill in what a kind of network needs."""

    cluster: str = parameter(
        "",
        "name of the cluster; workers that give the same name train as one; under torchrun its job has one, if none is "
        "given",
        cluster_id,
    )
    token: str = parameter(
        "",
        "the mesh's join token, the same on every peer and known to nobody else; `ictp2p token` draws one",
        secret,
        repr=False,
    )
    listen: str = parameter(
        "host:port",
        "where to listen, for everything; port 0 lets the system choose; [::] is every address of the machine, 0.0.0.0 "
        "its IPv4 ones",
        address,
        default=_LISTEN,
    )
    advertise: str = parameter(
        "host:port",
        "where others can dial this peer; empty: where it listens, as connections show it; `none`: it only dials out",
        advertised,
        default="",
    )
    join: tuple[str, ...] = parameter(
        "host:port, ...", "any peers of the mesh; with none of them, this peer founds a mesh", addresses, default=()
    )
    data_dir: str | None = parameter(
        "path",
        "folder, of this worker alone, for what must survive a crash; without it the peer is a new one after every "
        "start",
        folder,
        default=None,
    )
    rank: int = parameter("", "preference for leadership of the cluster; the lowest leads", order, default=0)
    bulk_rate: float | None = parameter(
        "bytes/s", "limit on tensor bytes sent; not limited if not given", rate, default=None
    )
    room: int = parameter(
        "bytes",
        "memory kept at most for what others contribute to a sum; 32 MiB do unless there are many participants far "
        "apart, whose plans ask for as much as their bandwidth-delay products",
        room,
        default=2**28,
    )
    encrypt: bool = parameter(
        "",
        "seal tensor bytes (AES, 0.2 to 0.4 CPU seconds per GB), the same on all peers; control traffic always is",
        default=True,
    )
    share_memory: bool = parameter(
        "",
        "send tensor bytes to peers of the same user on the same host through memory that both have mapped, in clear, "
        "instead of loopback; 16 MiB for each such peer and direction, 128 MiB at most",
        default=True,
    )
    full_mesh: int = parameter(
        "clusters",
        "up to which every two leaders keep a control connection; in a larger mesh each keeps about 4 + 2 log2 "
        "clusters, and reaches the others over those; higher saves hops and costs connections",
        at_least_two,
        default=32,
    )
    restore_after: float = parameter(
        "s",
        "for which nobody who is alive may hold the agreed state before the mesh goes back to the newest version that "
        "somebody holds; higher loses no work to holders who are only cut off, lower halts the mesh for less long when "
        "they are dead; inf: always wait for a holder",
        patience,
    )
    isolation: str = parameter(
        "",
        "where the peer lives: thread, beside the training loop, or process, a child of its own, which pure Python and "
        "long calls that hold the interpreter lock cannot starve; it costs a copy of what is reduced, and about 250 MB",
        isolated,
        default="thread",
    )
    local_profile: str = parameter("", "kind of network inside the cluster: local, lan or wan", profile)
    global_profile: str = parameter("", "kind of network between clusters: local, lan or wan", profile)
    local_timeouts: Timeouts = parameter("", "inside the cluster")  # noqa: RUF009 -- declares, as field() does
    global_timeouts: Timeouts = parameter("", "between clusters")  # noqa: RUF009

    def __post_init__(self) -> None:
        validate(self)

    @classmethod
    def local(cls, **values: Any) -> Self:
        """Processes of one machine, for demos and tests: faults are noticed within about a second."""
        return cls.made(PRESETS["local"], values)

    @classmethod
    def lan(cls, **values: Any) -> Self:
        """Clusters in one data centre."""
        return cls.made(PRESETS["lan"], values)

    @classmethod
    def wan(cls, **values: Any) -> Self:
        """Clusters across the world, each inside one data centre."""
        return cls.made(PRESETS["wan"], values)

    @classmethod
    def made(cls, *layers: Mapping[str, Any]) -> Self:
        """Lay values by name over each other, the last on top, and check the outcome.

        Raises:
            ConfigError: a name is unknown, a value is not valid, or one without a default is missing.
        """
        values = torchrun.completed(functools.reduce(_merge, layers), os.environ, _LISTEN)
        for f in fields(cls):
            if f.name not in values and f.default is dataclasses.MISSING:
                raise ConfigError(f"parameter {f.name!r} must be given")
        return cls(**values)

    @property
    def cluster_id(self) -> ClusterId:
        """The cluster's checked name."""
        return cluster_id(self.cluster)

    @property
    def listen_address(self) -> Address:
        """`listen`, parsed."""
        return Address.parse(self.listen)

    @property
    def seeds(self) -> tuple[Address, ...]:
        """`join`, parsed."""
        return tuple(Address.parse(text) for text in self.join)


_LOCAL_MACHINE = Timeouts(connect=2.0, stall=3.0, form=15.0, complete=60.0)
_DATA_CENTRE = Timeouts(connect=3.0, stall=10.0, form=30.0, complete=120.0)

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "local": {
        "listen": "127.0.0.1:0",
        "restore_after": 20.0,
        "local_profile": "local",
        "global_profile": "local",
        "local_timeouts": _LOCAL_MACHINE,
        "global_timeouts": _LOCAL_MACHINE,
    },
    "lan": {
        "restore_after": 120.0,
        "local_profile": "lan",
        "global_profile": "lan",
        "local_timeouts": _DATA_CENTRE,
        "global_timeouts": Timeouts(connect=3.0, stall=10.0, form=30.0, complete=600.0),
    },
    "wan": {
        "restore_after": 600.0,
        "local_profile": "lan",
        "global_profile": "wan",
        "local_timeouts": _DATA_CENTRE,
        "global_timeouts": Timeouts(connect=5.0, stall=15.0, form=60.0, complete=3600.0),
    },
}
"""What `Config.local`, `Config.lan` and `Config.wan` begin with."""


def _merge(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `more` over `base`; a mapping given for a set of timeouts replaces only the timeouts that it names."""
    merged = dict(base)
    names = {f.name for f in fields(Config)}
    for name, value in more.items():
        if name not in names:
            raise unknown("parameter", name, names)
        if isinstance(value, Mapping) and isinstance(old := merged.get(name), Timeouts):
            value = _replace(old, name, value)
        merged[name] = value
    return merged


def check_layer(base: Mapping[str, Any], more: Mapping[str, Any]) -> None:
    """Check values by name, which are to be laid over `base`, while it is known where they come from.

    Raises:
        ConfigError: a name is unknown, or a value is not valid.
    """
    merged = _merge(base, more)
    for f in fields(Config):
        if f.name in more:
            checked(Config, f, merged[f.name], f.name)


def _replace(old: Timeouts, name: str, changes: Mapping[str, Any]) -> Timeouts:
    names = {f.name for f in fields(Timeouts)}
    for key in changes:
        if key not in names:
            raise unknown("parameter", key, names, f"{name}.")
    try:
        return dataclasses.replace(old, **changes)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error
