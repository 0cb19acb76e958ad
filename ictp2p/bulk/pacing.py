"""Arithmetic of a connection in time: a token bucket, a goodput meter, and a watch for stalls. No clock inside."""

from __future__ import annotations

from dataclasses import dataclass

_OPEN, _LATE = 0.25, 0.625
"""Parts of a probe's time between which its measurement begins."""
_ARRIVALS = 512
"""Most frames of a probe that are remembered: of a longer one, or one cut small, every second is dropped."""
_BUSY_FRAMES = 2
"""Fewest gaps that make a sample."""
FEWEST = _BUSY_FRAMES + 1
"""Frames that have as many gaps."""


class Bucket:
    """Paces a connection at a rate. It may run into debt by one frame, so frames need not be cut to the bucket.

    Args:
        burst: seconds of the rate that may be saved up while idle.
    """

    def __init__(self, burst: float = 0.02) -> None:
        self._burst = burst
        self._rate: float | None = None
        self._tokens = 0.0
        self._filled = 0.0

    def set(self, rate: float | None, now: float) -> None:
        """Pace at `rate` bytes/s from now on, or not at all."""
        self._rate = rate
        self._tokens = 0.0
        self._filled = now

    def delay(self, now: float) -> float:
        """Give the seconds until the next frame may leave: 0 if now."""
        if self._rate is None:
            return 0.0
        self._tokens = min(self._tokens + (now - self._filled) * self._rate, self._burst * self._rate)
        self._filled = now
        return max(0.0, -self._tokens / self._rate)

    def spend(self, size: int) -> None:
        """Note that `size` bytes left."""
        self._tokens -= size


@dataclass(slots=True)
class Meter:
    """Measures goodput at the receiver, over the gaps between frames that were the link's.

    A frame that the sender marks as starved was not yet there to be sent when the one before it had left: the gap
    before it says nothing about the link, and is left out with its frame. What remains is a sample of the link however
    often a collective's windows paused the flow. Only where too few gaps remain is the whole taken, and marked as
    limited by its application: such a sample may only raise an estimate (draft-cheng-iccrg-delivery-rate-estimation).
    """

    size: int = 0
    """Bytes after the first frame."""
    first: float = 0.0
    last: float = 0.0
    frames: int = 0
    busy_size: int = 0
    """Bytes of frames that followed the one before without a pause of the sender."""
    busy_seconds: float = 0.0
    busy_frames: int = 0

    def add(self, size: int, starved: bool, now: float) -> None:
        """Note a whole frame of `size` bytes."""
        if not self.frames:
            self.first = now
        else:
            self.size += size
            if not starved:
                self.busy_size += size
                self.busy_seconds += now - self.last
                self.busy_frames += 1
        self.frames += 1
        self.last = now

    def again(self) -> Meter:
        """Give a meter that goes on after the last frame of this one."""
        return Meter(first=self.last, last=self.last, frames=min(self.frames, 1))

    def sample(self) -> tuple[int, float, bool] | None:
        """Give (bytes, seconds, app-limited), or None if there were too few frames to tell."""
        if self.busy_frames >= _BUSY_FRAMES and self.busy_seconds > 0:
            return self.busy_size, self.busy_seconds, False
        seconds = self.last - self.first
        return (self.size, seconds, True) if self.frames > _BUSY_FRAMES and seconds > 0 else None


class Blast:
    """Measures a probe at its receiver: what the line carried once the sender's window had opened.

    The whole of a probe is too little, since slow start (RFC 5681) is a part of it. From a moment in its middle on it
    may be too much: where a packet was lost all that came behind it waits, and arrives at once when that is sent again.
    So of the rates from the moments between a quarter and five eighths of its time, each to the end, the lowest counts:
    the window is open by then, and right after such a heap arrived the rate is that of the line.
    """

    def __init__(self) -> None:
        self._arrived: list[tuple[float, int]] = []
        """When how many bytes had come in all."""

    def add(self, size: int, now: float) -> None:
        """Note a frame of `size` bytes, whole."""
        before = self._arrived[-1][1] if self._arrived else 0
        self._arrived.append((now, before + size))
        if len(self._arrived) > _ARRIVALS:
            del self._arrived[1:-1:2]

    def sample(self) -> tuple[int, float, bool]:
        """Give (bytes, seconds, whether the link can do more than this shows); there was a frame.

        Of the first one nobody knows how long it took: only what came behind it counts, of however few.
        """
        (first, opening), (last, total) = self._arrived[0], self._arrived[-1]
        size, seconds = total - opening, last - first
        if len(self._arrived) <= _BUSY_FRAMES or seconds <= 0:
            return size, max(1e-6, seconds), True
        middle = [(at, so_far) for at, so_far in self._arrived if _OPEN * seconds <= at - first <= _LATE * seconds]
        rate = min(((total - so_far) / (last - at) for at, so_far in middle), default=0.0)
        return size, size / rate if rate else seconds, False


class Watch:
    """Tells a stalled peer from a slow one: no byte moved in `CHECKS` checks in a row although one was due.

    Checks are counted, not seconds: a process that is itself held up for long finds at its next check only that one
    check has passed, reads what has arrived meanwhile, and blames nobody for its own delay. A stall is found at the
    first check after its deadline, so the more there are, the sooner.
    """

    CHECKS = 16
    FEW = CHECKS // 4
    """Checks in a row after which a connection stands still, though it is not given up yet."""

    def __init__(self, stall: float) -> None:
        self.stall = stall
        self.interval = stall / self.CHECKS
        """Seconds between checks; an idle side has to say something as often."""
        self._read = self._wrote = -1
        self._unread = self._unwritten = 0

    @property
    def standing(self) -> bool:
        """Whether nothing moved, although something was due, for a quarter of the deadline."""
        return max(self._unread, self._unwritten) >= self.FEW

    def check(self, received: int, flushed: int, *, expecting: bool, pending: bool) -> str | None:
        """Compare the counters with the last ones; say which direction has stalled, or None."""
        self._unread = self._unread + 1 if expecting and received == self._read else 0
        self._unwritten = self._unwritten + 1 if pending and flushed == self._wrote else 0
        self._read, self._wrote = received, flushed
        if self._unread >= self.CHECKS:
            return f"sent nothing for {self.stall:g} s although more was due"
        if self._unwritten >= self.CHECKS:
            return f"took nothing for {self.stall:g} s although more was offered"
        return None
