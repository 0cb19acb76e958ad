"""Checkpoints: the agreed state in one file, from which any number of clusters starts again.

A mesh survives the death of any peer, but not of all of them; and a training is continued, branched and examined by
programs that know nothing of meshes. So the format is a common one, safetensors: the tensors under the model's own
names (and the outer optimizer's as `outer <key> of <name>`), no code and no pickle. The words beside them (version,
digest, counters, settings) are what the manifest of the state holds, so a file is checked against its digest, and
against the training that loads it, in the words of the first difference.

What is in a file says nothing about who wrote it: it is the same, byte for byte, on every worker at that version. A
mesh that is founded from it agrees on it as it agrees on initial weights: whoever founds it must have the file, and
those who have no copy fetch it. The mesh that wrote it knows it again by its lineage, and by its version how old it is:
that is all it takes to go back to the newest of several (`restore`).

Of a model whose shards are agreed on each in a mesh of its own every shard has a file, and rounds of its own. How old
these are beside each other says the number of steps that all shards had been trained for in common when the file was
written: in that word alone two files of a version may differ.

With `local` the file also has what only the cluster holds: the model as it is trained by now, the state of the inner
optimizer, and whatever else the policy carries. That part is for the same cluster to go on from, and has a digest of
its own.

Written in a folder of its own beside its place, synced and renamed, so that a name always stands for a whole file. Who
is killed meanwhile leaves that folder behind, with as many bytes as a model has: the next one that writes the same file
clears it away. What is agreed may be written by any thread beside training, and is all of one version; what is local
is read as it is, so by the one that trains.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ictp2p.errors import ConfigError, StateError, shown
from ictp2p.sync.state.global_state import GlobalState
from ictp2p.sync.state.manifest import Entry, describe, difference
from ictp2p.sync.state.pack import octets

_KEY = "ictp2p"
_FORMAT = 2
_LOCK = "ictp2p.lock"
"""In the folder of a file that is being written."""
_LOCAL = "local "
"""Before the number of a tensor of the cluster's own part."""
_ODD = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What reading words raises that another program wrote."""


def save(
    path: str | os.PathLike[str],
    state: GlobalState,
    local: tuple[bytes, Sequence[Tensor]] | None = None,
    trained: int | None = None,
) -> None:
    """Write the committed state to a file, whole or not at all.

    Args:
        path: the file; its folder must exist.
        state: what was agreed.
        local: a skeleton and tensors that only the cluster holds (`pack.pack`).
        trained: the steps that all shards of the model were trained for; None where this is all of it.

    Raises:
        ConfigError: no file can have that name.
        StateError: it could not be written.
    """
    file = place(path)
    own = _Local(local[0], [tensor.detach().cpu().contiguous() for tensor in local[1]]) if local else None
    words, tensors = state.steadily(lambda: _held(state))
    words["trained"] = trained
    words["local"] = [own.skeleton.hex(), own.digest().hex()] if own else None
    for number, tensor in enumerate(own.tensors if own else ()):
        tensors[f"{_LOCAL}{number}"] = tensor.clone()
    _write(file, tensors, {_KEY: json.dumps(words)})


class Checkpoint:
    """A file that was opened and found to be a checkpoint.

    Args:
        path: the file.

    Raises:
        ConfigError: no file can have that name.
        StateError: there is no such file, or it is none of ours.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = place(path)
        try:
            if self._path.is_dir():
                raise StateError(f"{self._path} is no checkpoint, but a folder: give the file in it")
            with safe_open(self._path, "pt") as file:
                metadata: Mapping[str, str] = file.metadata() or {}
                if _KEY not in metadata:
                    what = "holds tensors and not what `save` of a policy wrote beside them"
                    raise StateError(
                        f"{self._path} is no checkpoint: it {what}; weights alone go into the model by its "
                        "load_state_dict, before the policy"
                    )
                words: dict[str, Any] = json.loads(metadata[_KEY])
            if words["format"] != _FORMAT:
                raise StateError(f"checkpoint {self._path} has format {words['format']!r}, not {_FORMAT}")
            self.version = int(words["version"])
            """Of the state when it was written."""
            self.lineage = bytes.fromhex(words.get("lineage", ""))
            """Of which founding of a mesh that version is; empty where nobody had agreed on it, or it was not noted."""
            self.digest = bytes.fromhex(words["digest"])
            self._entries = tuple(Entry(name, dtype, tuple(shape)) for name, dtype, shape in words["entries"])
            self._settings = tuple((str(name), str(value)) for name, value in words["settings"])
            self.counters = {str(name): int(value) for name, value in words["counters"].items()}
            """Such as the number of rounds."""
            self.trained = None if words.get("trained") is None else int(words["trained"])
            """Steps that all shards of the model were trained for, if this is one."""
            self._local = tuple(bytes.fromhex(word) for word in words["local"] or ())
        except FileNotFoundError as error:
            raise StateError(f"there is no checkpoint {self._path}") from error
        except (OSError, SafetensorError, *_ODD) as error:
            raise StateError(f"{self._path} is no checkpoint: {type(error).__name__}: {error}") from error

    def load(self, state: GlobalState) -> None:
        """Make a state that was not agreed on yet (version 0) this one.

        Raises:
            ConfigError: it is another training's; the first difference is named. `state` is as it was.
            StateError: the bytes are not those that were written. `state` is as it was.
        """
        ours, theirs = describe(state.entries, state.settings), describe(self._entries, self._settings)
        wrong = difference(ours, theirs)
        if wrong is not None:
            fits = difference(describe(state.entries, ()), describe(self._entries, ())) is None
            mend = ". Give what it was written with, or begin a new mesh from its weights alone" if fits else ""
            raise ConfigError(f"checkpoint {self._path} is of another training: {wrong}{mend}")
        tentative = state.begin()
        for name, tensor in self._tensors([e.name for e in self._entries]).items():
            if tensor.shape != tentative[name].shape or tensor.dtype != tentative[name].dtype:
                state.rollback()
                raise StateError(f"checkpoint {self._path} holds {name!r} as {tensor.dtype}{list(tensor.shape)}")
            tentative[name].copy_(tensor)
        state.seal(self.counters)
        if state.next_contents != self.digest:
            state.rollback()
            raise StateError(f"checkpoint {self._path} does not have the digest that it was written with")
        state.commit(0)

    def local(self) -> tuple[bytes, list[Tensor]] | None:
        """The cluster's own part, if there is one: a skeleton and tensors.

        Raises:
            StateError: the bytes are not those that were written.
        """
        if not self._local:
            return None
        with safe_open(self._path, "pt") as file:
            count = sum(name.startswith(_LOCAL) for name in file.keys())  # noqa: SIM118 - no mapping
        tensors = self._tensors([f"{_LOCAL}{number}" for number in range(count)])
        own = _Local(self._local[0], list(tensors.values()))
        if own.digest() != self._local[-1]:
            raise StateError(f"the cluster's own part of checkpoint {self._path} does not have its digest")
        return own.skeleton, own.tensors

    def _tensors(self, names: Sequence[str]) -> dict[str, Tensor]:
        try:
            with safe_open(self._path, "pt") as file:
                return {name: file.get_tensor(name) for name in names}
        except (OSError, SafetensorError) as error:
            raise StateError(f"checkpoint {self._path} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class _Local:
    """What only a cluster holds, on the CPU."""

    skeleton: bytes
    tensors: list[Tensor]

    def digest(self) -> bytes:
        hashed = hashlib.sha256(self.skeleton)
        for tensor in self.tensors:
            hashed.update(f"{tensor.dtype}{list(tensor.shape)}".encode())
            hashed.update(octets(tensor))
        return hashed.digest()


def place(path: str | os.PathLike[str]) -> Path:
    """Where a file is to be.

    Raises:
        ConfigError: it is no path, an empty one, or one that no system knows.
    """
    try:
        name = os.fspath(path)
        fits = isinstance(name, str) and name != "" and b"\0" not in os.fsencode(name)
    except (TypeError, UnicodeEncodeError):
        fits = False
    if not fits:
        raise ConfigError(f"{shown(path)} is not valid as the name of a checkpoint")
    return Path(path)


def _held(state: GlobalState) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What is agreed, and the words for it."""
    words = {
        "format": _FORMAT,
        "version": state.version,
        "lineage": state.lineage.hex() if state.version else "",
        "digest": state.contents.hex(),
        "counters": state.counters,
        "settings": state.settings,
        "entries": [[e.name, e.dtype, e.shape] for e in state.entries],
    }
    return words, {name: tensor.clone() for name, tensor in state.committed.items()}


def _write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    try:
        if path.exists() and not path.is_file():  # a device, say, in whose place there would be a file then
            raise StateError(f"checkpoint {path} could not be written: what has that name is no file")
        _clear(path)
        with _workshop(path) as folder:
            made = folder / path.name
            save_file(tensors, made, metadata)
            _sync(made)
            made.replace(path)
            _sync(path.parent)
    except (OSError, SafetensorError) as error:
        raise StateError(f"checkpoint {path} could not be written: {error}") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _workshop(path: Path) -> Iterator[Path]:
    """A folder to write a file in, beside its place; locked before anything is in it, for as long as we live."""
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        with (folder / _LOCK).open("wb") as lock:
            with contextlib.suppress(OSError):  # a file system without locks: then nobody takes it for left behind
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clear(path: Path) -> None:
    """Remove what those left behind who were killed while they wrote this file; those who write it now hold locks."""
    for folder in path.parent.glob(f".{glob.escape(path.name)}.*/"):
        with contextlib.suppress(OSError), (folder / _LOCK).open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if any(made.name != _LOCK for made in folder.iterdir()):  # else its lock may be about to be taken
                shutil.rmtree(folder, ignore_errors=True)
