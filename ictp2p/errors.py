"""Every exception that ictp2p raises on purpose.

One rule tells them apart: each branch is for who can do something about it.

    IctError
    ├── ConfigError            your input: a value that is not valid, named in the message
    │   ├── FolderInUse        another peer has the data folder
    │   └── MeshMismatch       your model, policy or results differ from the mesh's
    ├── ProtocolError          a message, or a call, that breaks the rules
    │   ├── LocalProtocolError     ours: a call that cannot be made now, or here; else a bug in this process
    │   └── RemoteProtocolError    theirs: garbage, a bad length, a forged record
    │       └── VersionMismatch    theirs: another version of the wire
    ├── NetworkError           the path between two peers
    │   ├── AddressInUse       the listen port is taken
    │   │   └── AddressNotOurs     this machine has no such address
    │   ├── Unreachable        nobody answered at the address in time
    │   │   └── Refused            its host says that nobody listens there
    │   ├── HandshakeFailed    somebody answered, and one side refused the other
    │   │   └── TurnedAway         for good: another token, or an identity that another process has
    │   ├── ConnectionLost     it was there and went away
    │   ├── NoRoute            no path, direct or relayed
    │   └── StatusRefused      a peer does not tell its status: too many ask at once, or it is too long
    ├── RoundError             a collective that did not happen: parameters untouched, safe to retry
    │   ├── RoundAborted       the mesh agreed to abort it, or a call before it failed
    │   ├── RoundTimeout       it was not decided before its deadline
    │   ├── RoundMissed        the mesh went on without us: fetch the state, then go on
    │   ├── NoQuorum           too few voters are reachable to decide anything
    │   └── NotFinite          this cluster's parameters hold NaN or infinity: it brings none of it to the others
    ├── StateError             state that nobody provides, or whose bytes do not match its agreed digest
    ├── LocalGroupError        the group inside the cluster broke: a new one is being formed
    │   ├── LibraryRefused         a vendor's collective library did not come up: the new one falls back to Gloo
    │   ├── GroupUnmet             not all members came to the meeting in time: the new one goes on without them
    │   └── GroupUnbuilt           this worker lacks what it needs for one (descriptors, threads): it stands aside
    ├── SiblingLost            a rank of this cluster that holds another shard of its model stopped, or is gone
    ├── Exhausted              this process or its machine has no more threads, descriptors or memory to begin that with
    └── PeerClosed             the peer was closed, or drained, while something waited on it
        └── PeerFailed         the peer stopped by itself: to go on would have broken a promise

A few have subclasses beside the code that raises them, which carry more than a message: whom a collective waited for,
say (`collectives.channel`, `torch_backend.errors`). An `except` for one drawn here catches those too.

Foreign errors (`OSError`, `ssl.SSLError`, `msgspec.MsgspecError`) are translated where they come in: of sockets and TLS
in `edge` and `bulk`, of bytes in `wire`, of files in `disk`, `config` and `sync.state`, of torch's groups and stores in
`collectives.group`, `torch_backend` and `torchrun`, of a peer's own process in `handle`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Generic, TypeVar

E = TypeVar("E", bound=BaseException)


class IctError(Exception):
    """Base of every error that ictp2p raises on purpose."""


class ConfigError(IctError, ValueError):
    """A value given by the user that is not valid."""


class FolderInUse(ConfigError):
    """The data folder is in use by another peer."""


class MeshMismatch(ConfigError):
    """This peer's model or policy differs from what the mesh trains, or its results do, round after round."""


class ProtocolError(IctError):
    """A message or a call that the protocol does not allow, or not at this point."""


class LocalProtocolError(ProtocolError):
    """A call that cannot be made now, or in this thread, as the message says; or a bug in this process."""


class RemoteProtocolError(ProtocolError):
    """The other side broke the protocol."""


class VersionMismatch(RemoteProtocolError):
    """The other side speaks another version of the wire."""


class NetworkError(IctError):
    """The path between two peers failed."""


class AddressInUse(NetworkError):
    """The address to listen on is not available: another socket has it, say."""


class AddressNotOurs(AddressInUse):
    """The address to listen on is not one of this machine: it has no such interface."""


class Unreachable(NetworkError):
    """Nobody answered at an address within the deadline."""


class Refused(Unreachable):
    """The host answered that nobody listens on that port: its process is gone, though the host is not."""


class HandshakeFailed(NetworkError):
    """Somebody answered, and one of the two sides refused the other."""


class TurnedAway(HandshakeFailed):
    """Refused for good: of another mesh, or under an identity that another process has."""


class ConnectionLost(NetworkError):
    """An established connection ended or stalled past its deadline."""


class NoRoute(NetworkError):
    """There is no path to a cluster, direct or relayed."""


class StatusRefused(NetworkError):
    """A peer refused to tell its status; the message says why."""


class RoundError(IctError):
    """A collective that did not happen. Nothing was applied; it may be retried."""


class RoundAborted(RoundError):
    """The mesh agreed to abort the round; or the call was not begun, since one before it had failed unheard."""


class RoundTimeout(RoundError):
    """The round was not decided before its deadline."""


class RoundMissed(RoundError):
    """The mesh committed a round without this cluster."""


class NoQuorum(RoundError):
    """Too few voters can be reached to decide anything."""


class NotFinite(RoundError):
    """This cluster's parameters hold NaN or infinity, which one round would bring to every other cluster."""


class Exhausted(IctError):
    """This process, or its machine, has no more of what is needed: threads, descriptors, memory. Nothing was begun."""


class StateError(IctError):
    """State that nobody provides, or whose bytes do not match the agreed digest."""


class LocalGroupError(IctError):
    """The process group inside the cluster broke; a new one is being formed."""


class LibraryRefused(LocalGroupError):
    """A vendor's collective library did not come up between the workers of a cluster."""


class GroupUnmet(LocalGroupError):
    """Not all members of a group came to its meeting before the deadline."""


class GroupUnbuilt(LocalGroupError):
    """This worker cannot build its part of a group: its machine or its process lacks something."""


class SiblingLost(IctError):
    """A rank of this cluster that holds another shard of its model cannot go on, or cannot be reached any more."""


class PeerClosed(IctError):
    """The peer was closed or drained while something waited on it."""


class PeerFailed(PeerClosed):
    """The peer stopped by itself: its disk keeps nothing more, its identity is taken, or it founded apart."""


_SHOWN = 120
"""Characters of a value that a message shows."""


def shown(value: object) -> str:
    """A value for a message, on one line and not too long: models say of themselves a page, numbers have no end."""
    try:
        text = " ".join(repr(value).split())
    except (
        Exception
    ):  # Python writes out no number of more than 4300 digits, and other people's objects may do anything
        text = f"<{type(value).__qualname__} that cannot be shown>"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def nearest(name: object, known: Iterable[str]) -> str | None:
    """What may have been meant by a name that there is not."""
    return next(iter(get_close_matches(str(name), list(known), 1)), None)


def untraced(error: E) -> E:
    """An error that is to be kept, without the frames that it went through, and so without all that these held."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def printable(text: str) -> str:
    """What another host says, with what a terminal would obey, a line would end at, or no encoding has escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


_LACKS = ("can't start new thread", *map(os.strerror, (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)))
"""How the want of threads, descriptors and memory is worded; libraries pass on nothing else of it."""


def lacking(error: BaseException) -> bool:
    """Whether an error, or one that it came of, is of what this process or its machine has no more of."""
    words = str(error)
    return any(lack in words for lack in _LACKS) or (error.__cause__ is not None and lacking(error.__cause__))


class Translated(Generic[E]):
    """A context in which an error becomes another one.

    No `contextmanager`: since Python 3.12 the frame of a generator, which is in the traceback of what it caught, knows
    the frame that had resumed it, and that knows the error. Such a cycle keeps all that the block held, a gigabyte
    perhaps, until the garbage collector comes.

    Args:
        kinds: of errors that it is about.
        into: raises the other error from the one that it is given; if it returns, that one is raised as it is.
    """

    def __init__(self, kinds: type[E], into: Callable[[E], None]) -> None:
        self._kinds = kinds
        self._into = into

    def __enter__(self) -> None:
        """Nothing is done before the block."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, self._kinds):
            self._into(error)
