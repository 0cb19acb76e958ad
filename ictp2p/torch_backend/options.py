"""What can be chosen about a process group, and where it listens if nobody chose.

The host must be an address under which the other ranks reach this one. It is not the host's own resolved name, which is
wrong on half of all machines. Where the ranks meet at a server of torch's, whether torchrun or an `init_method` named
it, or else at a master that the environment names, the right interface is the one from which that is reached: the
kernel knows it (connecting a UDP socket sends nothing and asks the routing table).
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch._C._distributed_c10d as _c10d

from ictp2p.config.checks import checked, parameter, secret, truth, validate
from ictp2p.errors import ConfigError

_ANYWHERE = "192.0.2.1"
"""An address of documentation (RFC 5737): the way to it is the default route."""


_STALL = 0.1


def _host(value: str | None) -> None:
    """Check a numeric address at which others can reach this machine."""
    if value is None:
        return
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        raise ConfigError(f"{value!r} is not valid: it must be a numeric address of this machine") from None
    if address.is_unspecified:
        raise ConfigError(f"{value!r} is not valid: others cannot dial it")


def _silence(value: float) -> None:
    """Check a duration that even a rank in good health is silent for at times."""
    if not _STALL <= value < math.inf:
        raise ConfigError(f"{value!r} is not valid: it must be at least {_STALL:g} s, and finite")


def _secret(value: str | None) -> None:
    if value is not None:
        secret(value)


@dataclass(frozen=True, slots=True)
class Options:
    """Give it as `pg_options` to `init_process_group` or `new_group`, or to a device mesh, as the second of a pair.

    The environment fills in what is left out.

    Raises:
        ConfigError: a value cannot be; the message names it.
    """

    host: str | None = parameter("", "where others reach this rank", _host, default=None)
    """Numeric address of this rank's interface. `ICTP2P_HOST`; by default the one that leads to the master."""
    sealed: bool = parameter("", "whether bytes are encrypted", default=True)
    """AES-128 on all bytes, as GCM or OCB; `ICTP2P_SEALED=0` for a network of your own. All ranks must say the same."""
    stall: float = parameter("s", "of silence after which a rank counts as lost", _silence, default=30.0)
    """Seconds of silence after which a rank counts as lost, never more than the group's timeout. A killed process is
    noticed at once; this is for one that was stopped, or a network that swallows everything. A rank that computes, or
    waits for others, is not silent, unless one call into C holds the interpreter's lock for that long."""
    token: str | None = parameter("", "a secret that all ranks know", _secret, default=None, repr=False)
    """A secret that all ranks know, `ICTP2P_TOKEN`: then even who can write to the store cannot take part or listen."""
    share_memory: bool = parameter("", "whether ranks on one host share memory", default=True)
    """Bytes for ranks of the same user on the same host go through memory that both have mapped, in clear, instead of
    loopback; `ICTP2P_SHARE_MEMORY=0` for none."""

    def __post_init__(self) -> None:
        validate(self)

    @property
    def _timeout(self) -> None:
        """What a device mesh reads of any backend's options, to give it to the group beside them. None: torch's own."""

    @classmethod
    def of(cls, given: object, environment: Mapping[str, str] = os.environ, store: object = None) -> Options:
        """Complete what a caller gave with the environment, and with where the `store` is at which the ranks meet.

        Raises:
            ConfigError: it is not an `Options`, or a variable has a value that cannot be.
        """
        if given is not None and not isinstance(given, cls):
            raise ConfigError(f"pg_options of an ictp2p group is an ictp2p.torch_backend.Options, not {given!r}")
        chosen = given or cls()
        master = server_of(store) or environment.get("MASTER_ADDR")
        return cls(
            host=chosen.host or _told(environment, "host") or _interface(master),
            sealed=chosen.sealed and _allowed(environment, "ICTP2P_SEALED"),
            share_memory=chosen.share_memory and _allowed(environment, "ICTP2P_SHARE_MEMORY"),
            stall=chosen.stall,
            token=chosen.token or _told(environment, "token"),
        )


def server_of(store: object) -> str | None:
    """Name the host of a store of torch's that is on one, whatever it is wrapped in."""
    while isinstance(store, _c10d.PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, _c10d.TCPStore) else None


def _told(environment: Mapping[str, str], name: str) -> str | None:
    """What the environment says of a field; None if nothing."""
    variable = f"ICTP2P_{name.upper()}"
    (field,) = (f for f in fields(Options) if f.name == name)
    told: str | None = checked(Options, field, environment.get(variable) or None, variable)
    return told


def _allowed(environment: Mapping[str, str], variable: str) -> bool:
    try:
        return truth(environment.get(variable) or "1")
    except ConfigError as error:
        raise ConfigError(f"{variable}: {error}") from error


def _interface(master: str | None) -> str:
    for target in filter(None, (master, _ANYWHERE)):
        with contextlib.suppress(OSError, UnicodeError):
            family, kind, _, _, where = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as asking:
                asking.connect(where)
                return str(asking.getsockname()[0])
    return "127.0.0.1"
