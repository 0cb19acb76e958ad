"""Whose a disk is: one peer, of one cluster, in one process at a time.

What a peer promised stands on its disk under its id, so whoever has the disk speaks in its name. Two processes that
both do, since somebody copied the folder, could together promise what neither may; and no lock shows a copy. So a
folder is bound to the name of its cluster when it is first used, and each life of its peer has a number, higher than
those before it. Of two such numbers, as of fencing tokens (Kleppmann, "Designing Data-Intensive Applications", 2017,
chapter 8), the higher one counts, and whoever hears of it under its own id stops. What is left to do then is a
person's, who is told so here.

Nor may a part of it be lost. A damaged file is refused, but one that is gone looks as if it had never been, and its
peer would come back under its name without what it had promised. So it is shown by those that are written after it:
the cluster, the identity and the number of the life come first, in this order. A chain of decisions, without which
nobody votes, comes at any time; but who founds a mesh has one before it leads, and each life notes whether it found
one.

Nor does a chain of decisions pass from one mesh to another. A training that is to be new would go on with the old one,
or wait for a state that nobody has, since whoever has a chain belongs where that was decided. So a folder is bound to
the mesh as well, once it holds a chain, by the fingerprint that everybody shows of the token before they shake hands:
it tells who has the disk no more than who hears the wire.
"""

from __future__ import annotations

from collections.abc import Callable

from ictp2p.config import Config
from ictp2p.disk import SUFFIX, Disk, FileDisk
from ictp2p.errors import StateError
from ictp2p.gossip.election import TERM_KEY
from ictp2p.identity import Identity
from ictp2p.sync.agreement import acceptor
from ictp2p.types import PeerId

_IDENTITY = "identity"
_LIFE = "life"
_CLUSTER = "cluster"
_MESH = "mesh"
_COUNT = 8
"""Bytes of a life's number; what is behind them says that it found a chain."""

NOT_A_COPY = "give each worker a data directory of its own, not a copy"
"""What to do where two processes have one identity."""


def bind(disk: Disk, config: Config) -> None:
    """Bind a disk to the cluster of the peer whose it is.

    A copy of a folder under another cluster's name would promise in the name of the same voter, and neither of the two
    would meet the other where its own cluster's workers do.

    Raises:
        StateError: it is bound to another cluster already, or cannot be read.
    """
    home = disk.load(_CLUSTER)
    if home is None:
        disk.save(_CLUSTER, config.cluster.encode())
    elif home != config.cluster.encode():
        cluster = home.decode(errors="replace")
        raise StateError(
            f"data_dir {str(config.data_dir)!r} is that of a peer of cluster {cluster!r}, not {config.cluster!r}: "
            "give this peer a folder of its own"
        )


def home(folder: str | None) -> str | None:
    """Of which cluster the peer of a folder is, if it has one already.

    Raises:
        ConfigError: the folder cannot be used; `FolderInUse`: another peer has it.
        StateError: it is corrupt.
    """
    if folder is None:
        return None
    with FileDisk(folder) as disk:
        bound = disk.load(_CLUSTER)
    return None if bound is None else bound.decode()


def claim(disk: Disk, config: Config, random_bytes: Callable[[int], bytes]) -> Identity:
    """Have a disk for a peer of `config`, and give who that is; whoever may not have it lets go of it.

    Raises:
        StateError: it is that of a peer of another cluster, cannot be read, or no longer says whose it is.
    """
    try:
        lost = _lost(disk, founds=not config.seeds)
        if lost is not None:
            raise StateError(
                f"data_dir {str(config.data_dir)!r} has lost its {lost}{SUFFIX}, and with it what this peer promised: "
                "put that very file back, or give this peer an empty folder; an older copy would break promises"
            )
        bind(disk, config)
        return Identity.load(disk, _IDENTITY, random_bytes)
    except StateError:
        let_go(disk)
        raise


def _lost(disk: Disk, *, founds: bool) -> str | None:
    """What is gone from a disk, though others of its values show that it was there; if its peer is to found a mesh."""
    life, led, chain = disk.load(_LIFE), disk.load(TERM_KEY), disk.load(acceptor.KEY)
    if chain is None and ((led is not None and founds) or (life is not None and life[_COUNT:])):
        return acceptor.KEY
    later = led is not None or chain is not None
    for key in (_LIFE, _IDENTITY, _CLUSTER):
        here = disk.load(key) is not None
        if later and not here:
            return key
        later = here
    return None


def let_go(disk: Disk) -> None:
    """Leave a folder to whoever wants it next."""
    if isinstance(disk, FileDisk):
        disk.close()


def keep_to(disk: Disk, config: Config, fingerprint: bytes) -> None:
    """Bind a disk to the mesh that this token is of; one without decisions goes wherever its peer is let in.

    Raises:
        StateError: it holds the decisions of a mesh with another token.
    """
    bound = disk.load(_MESH)
    if bound is not None and bound != fingerprint and disk.load(acceptor.KEY) is not None:
        folder = str(config.data_dir)
        raise StateError(
            f"data_dir {folder!r} holds the decisions of a mesh with another token (fingerprint {bound.hex()}, not "
            f"{fingerprint.hex()}): for a new training give each worker an empty folder. If all workers of that mesh "
            f"are to go on under this token, end them all and delete {_MESH}{SUFFIX} in each one's folder first"
        )
    if bound != fingerprint:
        disk.save(_MESH, fingerprint)


def begin_life(disk: Disk) -> int:
    """Count one more life of this disk's peer, and give its number.

    Raises:
        StateError: the disk keeps nothing, or not what it was given.
    """
    life = int.from_bytes((disk.load(_LIFE) or b"")[:_COUNT], "big") + 1
    disk.save(_LIFE, life.to_bytes(_COUNT, "big") + (b"" if disk.load(acceptor.KEY) is None else b"chain"))
    return life


def identity_taken(me: PeerId, address: str) -> StateError:
    """Why this peer must stop: another process, at `address` if that is known, began a later life under its id."""
    where = f" at {address}" if address else ""
    what = f"another process{where} has, or had since this data directory was copied, the identity of this one, {me}"
    return StateError(f"{what}: {NOT_A_COPY} nor an old backup")
