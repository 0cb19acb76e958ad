"""One direction of a connection: what one end has sent and the other has not got.

A message is one write. A small one takes the link's delay, jitter and losses, and so does, on a control connection, one
that fits in TCP's initial window: it leaves at once, at the rate of the narrowest line. What is large, or stands behind
something large on its connection, is bulk and flows through `sim.fluid`. Nothing is ever sent twice or reordered within
a connection, because TCP hides that; what TCP cannot hide (delay, silence, reset, a flipped bit) can all happen.
A flipped bit on a control connection ends it, as TLS would; on a bulk connection it arrives.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from ictp2p.edge.preamble import Kind
from sim.flows import INITIAL_WINDOW, SEGMENT, Flow
from sim.internet import Internet

if TYPE_CHECKING:
    from sim.connection import Endpoint

BULK = 4 * 1024
"""Bytes from which a message is bulk."""
_TRICKLE = 0.2
"""Seconds between two parts of one large message that are handed over before all of it has passed."""

SYN = "syn"
DATA = "data"
FIN = "fin"
RST = "rst"
"""What an item on the way is."""


class Way:
    """From `end` to its peer.

    Args:
        internet: where.
        end: who sends.
    """

    def __init__(self, internet: Internet, end: Endpoint) -> None:
        self.flying = 0
        """Bytes that have left and not arrived."""
        self._net = internet
        self._end = end
        self._pair = end.local, end.remote
        self._link = internet.topology.between(*self._pair)
        self._queue: deque[list[Any]] = deque()  # [what, data, size, left] of bulk that has not passed
        self.backlog = 0.0
        """Bytes that have not left yet."""
        self._arrives = 0.0
        self._left = 0.0
        """When the last message that passed in one window has left."""
        self._trickled = -math.inf
        self._flow = Flow(
            resources=lambda: internet.topology.resources(*self._pair),
            round_trip=lambda: internet.round_trip(*self._pair),
            loss=lambda: self._link.loss,
            head=self._head,
            passed=self._passed,
            limit=lambda: self._link.window,
        )

    @property
    def busy(self) -> bool:
        """Whether something has not left yet."""
        return bool(self._queue)

    @property
    def account(self) -> tuple[float, ...]:
        """What a kernel counts (`ictp2p.bulk.account.Account`); nothing queues here."""
        packets, far = self._flow.sent / SEGMENT, self._net.round_trip(*self._pair)
        return self._flow.busy, self._flow.held, 1.0, far, packets, self._link.loss * packets

    @property
    def delivered(self) -> float:
        """Bytes per second that have passed of late."""
        return self._flow.delivered

    def open(self, passes: bool) -> None:
        """Say whether packets pass at all."""
        self._flow.open = passes

    def carry(self, what: str, data: Any, size: int) -> None:
        """Take one item, behind everything that was taken before."""
        if not self._queue and BULK < size <= INITIAL_WINDOW and self._end.kind == Kind.CONTROL:
            self._burst(what, data, size)
        elif self._queue or size > BULK:
            if not self._queue:
                self._trickled = self._net.loop.now  # what passes soon is handed over whole
            self._queue.append([what, data, size, float(size)])
            self.backlog += size
            self._net.fluid.start(self._flow)
        else:
            self._depart(what, data, size)

    def drop(self) -> None:
        """Forget what has not left."""
        self._queue.clear()
        self.backlog = 0.0
        self._net.fluid.drop(self._flow)

    # ------------------------------------------------------------ control: per message

    def _depart(self, what: str, data: Any, size: int) -> None:
        """All of it has left: it takes what a message of its size takes."""
        link = self._link
        seconds = self._net.delay(*self._pair, link) + size / link.bandwidth
        self._leave(what, data, size, seconds)

    def _burst(self, what: str, data: Any, size: int) -> None:
        """It leaves in one window, behind what left like that before."""
        narrowest = min((rate for _, rate in self._net.topology.resources(*self._pair)), default=math.inf)
        self._left = max(self._left, self._net.loop.now) + size / narrowest
        seconds = self._left - self._net.loop.now + self._net.delay(*self._pair, self._link)
        self._leave(what, data, size, seconds)

    def _leave(self, what: str, data: Any, size: int, seconds: float) -> None:
        """Arrive in so many seconds, after whatever left before."""
        corrupt, loop, peer = self._link.corrupt, self._net.loop, self._end.peer
        if corrupt and size and self._net.chance.happens(corrupt, "corrupt", *self._pair):
            data = self._damaged(data)
        self.flying += size
        due = loop.now + seconds
        if due > self._arrives:
            self._arrives = due
        loop.at(self._arrives, peer.arrive, what, data, size, context=peer.process.context)

    def _damaged(self, data: Any) -> Any:
        if self._end.kind != Kind.BULK or isinstance(data, tuple):
            return None  # TLS notices
        place = int(self._net.chance.uniform("place", *self._pair) * len(data))
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    # ------------------------------------------------------------ bulk: through the fluid

    def _head(self) -> float:
        """Bytes that must pass before something can be delivered."""
        return float(self._queue[0][3]) if self._queue else 0.0

    def _passed(self, size: float) -> None:
        """The fluid has moved on."""
        queue = self._queue
        while queue:
            item = queue[0]
            left = item[3]
            taken = min(left, size)
            item[3] = left = left - taken
            size -= taken
            self.backlog -= taken
            if left > 1e-6:
                self._deliver_part(item)
                break
            self.backlog -= left
            queue.popleft()
            self._depart(*item[:3]) if item[2] <= BULK else self._arrive_last(*item[:3])
        else:
            self.backlog = 0.0
        self._end.passed()

    def _deliver_part(self, item: list[Any]) -> None:
        """Hand over what has passed of a large message, so that the other side sees it trickle in."""
        if self._net.loop.now < self._trickled + _TRICKLE:
            return
        what, data, size, left = item
        through = size - int(left + 0.999999)
        if what != DATA or through < BULK:
            return
        self._trickled = self._net.loop.now
        if isinstance(data, tuple):
            first, rest = (data[0], through), (b"", size - through)
        else:
            first, rest = data[:through], data[through:]
        item[1], item[2] = rest, size - through
        self._arrive_last(what, first, through)

    def _arrive_last(self, what: str, data: Any, size: int) -> None:
        """A large message has passed the bottleneck: only the way itself is left."""
        self._leave(what, data, size, self._link.delay)
