"""Places for connections that have yet to prove who they are, shared fairly among the networks that they come from.

Strangers can take all places there are, and anew as soon as they lose them. So when none is left a newcomer gets one of
whoever has most, if that still has as many as the newcomer's network then: max-min fairness, as among the queues of
fair queueing (Nagle, RFC 970). One host that floods us keeps nobody else out, and many members behind one address get
what they always got. Of a network's connections the oldest goes: an honest handshake takes moments. Who has many
networks has many shares; nothing that costs a newcomer less than it costs us can tell such ones apart.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Places(Generic[T]):
    """So many places.

    Args:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._networks: dict[str, dict[T, None]] = {}
        """Who comes from where, the oldest first."""
        self._from: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._from)

    def enter(self, holder: T, network: str) -> T | None:
        """Let `holder`, who comes from `network`, have a place; give who has to go for it, which may be `holder`."""
        gone = self._to_go(network) if len(self._from) >= self._most else None
        if len(self._from) >= self._most and gone is None:
            return holder
        if gone is not None:
            self.leave(gone)
        self._networks.setdefault(network, {})[holder] = None
        self._from[holder] = network
        return gone

    def leave(self, holder: T) -> None:
        """Have a place back, if `holder` has one."""
        network = self._from.pop(holder, None)
        if network is not None:
            del self._networks[network][holder]
            if not self._networks[network]:
                del self._networks[network]

    def _to_go(self, network: str) -> T | None:
        crowd = max(self._networks.values(), key=len, default={})
        return next(iter(crowd)) if len(crowd) > len(self._networks.get(network, ())) + 1 else None


def network_of(transport: asyncio.BaseTransport) -> str:
    """Say where a connection comes from: its IPv4 address, or the 64 bits of IPv6 that name one network (RFC 4291)."""
    name = transport.get_extra_info("peername")
    try:
        address = ipaddress.ip_address(str(name[0]).partition("%")[0])
    except (TypeError, ValueError, IndexError):
        return "unknown"  # it was gone before anybody could ask, or is no network's
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(getattr(address, "ipv4_mapped", None) or address)
