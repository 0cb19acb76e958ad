"""The nouns that every floor shares: who, where, which.

Identifiers are plain strings so that they travel, sort and print as themselves; `NewType` keeps the type
checker from mixing them up. Everything here is immutable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, NewType, TypeAlias

import msgspec

from ictp2p.errors import ConfigError, shown

PeerId = NewType("PeerId", str)
"""32 hex digits: BLAKE2b-128 of the peer's Ed25519 public key (see `identity`)."""

ClusterId = NewType("ClusterId", str)
"""A cluster's name, as its workers' configuration gives it: `[a-z0-9]` then up to 62 of `[a-z0-9._-]`."""

Direction: TypeAlias = Literal["out", "in"]
"""Of bytes, as the end that speaks of them sees them."""

_PEER, _CLUSTER = r"[0-9a-f]{32}", r"[a-z0-9][a-z0-9._-]{0,62}"
_CLUSTER_NAME = re.compile(_CLUSTER)

PeerName: TypeAlias = Annotated[PeerId, msgspec.Meta(pattern=rf"^{_PEER}\Z")]
"""A peer as it is named on the wire. Decisions are about peers and clusters, and who cannot read one is stuck: so what
no peer or cluster is called is refused wherever it comes in."""
ClusterName: TypeAlias = Annotated[ClusterId, msgspec.Meta(pattern=rf"^{_CLUSTER}\Z")]
"""A cluster as it is named on the wire."""
PeerOrNone: TypeAlias = Annotated[PeerId, msgspec.Meta(pattern=rf"^({_PEER})?\Z")]
"""The same, or empty for nobody."""
ClusterOrNone: TypeAlias = Annotated[ClusterId, msgspec.Meta(pattern=rf"^({_CLUSTER})?\Z")]
"""The same, or empty for none."""


def cluster_id(name: str) -> ClusterId:
    """Check a cluster's name.

    Raises:
        ConfigError: the name is empty, too long, or holds a character that cannot stand in a name.
    """
    if not isinstance(name, str) or not _CLUSTER_NAME.fullmatch(name):
        raise ConfigError(
            f"cluster name {shown(name)} is not valid: use 1 to 63 lower-case letters, digits, '.', '_' or '-', "
            "beginning with a letter or digit"
        )
    return ClusterId(name)


WILDCARDS = ("0.0.0.0", "::")
"""Hosts that stand for all addresses of a machine: one may listen there, and nobody can dial them."""


class Address(NamedTuple):
    """A TCP endpoint as a connection shows it. IPv6 hosts are kept without brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `host:port` or `[v6]:port`.

        Raises:
            ConfigError: there is no port, it is not in 0..65535, or the host is empty; or it is several addresses.
        """
        if "," in text:
            raise ConfigError(f"address {text!r} is not valid: it is a list, so give each address by itself")
        host, separator, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif text.endswith("]"):
            raise ConfigError(f"address {text!r} is not valid: its port is missing, as in [::1]:7000")
        elif ":" in host and "/" not in host:  # a URL has no IPv6 host before its last colon
            raise ConfigError(f"address {text!r} is not valid: write an IPv6 host in brackets, as in [::1]:7000")
        if not separator or not host or any(c.isspace() or c == "/" for c in host):
            raise ConfigError(f"address {text!r} is not valid: expected host:port, as in 192.0.2.7:7000")
        if not (port.isascii() and port.isdigit() and len(port) <= 5) or int(port) > 65535:
            raise ConfigError(f"address {text!r} is not valid: port {port!r} is not a number from 0 to 65535")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def shown_address(name: object) -> Address:
    """Read `getsockname()` or `getpeername()`. An IPv4 peer of a dual-stack socket is shown as IPv4."""
    match name:
        case (str(host), int(port), *_):
            return Address(host.removeprefix("::ffff:") if "." in host else host, port)
        case _:
            return Address("unknown", 0)  # the peer was gone before anybody could ask


@dataclass(frozen=True, slots=True)
class Transfer:
    """What the receiver of some bytes has measured of them."""

    direction: Direction
    size: int
    """Bytes."""
    seconds: float
    """In which they came."""
    limited: bool
    """Whether the link can do more than this shows: the sender waited for its application, a pace, or the receiver."""
    ended: float
    """When something was last heard of it, seconds of the monotonic clock: it may have broken off long ago."""
    probe: bool = False
    """Whether it was one, of either side, and so had the lines at both ends for itself."""
