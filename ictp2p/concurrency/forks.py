"""What this process holds alone: a fork of it lets go of that at once.

A fork has a copy of each descriptor, and what a descriptor stands for ends with the last copy: the lock of a folder
(flock(2)), a port that is listened on, a connection. The workers of a `DataLoader` are forks, and outlive a peer that
is closed, and for some seconds one that is killed. Whoever starts it again would find its folder and its port taken,
and nobody there; and the others would not hear of its death from its kernel at once, but from its silence.

A transport goes by the number of its descriptor, whatever that stands for. So the number stays taken, by nothing: who
closes it later, be it the garbage collector, closes nothing else.

A fork may come from any thread, between a call that opens something and the one that says what becomes of it in a fork.
So both stand under a lock that a fork takes first (`undivided`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Protocol


class Closable(Protocol):
    """What stands for descriptors."""

    def close(self) -> None:
        """Close them; more than once is fine."""
        ...


_HOLDERS: weakref.WeakSet[Closable] = weakref.WeakSet()
_SOCKETS: weakref.WeakSet[socket.socket] = weakref.WeakSet()
_LOCK = threading.RLock()  # reentrant: a signal handler may fork while its thread holds it


def held_alone(holder: Closable) -> None:
    """Have `holder` closed in every fork of this process, for as long as it exists."""
    _HOLDERS.add(holder)


def made_alone(make: Callable[[], socket.socket]) -> socket.socket:
    """Make a socket that is closed in every fork, from its first moment on and as long as it is open."""
    with _LOCK:
        sock = make()
        _SOCKETS.add(sock)
        return sock


@contextlib.contextmanager
def undivided() -> Iterator[None]:
    """Have no other thread fork this process until what is done here is complete. Nothing in it may wait."""
    with _LOCK:
        yield


def _let_go() -> None:
    for holder in tuple(_HOLDERS):
        with contextlib.suppress(OSError):
            holder.close()
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for sock in tuple(_SOCKETS):
        if sock.fileno() >= 0:
            os.dup2(nothing, sock.fileno(), inheritable=False)
    os.close(nothing)


def _ended_in_child() -> None:
    try:
        _let_go()
    finally:
        _LOCK.release()


os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_ended_in_child)
