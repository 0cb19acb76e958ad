"""The numbers of the membership protocol, for three kinds of network.

The LAN set is hashicorp/memberlist's `DefaultLANConfig`. Its WAN set takes 40 to 80 s until everybody knows of a crash;
ours halves that by probing faster, which a persistent connection makes cheap, and adapts the probe timeout to the
round trips measured under load instead of allowing for the worst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from ictp2p.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SwimProfile:
    """Timing and fan-out of one membership group. Every member of a group should use the same."""

    probe_interval: float
    """Seconds between probes. Detection time grows with it; traffic and false alarms shrink."""
    probe_timeout: float
    """Seconds until helpers are asked: the floor; a measured round trip can raise it to srtt + 4 rttvar."""
    suspicion_mult: float
    """Shortest suspicion = this * max(1, log10(members)) * probe_interval. Raise it for longer pauses to be excused."""
    suspicion_max_mult: float
    """Longest suspicion (nobody confirms) = this * the shortest."""
    confirmations: int
    """Independent accusers, beside the first, that bring a suspicion down to its shortest."""
    gossip_interval: float
    """Seconds between gossips while there is news; without news there are none."""
    gossip_fanout: int
    """Members told per gossip."""
    push_pull_interval: float
    """Seconds between exchanges of digests with one random member (and one random dead one)."""
    helpers: int = 3
    """Members asked to probe a silent one on our behalf."""
    retransmit_mult: int = 4
    """Each piece of news is sent this * ceil(log10(members + 1)) times by each member."""
    health_limit: int = 8
    """The probe interval grows at most this many times while this process shows signs of being the sick one."""
    gossip_to_dead: float = 30.0
    """Seconds for which the dead are still told the news, so that a wrongly buried member can refute."""
    forget_after: float = 3600.0
    """Seconds after which the dead and the departed are forgotten."""
    most_absent: int = 1024
    """The dead and the departed that are remembered at most, the newest. Workers without a disk that are started again
    and again are others each time, and a digest that named thousands would be refused (`messages.MAX_MEMBERS`)."""
    packet_bytes: int = 32 * 1024
    """Most bytes of news on one message."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("confirmations", "helpers") else 1 if isinstance(value, int) else 1e-6
            if not math.isfinite(value) or value < least:
                raise ConfigError(f"membership profile: {field.name} = {value!r} is not valid: need at least {least}")
        if self.suspicion_max_mult < 1:
            raise ConfigError(f"membership profile: suspicion_max_mult = {self.suspicion_max_mult!r} is below 1")

    @classmethod
    def local(cls, **overrides: Any) -> SwimProfile:
        """Processes of one machine: a crash is known within about a second."""
        return cls(**{**_LOCAL, **overrides})

    @classmethod
    def lan(cls, **overrides: Any) -> SwimProfile:
        """Machines of one data centre: known within 6 to 12 s, of 4 to 64 members."""
        return cls(**{**_LAN, **overrides})

    @classmethod
    def wan(cls, **overrides: Any) -> SwimProfile:
        """Clusters across the world, whose up-links our own transfers saturate: known within 11 to 23 s."""
        return cls(**{**_WAN, **overrides})


_LOCAL: dict[str, Any] = {
    # A crash shows at once, as a connection that is reset and a redial that is refused, and `broken` brings that down
    # to the shortest suspicion. Probes are for what is silent, and on a machine that many training processes share,
    # half a second of silence is ordinary.
    "probe_interval": 1.0,
    "probe_timeout": 0.7,
    "suspicion_mult": 0.6,
    "suspicion_max_mult": 5.0,
    "confirmations": 1,
    "gossip_interval": 0.05,
    "gossip_fanout": 3,
    "push_pull_interval": 5.0,
}
_LAN: dict[str, Any] = {
    "probe_interval": 1.0,
    "probe_timeout": 0.5,
    "suspicion_mult": 4.0,
    "suspicion_max_mult": 6.0,
    "confirmations": 2,
    "gossip_interval": 0.2,
    "gossip_fanout": 3,
    "push_pull_interval": 30.0,
}
_WAN: dict[str, Any] = {
    "probe_interval": 2.0,
    "probe_timeout": 1.0,
    "suspicion_mult": 4.0,
    "suspicion_max_mult": 4.0,
    "confirmations": 2,
    "gossip_interval": 0.5,
    "gossip_fanout": 3,
    "push_pull_interval": 20.0,
}
