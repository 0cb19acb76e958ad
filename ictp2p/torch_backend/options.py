"""What can be chosen about a process group, and where it listens if nobody chose.

The host must be an address under which the other ranks reach this one. It is not the host's own resolved name, which is
wrong on half of all machines. Where torchrun or the user named a master, the right interface is the one from which the
master is reached: the kernel knows it (connecting a UDP socket sends nothing and asks the routing table).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from ictp2p.errors import ConfigError

_ANYWHERE = "192.0.2.1"
"""An address of documentation (RFC 5737): the way to it is the default route."""


@dataclass(frozen=True, slots=True)
class Options:
    """Give it as `pg_options` to `init_process_group` or `new_group`; the environment fills in what is left out."""

    host: str | None = None
    """Numeric address of this rank's interface. `ICTP2P_HOST`; by default the one that leads to the master."""
    sealed: bool = True
    """AES-128-GCM on all bytes; `ICTP2P_SEALED=0` for a network of your own. All ranks must say the same."""
    stall: float = 30.0
    """Seconds of silence after which a rank counts as lost, never more than the group's timeout. A killed process is
    noticed at once; this is for one that was stopped, or a network that swallows everything. A rank that computes, or
    waits for others, is not silent, unless one call into C holds the interpreter's lock for that long."""
    token: str | None = None
    """A secret that all ranks know, `ICTP2P_TOKEN`: then even who can write to the store cannot take part or listen."""

    @classmethod
    def of(cls, given: object, environment: Mapping[str, str] = os.environ) -> Options:
        """Complete what a caller gave with the environment.

        Raises:
            ConfigError: it is not an `Options`.
        """
        if given is not None and not isinstance(given, cls):
            raise ConfigError(f"pg_options of an ictp2p group is an ictp2p.torch_backend.Options, not {given!r}")
        chosen = given or cls()
        return cls(
            host=chosen.host or environment.get("ICTP2P_HOST") or _interface(environment.get("MASTER_ADDR")),
            sealed=chosen.sealed and environment.get("ICTP2P_SEALED", "1") != "0",
            stall=chosen.stall,
            token=chosen.token or environment.get("ICTP2P_TOKEN") or None,
        )


def _interface(master: str | None) -> str:
    for target in filter(None, (master, _ANYWHERE)):
        with contextlib.suppress(OSError, UnicodeError):
            family, kind, _, _, where = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as asking:
                asking.connect(where)
                return str(asking.getsockname()[0])
    return "127.0.0.1"
