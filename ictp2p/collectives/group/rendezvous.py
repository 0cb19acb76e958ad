"""Where the members of one process group leave their addresses for each other.

torch's own `TCPStore` cannot be used here: its server listens on every interface unless handed a socket, and a
client that dials a server which accepts but never answers (the process is stopped) waits without any deadline, in
C++, where nothing can reach it. A process group needs very little of a store: publish one short value, wait for those
of the others. So this is a store of that size, whose every wait has a deadline and ends at once when it is aborted
from another thread (its socket is shut down), and which resolves no names.

The leader opens one server for each generation of the group and closes it with the next, so keys never clash.
A vendor's library asks for a little more (`check`, `add`, `delete_key`), and keeps its connection as long as it lives.
Frames are `operation u8, key length u16, value length u32, key, value`; the answer to all but a `set` is
`length u32, value`.
Both lengths are checked before anything is allocated. The values are socket addresses, no secrets; like the group's
own traffic they are meant for the cluster's private network. Nobody proves here who it is, so a stranger who reaches
the port can spoil a meeting. But it costs the leader no more than a large cluster does: clients, what is kept, and how
long one may say nothing have limits.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import errno
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import torch.distributed

from ictp2p.errors import AddressInUse, AddressNotOurs, LocalGroupError, Translated
from ictp2p.types import Address, shown_address

_REQUEST = struct.Struct("<BHI")
_LENGTH = struct.Struct("<I")


class _Op(enum.IntEnum):
    SET = 1
    GET = 2
    CHECK = 3
    ADD = 4
    DELETE = 5


MAX_KEY = 256
MAX_VALUE = 64 * 1024
MAX_ENTRIES = 65536
MAX_KEPT = 32 << 20
"""Bytes of keys and values that are kept. Of n members Gloo has each say 8n + 154: of 2000 members that is as much."""
MAX_CLIENTS = 4096
"""As many as a roster has members; each has one connection."""
PATIENCE = 20.0
"""Seconds from a connection to the end of its first request. Members ask as soon as they are connected."""
_LOOK = 1.0
"""Seconds between two looks at whether a client that waits for a value is still there."""


class RendezvousServer:
    """A store for one generation of a group, listening on one interface. Close it when the generation is over."""

    def __init__(self, host: str) -> None:
        """Listen on a free port of `host`, a numeric address.

        Raises:
            AddressNotOurs: `host` is not an address of this machine.
        """
        try:
            self._server = _Server(host)
        except OSError as error:
            kind = AddressNotOurs if error.errno == errno.EADDRNOTAVAIL else AddressInUse
            raise kind(f"cannot open a rendezvous on {host!r}: {error}") from error
        self.address = Address(*self._server.socket.getsockname()[:2])
        """Where members find it."""
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._server.server_close()
            raise

    def close(self) -> None:
        """Stop listening and disconnect whoever still waits. May be called twice."""
        self._server.shutdown()
        self._server.disconnect()
        self._server.server_close()
        self._thread.join()


class Rendezvous(torch.distributed.Store):  # type: ignore[misc, name-defined]
    """One member's connection to the server, in the shape that torch's process groups call."""

    def __init__(self, address: Address, timeout: float) -> None:
        """Connect.

        Args:
            address: the server, numeric.
            timeout: seconds for the connection, and for each wait after it.

        Raises:
            LocalGroupError: nobody answers there.
        """
        super().__init__()
        self._address, self._reason = address, ""
        self.in_vain = False
        """Whether a wait has come to its deadline: whose value that was did not come."""
        self._lock = threading.Lock()
        try:
            self._socket = socket.create_connection(address, timeout)
        except OSError as error:
            raise LocalGroupError(f"no rendezvous at {address}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.interface = shown_address(self._socket.getsockname()).host
        """The address of this machine from which the server is reached, of the server's family as every member's is."""

    def set(self, key: str, value: Any) -> None:
        """Publish `value` under `key`."""
        with self._lock, self._translated(key):
            self._request(_Op.SET, key, _octets(value))

    def get(self, key: str) -> bytes:
        """Wait for the value of `key`.

        Raises:
            LocalGroupError: it did not come within the deadline, the server went away, or this was aborted.
        """
        return self._ask(_Op.GET, key)

    def check(self, keys: list[str]) -> bool:
        """Whether all of `keys` have a value, without waiting for one."""
        return all(self._ask(_Op.CHECK, key) == b"1" for key in keys)

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, which starts from zero, and give its new value."""
        return int(self._ask(_Op.ADD, key, str(amount).encode()))

    def delete_key(self, key: str) -> bool:
        """Forget a key; whether there was one."""
        return self._ask(_Op.DELETE, key) == b"1"

    def wait(self, keys: list[str], timeout: datetime.timedelta | None = None) -> None:
        """Wait for all of `keys`; the deadline is this store's own."""
        for key in keys:
            self.get(key)

    def has_extended_api(self) -> bool:
        """Say that there is nothing here of what torch calls the extended interface."""
        return False

    def abort(self, reason: str) -> None:
        """End every wait, now and later, from any thread."""
        self._reason = self._reason or reason
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def _ask(self, operation: int, key: str, value: bytes = b"") -> bytes:
        with self._lock, self._translated(key):
            self._request(operation, key, value)
            (length,) = _LENGTH.unpack(_read(self._socket, _LENGTH.size))
            return _read(self._socket, _bounded(length, MAX_VALUE, "value"))

    def _request(self, operation: int, key: str, value: bytes) -> None:
        name = key.encode()
        header = _REQUEST.pack(operation, _bounded(len(name), MAX_KEY, "key"), _bounded(len(value), MAX_VALUE, "value"))
        self._socket.sendall(header + name + value)

    def _translated(self, key: str) -> Translated[OSError]:
        def named(error: OSError) -> None:
            why = self._reason or f"{type(error).__name__}: {error}"
            self.in_vain |= isinstance(error, TimeoutError) and not self._reason
            raise LocalGroupError(f"rendezvous at {self._address} broke while waiting on {key!r}: {why}") from error

        return Translated(OSError, named)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, host: str) -> None:
        self.values: dict[bytes, bytes] = {}
        self._kept = 0
        """Bytes of all keys and values."""
        self.changed = threading.Condition()
        self.closed = False
        self._clients: set[socket.socket] = set()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), _Client)

    def put(self, key: bytes, value: bytes) -> None:
        with self.changed:
            if len(self.values) >= MAX_ENTRIES:
                raise ValueError(f"rendezvous holds {MAX_ENTRIES} keys already")
            kept = self._kept - self._size(key) + len(key) + len(value)
            if kept > MAX_KEPT:
                raise ValueError(f"rendezvous would hold {kept} bytes with {key!r}, and holds {MAX_KEPT} at most")
            self.values[key], self._kept = value, kept
            self.changed.notify_all()

    def take(self, key: bytes, there: Callable[[], bool]) -> bytes | None:
        """Wait for a value, as long as the server lives and the client is there; it keeps the deadline and hangs up."""
        with self.changed:
            while not self.changed.wait_for(lambda: self.closed or key in self.values, _LOOK) and there():
                pass
            return self.values.get(key)

    def has(self, key: bytes) -> bytes:
        with self.changed:
            return b"%d" % (key in self.values)

    def add(self, key: bytes, amount: bytes) -> bytes:
        with self.changed:
            self.put(key, b"%d" % (int(self.values.get(key, b"0")) + int(amount)))
            return self.values[key]

    def delete(self, key: bytes) -> bytes:
        with self.changed:
            self._kept -= self._size(key)
            return b"%d" % (self.values.pop(key, None) is not None)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for one more client: each has a thread."""
        return len(self._clients) < MAX_CLIENTS

    def process_request(self, request: Any, client_address: Any) -> None:
        self._clients.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._clients.discard(request)
        super().shutdown_request(request)

    def disconnect(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        for client in tuple(self._clients):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _size(self, key: bytes) -> int:
        held = self.values.get(key)
        return 0 if held is None else len(key) + len(held)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that broke the protocol is hung up on; its own side reports it."""


class _Client(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        until: float | None = time.monotonic() + PATIENCE
        with contextlib.suppress(OSError):
            while True:
                operation, key_length, value_length = _REQUEST.unpack(_read(self.request, _REQUEST.size, until))
                key = _read(self.request, _bounded(key_length, MAX_KEY, "key"), until)
                value = _read(self.request, _bounded(value_length, MAX_VALUE, "value"), until)
                until = None  # a vendor's library is silent as long as all is well
                self.request.settimeout(None)
                self._answer(operation, key, value)

    def _there(self) -> bool:
        """Whether the other side has not hung up."""
        try:
            return bool(self.request.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _answer(self, operation: int, key: bytes, value: bytes) -> None:
        found: bytes | None = None
        match operation:
            case _Op.SET:
                self.server.put(key, value)
                return
            case _Op.GET:
                found = self.server.take(key, self._there)
            case _Op.CHECK:
                found = self.server.has(key)
            case _Op.ADD:
                found = self.server.add(key, value)
            case _Op.DELETE:
                found = self.server.delete(key)
        if found is None:
            raise ConnectionError(f"operation {operation} has no answer")
        self.request.sendall(_LENGTH.pack(len(found)) + found)


def open_store(host: str) -> tuple[str, RendezvousServer]:
    """Open a rendezvous store on an interface; its address and the store."""
    server = RendezvousServer(host)
    return str(server.address), server


def _read(connection: socket.socket, count: int, until: float | None = None) -> bytes:
    """Read so many bytes, by a time of the monotonic clock if one is given, however slowly they trickle in."""
    received = bytearray(count)
    view = memoryview(received)
    while view:
        if until is not None:
            connection.settimeout(max(until - time.monotonic(), 1e-3))
        got = connection.recv_into(view)
        if not got:
            raise ConnectionError(f"the other side hung up {len(view)} bytes early")
        view = view[got:]
    return bytes(received)


def _bounded(length: int, most: int, what: str) -> int:
    if length > most:
        raise ConnectionError(f"{what} of {length} bytes exceeds {most}")
    return length


def _octets(value: Any) -> bytes:
    """Torch hands over `bytes`, a list of ints or a `str`, depending on who calls."""
    return value.encode() if isinstance(value, str) else bytes(value)
