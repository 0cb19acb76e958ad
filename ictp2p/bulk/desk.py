"""Takes the frames that open something: a neighbour begins or gives up a collective, asks for something, or probes."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, TypeVar

from ictp2p.bulk.collective import Aborted, read_aborted
from ictp2p.bulk.connection import BulkConnection
from ictp2p.bulk.early import EarlyChunks
from ictp2p.bulk.frames import Header, Kind, read_measured
from ictp2p.bulk.streams import MOST_REASON, Handler, Request, Service, Serving, read_request
from ictp2p.errors import IctError

if TYPE_CHECKING:
    from ictp2p.bulk.hub import Bulk

_OF_COLLECTIVES = {Kind.BEGIN, Kind.WHOLE, Kind.ABORT, Kind.MEASURED}
_OF_OTHERS = {Kind.REQUEST, Kind.CANCEL, Kind.PROBE, Kind.ASK}
_OF_RINGS = {Kind.OFFER, Kind.OPENED, Kind.FREED}
KINDS = frozenset(_OF_COLLECTIVES | _OF_OTHERS | _OF_RINGS)
_REMEMBERED = 4096
"""How far a peer may be ahead of us in collectives that it has begun and we have not: 16 bytes each, no more."""
_FAILED = 1
_T = TypeVar("_T")


class Desk:
    """One connection's desk (`users.User`, though it never sends by itself)."""

    def __init__(self, bulk: Bulk, connection: BulkConnection, services: dict[str, Service]) -> None:
        self._bulk = bulk
        self._connection = connection
        self._services = services
        self._begun: OrderedDict[bytes, int] = OrderedDict()
        """With a checksum of what the peer calls."""
        self.early = EarlyChunks(_REMEMBERED)
        self._aborted: OrderedDict[bytes, Aborted] = OrderedDict()
        self._serving: dict[bytes, asyncio.Task[None]] = {}
        self._served: Counter[str] = Counter()
        """How many of each kind."""

    def begun(self, tag: bytes) -> bool:
        """Say whether the peer has begun the collective `tag`; it may be ahead of us."""
        return tag in self._begun

    def called(self, tag: bytes) -> int:
        """Give the checksum of what the peer calls in the collective `tag`, which it has begun."""
        return self._begun[tag]

    def knows(self, tag: bytes) -> bool:
        """Say whether the peer has said anything of the collective `tag`."""
        return tag in self._begun or tag in self._aborted

    def aborted(self, tag: bytes) -> Aborted | None:
        """Say why the peer gave up the collective `tag`, if it did."""
        return self._aborted.get(tag)

    def forget(self, tag: bytes) -> None:
        """The collective `tag` has ended here: what is remembered is for those that have not begun."""
        self._begun.pop(tag, None)
        self._aborted.pop(tag, None)

    def next_frame(self) -> None:
        """Send nothing."""
        return

    def place(self, header: Header) -> None:
        """Read bodies from the connection's buffer."""
        return

    def expecting(self) -> bool:
        """Nothing is due."""
        return False

    def lost(self, error: IctError) -> None:
        """Stop serving."""
        for task in tuple(self._serving.values()):
            task.cancel()

    def take(self, header: Header, body: memoryview) -> None:
        """Act on a frame."""
        match header.kind:
            case Kind.BEGIN:
                self._begin(header)
            case Kind.WHOLE:
                self._begin(header)
                self._chunk(header.part(), body)
            case Kind.ABORT:
                why = read_aborted(body)
                _remember(self._aborted, header.tag, why)
                self.early.forget(header.tag)
                self._bulk.attaching.aborted(self._connection, header.tag, why)
            case Kind.PARTIAL | Kind.RESULT:
                self._chunk(header, body)
            case Kind.REQUEST:
                self._serve(header.tag, body)
            case Kind.CANCEL if header.tag in self._serving:
                self._serving[header.tag].cancel()
            case Kind.CANCEL:
                self._bulk.probing.over(self._connection, header.tag)
            case Kind.ASK:
                self._bulk.probing.asked(self._connection, header.tag)
            case Kind.PROBE:
                self._bulk.probing.arrived(self._connection, header)
            case Kind.MEASURED:
                self._bulk.told(self._connection, *read_measured(body))
            case Kind.OFFER | Kind.OPENED | Kind.FREED:
                self._connection.sharing.take(header, body)

    def _begin(self, header: Header) -> None:
        _remember(self._begun, header.tag, header.second)
        self._bulk.attaching.begun(self._connection, header.tag, header.second, again=header.first)

    def _chunk(self, header: Header, body: memoryview) -> None:
        """Hand a chunk over, or keep it until we have begun as well, unless we gave up: nobody would take it."""
        if not self._bulk.attaching.catch_up(self._connection, header, body) and self.begun(header.tag):
            self.early.keep(header, body)

    def _serve(self, tag: bytes, body: memoryview) -> None:
        request = read_request(body)
        service = self._services.get(request.kind)
        if service is None:
            self._refuse(tag, f"{request.kind[:64]!r} is not served")
        elif tag in self._serving:
            self._refuse(tag, f"a request of {request.kind!r} under this very tag is served already")
        elif self._served[request.kind] >= service.limit:
            self._refuse(tag, f"{service.limit} requests of {request.kind!r} are served already")
        else:
            self._begin_serving(tag, request, service.handler)

    def _refuse(self, tag: bytes, reason: str) -> None:
        self._connection.send(Kind.END, tag, _FAILED, 0, reason.encode()[:MOST_REASON])

    def _begin_serving(self, tag: bytes, request: Request, handler: Handler) -> None:
        peer = self._connection.peer
        assert peer is not None
        serving = Serving(self._connection, tag, handler(peer, request.payload))
        self._bulk.join(peer, tag, serving, self._connection)
        self._served[request.kind] += 1
        self._serving[tag] = task = asyncio.get_running_loop().create_task(serving.run())
        task.add_done_callback(lambda _: self._end_serving(tag, request.kind, serving))

    def _end_serving(self, tag: bytes, kind: str, serving: Serving) -> None:
        del self._serving[tag]
        self._served[kind] -= 1
        assert self._connection.peer is not None
        self._bulk.part(self._connection.peer, tag, serving)


def _remember(table: OrderedDict[bytes, _T], key: bytes, value: _T) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > _REMEMBERED:
        table.popitem(last=False)
