"""Which values may be decided at all, and which after which.

Every acceptor checks what it is asked to accept, and every learner what it learns, so that no peer with other code, or
with broken memory, gets a value into the chain that the others could not go on from.
"""

from __future__ import annotations

import math

import msgspec

from ictp2p.sync.credits import advanced, restored
from ictp2p.sync.values import (
    LINEAGE_BYTES,
    MAX_PARTICIPANTS,
    MAX_PLAN,
    MAX_VALUE,
    MAX_VOTERS,
    Close,
    Open,
    Restore,
    Value,
    Voters,
    encoded_size,
    upcoming,
)
from ictp2p.wire import MALFORMED


def fault(value: Value) -> str | None:
    """Say what is wrong with a value by itself, or None."""
    if len(value.lineage) != LINEAGE_BYTES:
        return f"lineage has {len(value.lineage)} bytes, not {LINEAGE_BYTES}"
    if not 0 < len(value.voters) <= MAX_VOTERS or len(set(value.voters)) < len(value.voters):
        return f"voters {value.voters} are not 1 to {MAX_VOTERS} different peers"
    if (value.state.version == 0) != (value.state.digest == b""):
        return f"state version {value.state.version} with digest {value.state.digest.hex()!r}"
    names = [name for name, _ in value.state.credits]
    if names != sorted(set(names)) or any(not 0 < v <= value.state.version for _, v in value.state.credits):
        return f"credits {value.state.credits} at version {value.state.version}"
    if len(value.state.earlier) not in (0, len(names)):
        return f"{len(value.state.earlier)} words on what was before {len(names)} credits"
    if isinstance(value, Open):
        return _open_fault(value)
    if isinstance(value, Close) and value.committed != bool(value.holders):
        return f"committed={value.committed} with holders {value.holders}"
    if isinstance(value, Close) and value.camps and (value.committed or len(value.camps) == 1):
        return f"committed={value.committed} with camps {value.camps}"
    return None


def unreadable(value: Value) -> str | None:
    """Say why nobody could read a value once it is written, or None.

    What is read is checked, and what is written is not. A decision that nobody can read ends a mesh: it is on disks.
    """
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=Value)
    except MALFORMED as error:
        return str(error)
    return None


def follows(before: Value, value: Value) -> str | None:
    """Say why `value` may not be decided right after `before`, or None if it may."""
    wrong = fault(value)
    if wrong is not None:
        return wrong
    if value.lineage != before.lineage:
        return f"lineage {value.lineage.hex()} after {before.lineage.hex()}"
    if (value.round, value.attempt) != upcoming(before):
        return f"round {value.round} attempt {value.attempt} where {upcoming(before)} is due"
    if isinstance(value, Close) != isinstance(before, Open):
        return f"{type(value).__name__} after {type(before).__name__}"
    return _state_fault(before, value)


def _open_fault(value: Open) -> str | None:
    if not 0 < len(value.participants) <= MAX_PARTICIPANTS:
        return f"{len(value.participants)} participants"
    if len({p.cluster for p in value.participants}) < len(value.participants):
        return "a cluster takes part twice"
    if len({p.leader for p in value.participants}) < len(value.participants):
        return "a leader takes part twice"
    for participant in value.participants:
        if not (math.isfinite(participant.weight) and participant.weight > 0):
            return f"weight {participant.weight} of {participant.cluster} is not finite and positive"
    if not (math.isfinite(value.deadline) and value.deadline > 0):
        return f"deadline {value.deadline} is not finite and positive"
    if len(value.plan) > MAX_PLAN:
        return f"plan of {len(value.plan)} bytes"
    if value.spec.kind == "sync" and value.state.version == 0:
        return "a sync round before any state was adopted"
    if (size := encoded_size(value)) > MAX_VALUE:
        return (
            f"{size} bytes, of which {len(value.participants)} participants with their notes; {MAX_VALUE} can be sent"
        )
    return None


def _state_fault(before: Value, value: Value) -> str | None:
    if isinstance(value, Close) and isinstance(before, Open):
        leaders = {p.leader for p in before.participants}
        if not leaders.issuperset(value.holders):
            return f"holders {value.holders} are not all participants"
        voted = [name for camp in value.camps for name in camp]
        if len(set(voted)) < len(voted) or not {p.cluster for p in before.participants}.issuperset(voted):
            return f"camps {value.camps} are not participants, each once"
        expected = advanced(before, value.digest, value.holders) if value.committed else before.state
        return None if value.state == expected else f"state {value.state} where {expected} follows"
    if isinstance(value, Restore):
        return _restore_fault(before, value)
    adopted = isinstance(value, Voters) and before.state.version == 0 and value.state.version == 1
    return None if adopted or value.state == before.state else f"state {value.state} after {before.state}"


def _restore_fault(before: Value, value: Restore) -> str | None:
    lost = before.state.version
    if not value.source < lost:
        return f"version {value.source} cannot stand in for version {lost}"
    expected = restored(before.state, value.source, value.state.digest, value.state.providers)
    if value.state != expected or not value.state.providers:
        return f"state {value.state} where version {lost + 1} with providers is to be restored"
    return None
