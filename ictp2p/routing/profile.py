"""How patient a routing machine is.

Babel leaves its timers to the implementer (RFC 8966, appendix B, tells what each costs). Ours differ from its
wireless defaults for one reason: neighbours here speak over TCP, so a message is lost only together with its
connection, whose end is an input of its own, or because its writer dropped it, which the numbers of the updates
show. So a neighbour is told everything once, when it becomes one, and then only what changes; the periodic update
tells the changes that were too small to be told at once, and that nothing was missed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ictp2p.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RoutingProfile:
    """Timers and thresholds of `Babel`. The defaults suit clusters that are continents apart."""

    update_interval: float = 16.0
    """Seconds between two updates to a neighbour (RFC 8966 §3.7.1: 16 s), empty if nothing changed. Jittered down by
    up to a quarter, never up. Lower repairs a dropped message sooner and costs a few bytes per neighbour each time."""

    hold_factor: float = 3.5
    """Updates that a neighbour may miss, in intervals, before what it taught is forgotten (RFC 8966, appendix B)."""

    trigger_delay: float = 0.2
    """Longest wait in seconds before a route that was found, or changed for good, is told (RFC 8966 §3.7.2). The
    wait gathers many changes in one message; a lost route is told at once, without it."""

    trigger_most: float = 2.0
    """Longest such wait in seconds while each message is followed by more changes: the wait doubles up to this. Higher
    costs less where a large mesh comes up or many links are measured anew, and finds its best routes later."""

    retries: tuple[float, ...] = (1.0, 2.0, 4.0)
    """Seconds between repeats of a sequence number request (RFC 8966 §3.8.2.1 asks for repeats: without them a
    fifth of single failures can starve). After the last one it is repeated at `update_interval` while needed."""

    settle: float = 4.0
    """Seconds for which a slightly better route must stay better before it is taken. A far better one, a lost
    route and a first route never wait. Raise it where measured delays breathe; the price is a slower optimum."""

    significance: float = 0.25
    """Relative change of a metric that is worth a triggered update, or an immediate switch. Smaller changes wait
    for the next periodic update, so that jitter of a few milliseconds does not ripple through the mesh."""

    source_lifetime: float = 180.0
    """Seconds for which a feasibility distance is kept after the route was taken back (RFC 8966 §3.7.3: 3 minutes).
    Safe only while longer than any neighbour can still hold the advertisement."""

    hop_limit: int = 64
    """Hops that a sequence number request may travel (RFC 8966 §3.8.2.1): at least the mesh's diameter."""

    fanout: int = 3
    """Neighbours asked by the first request for a route; the repeats ask everyone who offers one."""

    classes: int = 11
    """Bandwidth classes, from 2 Mb/s doubling (11 reach 2 Gb/s). Each is one instance of the protocol."""

    max_destinations: int = 1024
    """Destinations that are remembered; further ones are ignored, so that a broken neighbour cannot fill memory."""

    def __post_init__(self) -> None:
        for name in ("update_interval", "hold_factor", "trigger_delay", "settle", "source_lifetime"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"routing.{name} is {getattr(self, name)!r}: it must be a positive number")
        if not self.trigger_delay <= self.trigger_most < float("inf"):
            raise ConfigError(
                f"routing.trigger_most is {self.trigger_most!r}: it must be finite, and no less than the trigger_delay "
                f"of {self.trigger_delay} s"
            )
        for name in ("hop_limit", "fanout", "classes", "max_destinations"):
            if getattr(self, name) < 1:
                raise ConfigError(f"routing.{name} is {getattr(self, name)!r}: it must be at least 1")
        if not self.retries or min(self.retries) <= 0:
            raise ConfigError(f"routing.retries is {self.retries!r}: it needs at least one positive delay")
        if not 0 <= self.significance < 1:
            raise ConfigError(f"routing.significance is {self.significance!r}: it must be in [0, 1)")
        if self.hop_limit > 255 or self.classes > 32:
            raise ConfigError(
                f"routing.hop_limit {self.hop_limit} is over 255 or routing.classes {self.classes} over 32"
            )
        if self.source_lifetime < 2 * self.hold:
            raise ConfigError(
                f"routing.source_lifetime is {self.source_lifetime!r}: it must be at least twice the hold time "
                f"of {self.hold} s, or a forgotten distance could let a loop form"
            )

    @property
    def hold(self) -> float:
        """Seconds after a neighbour's last update at which its routes expire."""
        return self.hold_factor * self.update_interval

    def repeat_after(self, asked: int) -> float:
        """Seconds to wait after the `asked`-th request, counted from one, before the next."""
        return self.retries[asked - 1] if asked <= len(self.retries) else self.update_interval

    @classmethod
    def local(cls) -> RoutingProfile:
        """Processes of one machine: round trips below a millisecond."""
        return cls(update_interval=8.0, trigger_delay=0.02, trigger_most=0.2, retries=(0.1, 0.5, 1.0, 4.0), settle=0.5)

    @classmethod
    def lan(cls) -> RoutingProfile:
        """One site."""
        return cls(trigger_delay=0.05, trigger_most=0.5, retries=(0.25, 1.0, 2.0, 4.0), settle=2.0)

    @classmethod
    def wan(cls) -> RoutingProfile:
        """Sites that are tens or hundreds of milliseconds apart: the defaults."""
        return cls()
