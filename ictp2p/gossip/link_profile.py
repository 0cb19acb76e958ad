"""How closely links between clusters are watched."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """How closely links are watched."""

    hello_interval: float = 4.0
    """Seconds between Hellos, RFC 8966's value. Halving it doubles a few dozen bytes per neighbour and interval."""

    hold: float = 3.5
    """Hello intervals of silence after which a link counts as lost (RFC 8966, appendix B)."""

    change: float = 0.15
    """Relative change of a median or delay, or absolute change of the loss, that is worth a notice."""

    delay_floor: float = 0.001
    """Seconds by which a delay must change at least to be worth a notice; on a LAN 15 % of it is noise."""

    refresh: float = 60.0
    """Seconds after which a measurement is told again though nothing changed."""

    samples: int = 20
    """Most bandwidth samples in a window."""

    horizon: float = 3600.0
    """Seconds after which a bandwidth sample is forgotten, and a link without a younger one is probed."""

    shift: float = 0.3
    """Relative distance from the median at which two agreeing samples, or a long one, begin a new window."""

    long: float = 5.0
    """Seconds that a full-speed sample must have lasted to begin a new window alone. Lower follows a changed link after
    shorter rounds, and believes shorter disturbances."""

    least_sample: int = 65536
    """Bytes below which a transfer says nothing about bandwidth: it fits into the buffers on the way."""

    opening: float = 8.0
    """Least round trips that a transfer must have lasted to show more than a lower bound: slow start begins at 14 kB,
    so after eight it has sent 3.6 MB. Lower believes small transfers; higher waits for large ones, and for probes."""

    delay_window: float = 600.0
    """Seconds over which the minimum round trip is taken; above it, a changed path is noticed."""

    probe_bytes: int = 8 * 2**20
    """Bytes of one active probe: enough to outlast slow start at 100 ms and 1 Gb/s."""

    probe_share: float = 0.01
    """Bytes that may be probed per byte that rounds moved."""

    probe_credit: int = 96 * 2**20
    """Bytes that may be probed before the first round, and the most that the bucket holds. Each of eight clusters has
    seven links to probe, and those again that show too little: of 56 real links that was two to six. What goes over
    several connections, to see whether they carry more (`bulk.stripes`), is not paid for, and at most as much again:
    it follows a probe that was, with as many bytes, once for each first connection."""

    probe_timeout: float = 30.0
    """Seconds that a probe may take before the next one is wanted."""

    probe_retry: float = 300.0
    """Seconds before a link whose probe brought nothing is probed again."""

    probe_again: float = 60.0
    """Seconds before a link is whose probe left open whether it carries more, as by several connections: that takes
    some seconds more, which the next round may not have left it, or the connection is another one since. It is also
    the pause that doubles with each probe of a link that is doubted."""

    @property
    def probe_sizes(self) -> tuple[int, ...]:
        """Bytes of a probe, and of the shorter ones that follow where one took too long.

        The kernel takes more than a MiB of it at once, which a slow line carries for a minute, before all else. The
        shortest is as long as it must be to show anything: `least_sample` behind what its first frame has.
        """
        least = 3 * self.least_sample
        return self.probe_bytes, max(least, self.probe_bytes // 16), least

    @classmethod
    def local(cls) -> LinkProfile:
        """Several clusters on one machine."""
        return cls(
            hello_interval=0.5, refresh=10.0, long=2.0, probe_bytes=2**20, probe_credit=16 * 2**20, probe_timeout=5.0
        )

    @classmethod
    def lan(cls) -> LinkProfile:
        """Clusters in one data centre."""
        return cls(hello_interval=1.0)

    @classmethod
    def wan(cls) -> LinkProfile:
        """Clusters far apart."""
        return cls()
