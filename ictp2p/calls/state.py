"""`sync_state`: afterwards everybody holds the same bytes.

The mesh's chain of decisions holds the agreed state (version, digest, providers), so there is somebody to ask at any
moment and nobody in the middle:

- There is none yet: the first state that is offered becomes version 1.
- We never had it: fetch it, from any provider, while the others do something else. So a newcomer needs no round.
- We are behind it: the same.
- We are at it: a round in which everybody brings the digest of what it has *now*. The digest is part of the round's
  specification, so the digest that most clusters bring is elected as any specification is; it becomes the next
  version, and whoever brought another fetches it. Where all computed the same, 32 bytes were exchanged and no tensor.

The workers of a cluster are made identical first, to the one with the newest agreed state.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
from collections.abc import Callable, Mapping

import msgspec
import torch
from torch import Tensor

from ictp2p.calls.chronicle import Chronicle
from ictp2p.calls.deadline import Deadline
from ictp2p.calls.handing import Answer
from ictp2p.calls.heads import Heads
from ictp2p.calls.telling import as_told, tell_failure, tell_success
from ictp2p.calls.tensors import overwrite, unusable
from ictp2p.errors import (
    ConfigError,
    IctError,
    LocalGroupError,
    MeshMismatch,
    PeerClosed,
    RoundAborted,
    RoundMissed,
    StateError,
    shown,
)
from ictp2p.sync.cluster.broadcasts import broadcast_bytes
from ictp2p.sync.cluster.heal import share_state
from ictp2p.sync.mesh import Group, RoundRequest
from ictp2p.sync.rounds.wording import in_words
from ictp2p.sync.state.global_state import GlobalState, entry
from ictp2p.sync.state.manifest import CHUNK, check, config_digest, describe
from ictp2p.sync.two_level.stream import Kind, Publisher, Verdict, follow
from ictp2p.sync.values import SYNC_STATE, Open, Spec, StateRef
from ictp2p.training.mesh import TrainingMesh

_HELD = struct.Struct("<Q32s")
_BROUGHT = struct.Struct("<Q32s32s")
_NOTHING = torch.empty(0, dtype=torch.uint8, device="cpu")
_NONE = StateRef(0, b"", ())
_PAUSE = 0.5
"""Seconds between two looks at whether the state has moved, if no decision wakes us."""


class Synced(msgspec.Struct, frozen=True, array_like=True):
    """What everybody holds now."""

    version: int
    """Of the agreed state; one more with each round."""
    received: bool
    """Whether this worker's tensors were changed."""


class Mirror(GlobalState):
    """A copy of the user's tensors that answers for its other half as well, as long as that is whole.

    While the mesh votes on what we bring now, the agreed state is still the one before, and newcomers fetch it.
    """

    _before: tuple[bytes, bytes] = (b"", b"")
    """Digest and manifest of the other half."""
    _confirmed: tuple[int, bytes] = (0, b"")
    """What the mesh agreed on last, of what was here."""

    def commit(self, version: int) -> None:
        """Make the sealed half the committed one; the other is what was."""
        was = (self.digest, self._manifest_bytes)
        super().commit(version)
        self._before = was

    def confirm(self, version: int) -> None:
        """Take the mesh's word that the committed half is this version."""
        super().confirm(version)
        self._confirmed = (version, self.digest)

    def _answered_for(self) -> tuple[int, bytes]:
        """The agreed state, as long as either half is that."""
        confirmed = self._confirmed
        return confirmed if confirmed[1] in (self.digest, self._before[0]) else (0, b"")

    def forget(self) -> None:
        """The other half is about to be written."""
        self._before = (b"", b"")

    def release(self) -> None:
        """Give back the memory of the other half."""
        self.forget()
        super().release()

    def expect(self, encoded: bytes, digest: bytes) -> list[int]:
        """Prepare to receive a state; see `GlobalState.expect`."""
        self.forget()
        return super().expect(encoded, digest)

    def manifest(self, digest: bytes) -> bytes:
        """The manifest of either half."""
        before, manifest = self._before
        return manifest if digest == before != b"" else super().manifest(digest)

    def chunk(self, digest: bytes, index: int) -> bytes:
        """A chunk of either half. One that is being overwritten fails its digest where it arrives."""
        if digest == self._before[0] != b"":
            return bytes(self.memory(committed=False)[index * CHUNK : (index + 1) * CHUNK])
        return super().chunk(digest, index)


class SharedState:
    """What this worker holds of the agreed state, from one call to the next.

    Args:
        state: the user's tensors, by name; their names, types and shapes stay.
    """

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        entries = [entry(name, tensor) for name, tensor in sorted(state.items())]
        self.items = describe(entries, [("policy", SYNC_STATE)])
        self.mirror = Mirror(entries, [("policy", SYNC_STATE)])
        self.agreed: StateRef | None = None
        """What the mesh agreed on when we last looked, and the mirror holds."""

    @torch.no_grad()
    def take(self, state: Mapping[str, Tensor]) -> bytes:
        """Copy the user's tensors in; their digest."""
        self.mirror.forget()
        for name, tensor in self.mirror.tentative.items():
            tensor.copy_(state[name].detach())
        digest = self.mirror.seal({})
        self.mirror.commit(self.agreed.version if self.agreed else 0)
        return digest

    def give(self, state: Mapping[str, Tensor]) -> None:
        """Copy them back."""
        for name, tensor in self.mirror.committed.items():
            overwrite(state[name], tensor)

    @property
    def held(self) -> int:
        """Version of the agreed state, if the mirror holds just that; else 0."""
        agreed = self.agreed
        return agreed.version if agreed is not None and agreed.digest == self.mirror.digest else 0

    def settle(self, ref: StateRef) -> None:
        """The mirror holds the agreed state `ref`."""
        self.mirror.confirm(ref.version)
        self.agreed = ref

    def answer(self, fingerprint: bytes) -> Answer | None:
        """The agreed state, for a worker that has none; None if we do not hold it."""
        if not self.held:
            return None
        assert self.agreed is not None
        encoded = _HELD.pack(self.agreed.version, self.agreed.digest)
        return Answer(fingerprint, encoded, torch.frombuffer(self.mirror.memory(committed=True), dtype=torch.uint8))


class SyncState:
    """One call of it."""

    asks_state = True
    weight = 1.0

    def __init__(
        self, mesh: TrainingMesh, chronicle: Chronicle, shared: SharedState, tensors: Mapping[str, Tensor]
    ) -> None:
        self._mesh = mesh
        self._chronicle = chronicle
        self._shared = shared
        self._tensors = tensors
        self._before = b""
        self.fingerprint = fingerprint(shared)
        self.text = f"{SYNC_STATE}({', '.join(f'{name}: {value}' for name, value in shared.items)})"[:1024]

    def act(self, group: Group, heads: Heads, deadline: Deadline) -> Answer:
        """Agree with the cluster, then with the mesh; see `runner.Call`."""
        self._before = self._before or self._shared.take(self._tensors)
        agreed = self._unify(group)
        if group.rank == 0:
            self._lead(group, agreed, deadline)
        else:
            self._follow(group)
        self._chronicle.settle()
        answer = self._shared.answer(self.fingerprint)
        assert answer is not None, "the mesh has agreed on it"
        return answer

    def accept(self, answer: Answer) -> Synced:
        """Write the agreed state into the caller's tensors, if they differ from it."""
        version, digest = _HELD.unpack(answer.encoded)
        mirror = self._shared.mirror
        self._before = self._before or self._shared.take(self._tensors)
        if mirror.digest != digest:  # handed over by a worker of the cluster
            mirror.forget()
            mirror.memory(committed=False)[:] = answer.memory.numpy().data
            if mirror.seal({}) != digest:
                raise StateError(f"state version {version} was handed over damaged")
            mirror.commit(version)
        self._shared.settle(StateRef(version, digest, ()))
        received = digest != self._before
        if received:
            self._shared.give(self._tensors)
        return Synced(version, received)

    # ------------------------------------------------------------ inside the cluster

    def _unify(self, group: Group) -> StateRef | None:
        """Give all workers of the cluster what the one with the newest agreed state has; that, if there is one.

        What they bring now goes on from there, also where its leader has just come, and held none. It keeps nothing
        of that: if the call fails its tensors are as they were.
        """
        agreed = self._shared.agreed or _NONE
        mine = _BROUGHT.pack(agreed.version, agreed.digest, self._shared.mirror.digest)
        held = [_BROUGHT.unpack(data) for data in group.all_gather(mine)]
        newest = max(version for version, _, _ in held)
        source = next(rank for rank, (version, _, _) in enumerate(held) if version == newest)
        if len({brought for _, _, brought in held}) > 1:
            share_state(group, self._shared.mirror, source, newest)
        return StateRef(newest, held[source][1], ()) if newest else None

    def _follow(self, group: Group) -> None:
        verdict = follow(group, _NOTHING, lambda: None)
        encoded = broadcast_bytes(group, b"", 0)
        if verdict.kind not in (Kind.COMMIT, Kind.ADOPT):
            raise as_told(encoded)
        if verdict.kind is Kind.ADOPT:
            share_state(group, self._shared.mirror, 0, verdict.version)
        if self._shared.mirror.digest != verdict.digest:
            raise LocalGroupError(f"this worker does not hold what leader {group.members[0]} agreed on")
        self._shared.settle(StateRef(verdict.version, verdict.digest, ()))

    def _lead(self, group: Group, agreed: StateRef | None, deadline: Deadline) -> None:
        publisher = Publisher(group, _NOTHING)

        def idle() -> None:
            deadline.check()
            publisher.wait()

        ours = self._shared.mirror.digest
        try:
            ref = _Agreement(self._mesh, self._chronicle, self._shared, idle).reach(agreed)
        except PeerClosed:
            raise
        except RoundAborted as error:
            raise LocalGroupError(str(error)) from error
        except IctError as error:
            tell_failure(group, publisher, error)
            raise
        self._shared.settle(ref)
        kind = Kind.COMMIT if ref.digest == ours else Kind.ADOPT
        tell_success(group, publisher, Verdict(kind, ref.version, ref.digest), b"")
        if not publisher.broken and kind is Kind.ADOPT:
            with contextlib.suppress(LocalGroupError):  # as `tell_success`: who misses it is handed it later
                share_state(group, self._shared.mirror, 0, ref.version)


class _Agreement:
    """The leader's way to the agreed state: with the mirror holding what it brings, then what was agreed."""

    def __init__(self, mesh: TrainingMesh, chronicle: Chronicle, shared: SharedState, idle: Callable[[], None]) -> None:
        self._mesh = mesh
        self._chronicle = chronicle
        self._shared = shared
        self._idle = idle

    def reach(self, agreed: StateRef | None) -> StateRef:
        """Agree, `agreed` being the newest state that the cluster has come from.

        Raises:
            MeshMismatch: the mesh shares something else; the first difference is named.
            RoundMissed: the other clusters are at another call.
            StateError: nobody can provide the state.
        """
        mirror = self._shared.mirror
        ref = self._mesh.decided_state()
        if ref.version == 0:
            ref = self._mesh.offer(mirror.digest, self._idle)
        elif agreed is not None and agreed.digest == ref.digest:
            ref = self._elect(ref)
        ref = ref if ref.digest == mirror.digest else self._fetch(ref)
        self._mesh.take_part()
        return ref

    def _elect(self, base: StateRef) -> StateRef:
        """Make what most clusters bring the next version; that version, whether it is ours or not."""
        digest, before = self._shared.mirror.digest, self._chronicle.opened
        request = RoundRequest(
            spec=Spec("sync", SYNC_STATE, "uint8", 0, "sum", "none", config_digest(self._shared.items) + digest),
            base=base,
            weight=1.0,
            inputs=(),
            outputs=(),
            finish=lambda: digest,
            progress=lambda start, stop: None,
            restarted=lambda attempt, parts: None,
            idle=self._idle,
        )
        try:
            return self._mesh.round(request).state
        except RoundMissed:
            return self._mesh.decided_state()
        except MeshMismatch as error:
            return self._outvoted(base, before, error)

    def _outvoted(self, base: StateRef, before: Open | None, error: MeshMismatch) -> StateRef:
        """Others brought another digest, or are at another call."""
        while True:
            ref, opened = self._mesh.decided_state(), self._chronicle.opened
            if ref.version > base.version:
                return ref
            if opened is not None and opened is not before and opened.spec.name != SYNC_STATE:
                self._outlast(opened)
                raise RoundMissed(
                    f"the other clusters are at {in_words(opened.spec)}, this one is at {SYNC_STATE}"
                ) from error
            self._idle()
            self._chronicle.wait(_PAUSE)

    def _outlast(self, opened: Open) -> None:
        """Wait for the end of a round that this cluster is not in: what this call comes to accounts for it."""
        while not self._chronicle.ended(opened.round, _PAUSE):
            self._idle()
        if not self._chronicle.newcomer:
            self._chronicle.settle(opened.round)

    def _fetch(self, ref: StateRef) -> StateRef:
        """Get the agreed state; the next one, if its providers are about to agree on that."""
        while True:
            try:
                self._mesh.fetch_state(ref, self._shared.mirror, self._idle)
                return ref
            except StateError:
                newer = self._mesh.decided_state()
                if newer.digest == ref.digest:
                    self._idle()  # ends by the deadline
                    self._chronicle.wait(_PAUSE)
                ref = self._mesh.decided_state()


def check_state(state: object) -> None:
    """See whether the tensors can be shared.

    Raises:
        ConfigError: there are none, or one cannot travel; it is named.
    """
    if not isinstance(state, Mapping):
        kind = type(state).__name__
        raise ConfigError(f"state must be a mapping of names to tensors, such as model.state_dict(), not a {kind}")
    if not state:
        raise ConfigError("the shared state is empty")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ConfigError(f"state {shown(name)} is not a tensor by name: {type(tensor).__name__}")
        if objection := unusable(tensor, written=True):
            raise ConfigError(f"state {name!r} {objection}")
    check([entry(name, tensor) for name, tensor in state.items()])


def fingerprint(shared: SharedState) -> bytes:
    """Which call it is: the same for the same names, types and shapes."""
    return hashlib.blake2b(config_digest(shared.items), digest_size=32, person=b"sync_state").digest()
