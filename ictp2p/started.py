"""The peers that a program has started and not closed.

A peer runs on when nothing refers to it any more: its loop does. In a notebook a cell that makes one is run again, the
name is another peer's then, and the first one keeps its port and its folder, out of reach. Here it can be had.
"""

from __future__ import annotations

import itertools
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from ictp2p.errors import AddressInUse, AddressNotOurs, FolderInUse

if TYPE_CHECKING:
    from ictp2p.config import Config
    from ictp2p.peer import Peer

_NUMBERS = itertools.count()
_STARTED: weakref.WeakValueDictionary[int, Peer] = weakref.WeakValueDictionary()


def note(peer: Peer) -> None:
    """It has been started, after all others."""
    _STARTED[next(_NUMBERS)] = peer


def started() -> list[Peer]:
    """All that were, in that order, as far as they are not gone."""
    return list(_STARTED.values())


def named(error: AddressInUse | FolderInUse, config: Config, others: list[Peer]) -> AddressInUse | FolderInUse:
    """The same error, and what to do; if it is one of `others` that has what a peer of `config` wants, with its id."""
    if isinstance(error, AddressNotOurs):
        instead = f"listen on [::]:{config.listen_address.port} and advertise it"
        return AddressNotOurs(f"{error}. Where a NAT hands it on to this machine, {instead}")
    has = _has_folder if isinstance(error, FolderInUse) else _has_address
    for other in others:
        if has(other, config):
            return type(error)(
                f"{error}. Peer {other.id} of this very process has it: close that one first (`ictp2p.Peer.running()` "
                "gives it, where nothing else does)"
            )
    return error


def _has_folder(peer: Peer, config: Config) -> bool:
    theirs, wanted = peer.config.data_dir, config.data_dir
    return theirs is not None and wanted is not None and Path(theirs).resolve() == Path(wanted).resolve()


def _has_address(peer: Peer, config: Config) -> bool:
    wanted = config.listen_address
    return wanted.port != 0 and wanted in (peer.config.listen_address, peer.address)
