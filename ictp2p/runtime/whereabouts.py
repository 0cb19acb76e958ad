"""Where others can dial a peer: as people said, else where it listens, else as its own connections show.

Who listens at all interfaces knows of none which others reach. But each connection has an address of ours at this end,
and the first of them that is reachable from beyond this machine is the one that is told, until the machine has it no
more: a lease may end, or a laptop wake up in another network, and the mesh runs on. An IPv6 address is never told by
who listens at 0.0.0.0: there others would be refused, and take that for a death. Who cannot be dialed from outside
says so (`advertise`), and tells where it listens to the workers of its own cluster alone: they are behind the same
NAT, as a rule, and have to find each other again when they have lost each other.

Where people say that others dial a peer is often no address of its machine, but that of a NAT which forwards a port. So
it is none to listen at: the group inside a cluster meets at the machine's own (`interface`).
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable

from ictp2p.config import Config
from ictp2p.edge.network import is_local, is_ours
from ictp2p.types import WILDCARDS, Address


class Whereabouts:
    """Those of one peer.

    Args:
        config: says where it can be dialed, if people know.
        listening: where it listens.
        warn: told, once, that connections show nothing that others could dial.
        ours: whether this machine still has an address.
    """

    def __init__(
        self, config: Config, listening: Address, warn: Callable[[str], None], ours: Callable[[str], bool] = is_ours
    ) -> None:
        self.listening = listening
        self._warn = warn
        self._warned = False
        self._abroad = False
        """Whether a connection led beyond this machine from an address of it that others cannot dial."""
        self._ours = ours
        self.hidden = config.advertise == "none"
        """Whether that is for our cluster mates alone."""
        told = "" if self.hidden else config.advertise
        self.known = told or ("" if listening.host in WILDCARDS else str(listening))
        """Where others can dial us as it is known before there is any connection; empty if it is not."""
        self._everywhere = listening.host in WILDCARDS
        given = Address.parse(told).host if told else ""
        self.interface = given if _is_numeric(given) and ours(given) else listening.host
        """The address of this machine where the workers of our cluster meet; a wildcard until there is a connection."""

    def shown(self, believed: Address | None, host: str) -> Address | None:
        """Learn of a connection; give what to tell the others from now on, if that is not what they `believed`.

        One that only this machine can dial will do until there is another.
        """
        if self._everywhere and (self.interface in WILDCARDS or self._is_better(host, self.interface)):
            self.interface = host
        if self.known:
            return None
        if not self._is_served(host):
            self._lament(believed, host)
            return None
        useless = self._abroad and is_local(host)
        if useless or (believed is not None and not self._is_better(host, believed.host)):
            return None
        return Address(host, self.listening.port)

    def _is_served(self, host: str) -> bool:
        """Whether who dials us there finds us, who listen everywhere: for both families at ::, else for IPv4."""
        return self.listening.host != "0.0.0.0" or ":" not in host

    def _lament(self, believed: Address | None, host: str) -> None:
        self._abroad |= not is_local(host)
        if believed is None and not self._warned:
            self._warned = True
            self._warn(
                f"nobody can dial this peer as yet: it reaches others from {host}, but listen = {self.listening} takes "
                f"IPv4 alone; listen at [::]:{self.listening.port}, or say with advertise where others dial it"
            )

    def _is_better(self, host: str, known: str) -> bool:
        if host == known or is_local(host):
            return False
        gains = self._is_served(host) and not self._is_served(known)  # where our mates dial us they can meet, too
        return gains or is_local(known) or not self._ours(known)


def _is_numeric(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return False
