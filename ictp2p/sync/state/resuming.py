"""What a checkpoint is to the mesh that its policy joins: the same history, another one, or one that was given up.

A file says of itself which mesh agreed on it (`lineage`), and how far that was. Joined to that very mesh, what was
loaded *is* a version of it, and is held as that one: so a mesh of which only files are left goes back to the newest.
Joined to any other mesh it is initial weights that look like a version, and must not pass for one.

A mesh that is further goes its own way, and the file is merely old. But one that is *behind* the file has either gone
back since, with a loss that it decided and nobody here could prevent; or it was founded without the file, by a worker
that should have loaded it. To train on would quietly drop what the file holds, which is why it was given: refused.
"""

from __future__ import annotations

from ictp2p.errors import StateError
from ictp2p.sync.state.checkpoint import Checkpoint
from ictp2p.sync.state.global_state import GlobalState


def recognize(loaded: Checkpoint, state: GlobalState) -> None:
    """Hold a state that was loaded, and that its mesh has agreed on, as that mesh's version, by name and number."""
    if state.version == 0 and _is_of(loaded, state):
        state.brought = loaded.version


def given_up(loaded: Checkpoint, state: GlobalState) -> str | None:
    """Say in words that the mesh has gone back to before a checkpoint of its own; None if it is as far.

    Raises:
        StateError: it is not as far, and was founded without the file.
    """
    rounds = state.counters["round"]
    if rounds >= loaded.counters["round"]:
        return None
    further = f"the checkpoint is of round {loaded.counters['round']}, but the mesh is at round {rounds}"
    if not _is_of(loaded, state):
        raise StateError(f"{further}, and was founded without it: found it by a worker that loads the newest one")
    gone = f"it went back before version {loaded.version} was there to go on from; what came after is lost"
    return f"{further}: {gone}"


def _is_of(loaded: Checkpoint, state: GlobalState) -> bool:
    return loaded.lineage != b"" and loaded.lineage == state.lineage
