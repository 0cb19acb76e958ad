"""What must survive a crash: a few small values, each written whole or not at all.

An acceptor that forgets a promise breaks Paxos, and an acceptor that misreads one is worse; so a value is
written to a temporary file, synced, renamed over the old one, and the directory is synced (Pillai et al.,
"All File Systems Are Not Created Equal", OSDI 2014: the rename is atomic, but neither the data nor the rename
is durable until both have been synced). A checksum stands before the value. A file that fails it is never
repaired or skipped: the peer must not vote as if it had a memory that it does not have.

A `FileDisk` is held by one process at a time. Two peers on one disk would share an identity and an acceptor,
and together promise what neither may. A fork does not hold it (`forks`). Nor is a directory its name: if it is deleted
under a peer that runs, and another peer makes one of that name, the first has none any more, and stops. So files are
opened relative to the directory that was locked (openat(2)).

What it was left by others is not trusted either. A file is written to an inode of our own, for whoever made one in
advance could read the key in it, and no link is followed. Who owns the folder can put another file in a value's
place: so it is ours, root's, or a volume's that was given to root. That a group may write to it is common on
clusters, and said.

A descriptor is kept in reserve. A training program may use up all that there are (data loaders pass tensors by them),
and for that a voter, whose disk is well, would stop for good.

Files are small (a promise is under 300 KiB) and writes are synchronous on purpose: the driver must not send
before they are done. The price is that a disk that stalls silences its peer, heartbeats and all.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import re
import stat
import struct
from pathlib import Path
from typing import Protocol

from ictp2p.concurrency import logs
from ictp2p.concurrency.forks import held_alone
from ictp2p.errors import ConfigError, FolderInUse, StateError

_log = logging.getLogger(__name__)
_KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_MAGIC = b"ICTD"
_HEADER = struct.Struct("!4sQ16s")  # magic, length of the value, BLAKE2b-128 of key and value
SUFFIX = ".ict"
"""Of a file behind the key of the value in it."""
_INSTEAD = "give this peer an empty folder, for an older copy of this one would break what it promised since"
"""What is left to do where a value cannot be read; see `docs/guarantees.md`."""
_USED_UP = {errno.EMFILE, errno.ENFILE}
_WITH_RESERVE = 3
"""Descriptors that are held, the one in reserve among them."""
_ROOT = 0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_warned: set[Path] = set()
"""Folders that others may write to, of which this process has said so: a peer opens its own more than once."""


class Disk(Protocol):
    """Durable values by key: "identity", "term", "acceptor". Keys are `[a-z0-9]` then `[a-z0-9._-]`."""

    def load(self, key: str) -> bytes | None:
        """Return the value last saved under `key`, or None if there is none.

        Raises:
            StateError: a value is there but is not what was saved.
        """
        ...

    def save(self, key: str, value: bytes) -> None:
        """Have `value` under `key`, durably, before returning.

        Raises:
            StateError: it could not be written.
        """
        ...


class MemoryDisk:
    """A disk for tests and for peers that are not to outlive their process."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def load(self, key: str) -> bytes | None:
        """Return the value last saved under `key`, or None."""
        return self._values.get(_checked(key))

    def save(self, key: str, value: bytes) -> None:
        """Keep `value` under `key`."""
        self._values[_checked(key)] = bytes(value)


class FileDisk:
    """One directory, one file per key, one process at a time. Close it, or use it as a context manager."""

    def __init__(self, directory: Path | str) -> None:
        """Create the directory if need be, and lock it.

        Raises:
            ConfigError: the directory cannot be made or written, or belongs to somebody else.
            FolderInUse: another peer holds it.
        """
        self._directory = Path(directory)
        self._held: list[int] = []
        """The directory, its lock, and what is in reserve, if anything; nothing once it is closed."""
        held_alone(self)
        try:
            _make(self._directory)
            self._held.append(os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            _vet(self._directory, os.fstat(self._held[0]))
            self._held.append(self._open("lock", os.O_RDWR | os.O_CREAT))
        except ConfigError:
            self.close()
            raise
        except OSError as error:
            self.close()
            why = "it is no folder" if isinstance(error, FileExistsError) else error.strerror
            raise ConfigError(f"data directory {str(self._directory)!r} cannot be used: {why}") from error
        try:
            _lock(*self._held)
        except OSError as error:
            self.close()
            place = f"data directory {str(self._directory)!r}"
            if isinstance(error, BlockingIOError):
                raise FolderInUse(f"{place} is in use by another peer: give each worker its own") from error
            raise ConfigError(
                f"{place} cannot be locked ({error.strerror}): keep it on a disk of this machine"
            ) from error
        self._reserve()

    def load(self, key: str) -> bytes | None:
        """Return the value last saved under `key`, or None.

        Raises:
            StateError: the file is unreadable, cut short, or fails its checksum; the message names it.
        """
        path = self._path(key)
        try:
            with os.fdopen(self._open(path.name, os.O_RDONLY), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"cannot read {path}: {error.strerror}") from error
        finally:
            self._reserve()
        if len(data) < _HEADER.size:
            raise StateError(f"{path} is corrupt: {len(data)} bytes are too few for a header; {_INSTEAD}")
        magic, length, checksum = _HEADER.unpack_from(data)
        value = data[_HEADER.size :]
        if magic != _MAGIC or length != len(value) or checksum != _checksum(key, value):
            raise StateError(f"{path} is corrupt: its {len(value)} bytes do not match their checksum; {_INSTEAD}")
        return value

    def save(self, key: str, value: bytes) -> None:
        """Write `value` under `key`: when this returns it survives a power cut; before, the old value does.

        Raises:
            StateError: it could not be written; the message names the file.
        """
        path = self._path(key)
        folder, fresh = self._held[0], path.with_suffix(".new").name
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=folder)  # of a write that a crash cut short, or not ours at all
            with os.fdopen(self._open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(_HEADER.pack(_MAGIC, len(value), _checksum(key, value)) + value)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except OSError as error:
            raise StateError(f"cannot write {path}: {error.strerror}") from error
        finally:
            self._reserve()

    def close(self) -> None:
        """Let another process have the directory. The lock also ends with the process, however it ends."""
        held, self._held = self._held, []
        for descriptor in held:
            os.close(descriptor)

    def __enter__(self) -> FileDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, name: str, flags: int) -> int:
        """Open a file of the directory that is held, for us alone, whatever stands at its path by now, and no link."""
        folder, *_ = self._held
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(name, flags, 0o600, dir_fd=folder)
        except OSError as error:
            if error.errno not in _USED_UP or len(self._held) < _WITH_RESERVE:
                raise
        os.close(self._held.pop())
        return os.open(name, flags, 0o600, dir_fd=folder)

    def _reserve(self) -> None:
        """Keep a descriptor for a time when there are no others."""
        if 0 < len(self._held) < _WITH_RESERVE:
            with contextlib.suppress(OSError):
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _path(self, key: str) -> Path:
        if not self._held:
            raise StateError(f"data directory {str(self._directory)!r} is closed")
        return self._directory / (_checked(key) + SUFFIX)


def _make(directory: Path) -> None:
    """Make the directory and those above it, durably: a crash must not take a promise with the folder that it is in."""
    made = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for each in made or [directory]:  # that was made by a process which died before it came to this
        try:
            parent = os.open(each.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:  # others made it, and it is theirs to keep
            continue
        try:
            os.fsync(parent)
        finally:
            os.close(parent)


def _vet(directory: Path, found: os.stat_result) -> None:
    """Refuse a folder whose owner could put other files in it; root in a container has volumes of any owner.

    Raises:
        ConfigError: it is neither ours nor root's, and we are not root.
    """
    me = os.geteuid()
    if me not in {_ROOT, found.st_uid} and found.st_uid != _ROOT:
        raise ConfigError(
            f"data directory {str(directory)!r} belongs to user {found.st_uid}, who could take this peer's identity: "
            f"use one of user {me}, who runs this, or have this one's owner changed (chown -R {me})"
        )
    if found.st_mode & _OTHERS_WRITE and directory not in _warned:
        _warned.add(directory)
        text = "data directory %r can be written by other users, who could put other files in it: chmod go-w"
        logs.warning(_log, text, str(directory))


def _lock(folder: int, file: int) -> None:
    """Lock the folder as well, for people delete lock files that they take for stale; but NFS knows none of folders."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise StateError(f"disk key {key!r} is not valid: use 1 to 63 of a-z, 0-9, '.', '_', '-'")
    return key


def _checksum(key: str, value: bytes) -> bytes:
    # The key is part of it, so that a file copied over another one is noticed.
    return hashlib.blake2b(key.encode() + b"\0" + value, digest_size=16).digest()
