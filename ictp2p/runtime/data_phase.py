"""The data phase of an attempt: the plan that was agreed, run on what one leader brings.

What a round is (`Spec.kind`) says which collective runs; whose parts are copied is in the plan. Where a plan has
groups, each is a collective of its own, on its own part of the tensors, and a leader that is in several runs them at
once.
Every collective is fenced by a tag of its own plan, so that what belongs to another attempt, or to another group, is
never taken for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from ictp2p.collectives import plan
from ictp2p.collectives.channel import Links, RoundTag
from ictp2p.collectives.running import execute
from ictp2p.collectives.running.attempt import ExecuteProfile, together
from ictp2p.collectives.running.flat import Flat
from ictp2p.errors import ConfigError
from ictp2p.runtime.carried import copied, gaps, shares
from ictp2p.sync.values import Open, Spec
from ictp2p.types import ClusterId, PeerId

Holds: TypeAlias = Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, Sequence[torch.Tensor]]]]
"""Gives what is agreed of modules, by their keys."""
Told: TypeAlias = Callable[[int, int], None]
"""Takes the elements `[start, stop)` whose result is in the outputs."""
_DUE = {"broadcast": plan.BROADCAST, "gather": plan.BROADCAST, "scatter": plan.REDUCE, "collect": plan.REDUCE}
"""By kind of round the one kind of plan that does it; a sum for everybody has many."""
_NO_ROUND = frozenset({plan.BROADCAST, plan.REDUCE, plan.ONE_SHOT, plan.GROUPS})
"""Kinds of plans by which no round in which all average all adds up: each element of its result is made in one place,
and copied to all."""


@dataclass(frozen=True, slots=True)
class Brought:
    """A leader's part in a collective: what it brings, and where the result goes."""

    inputs: Sequence[torch.Tensor]
    """Never written."""
    outputs: Sequence[torch.Tensor]
    """Garbage until the collective has ended well."""
    progress: Told
    """Told of results as they arrive."""
    holds: Holds | None = None
    """Gives modules that others lack; None: there are none here."""


def check_kind(chosen: plan.Plan, spec: Spec) -> str | None:
    """Say why a plan does not do what a round is for, or None.

    A plan of sums that is taken for one of copies would hand on what happens to lie in memory, the same everywhere; so
    would one of groups, if there are none. What groups do follows from what was decided (`core.grouping.check_groups`).
    """
    due = _DUE.get(spec.kind) if spec.grouping == "all" else plan.GROUPS
    fits = chosen.kind == due if due else chosen.kind not in _NO_ROUND
    return None if fits else f"a plan of kind {chosen.kind!r} does not do what a {spec.kind} is for"


class DataPhase:
    """One leader's end of the data phases of its rounds.

    Args:
        me: this peer.
        cluster: whom it speaks for.
        links: the data connections.
        profile: deadlines.
    """

    def __init__(self, me: PeerId, cluster: ClusterId, links: Links, profile: ExecuteProfile) -> None:
        self._me = me
        self._cluster = cluster
        self._links = links
        self._profile = profile

    async def run(self, opened: Open, chosen: plan.Plan, brought: Brought) -> execute.Stats:
        """Have the result in the outputs, and say what that moved.

        Args:
            opened: the attempt.
            chosen: its plan, decoded, for which `check_kind` has nothing to say.
            brought: this leader's part.

        Raises:
            ConfigError: tensors and plan do not fit together.
            ParticipantLost: a participant died, stalled or gave up; `suspects` names it.
            CollectiveTimeout: it did not end in time.
        """
        if chosen.kind == plan.GROUPS:
            return await self._run_groups(opened, chosen, brought)
        if chosen.kind == plan.BROADCAST:
            _place(chosen, chosen.participants.index(self._me), brought)
        return await self._run_one(opened, chosen, brought)

    async def _run_groups(self, opened: Open, chosen: plan.Plan, brought: Brought) -> execute.Stats:
        """Run the plans of all groups that this peer is in, at once."""
        keys = copied(opened, self._cluster)
        held = await brought.holds(keys) if keys and brought.holds is not None else {}
        carried = shares(opened, self._cluster, brought.inputs, brought.outputs, lambda key: held.get(key, ()))
        parts = {n: Brought(part.inputs, part.outputs, part.told(brought.progress)) for n, part in carried.items()}
        stats = await together(self._run_one(opened, chosen.groups[n], part) for n, part in parts.items())
        for start, stop in gaps(carried.values(), sum(output.numel() for output in brought.outputs)):
            brought.progress(start, stop)
        return _summed(stats)

    async def _run_one(self, opened: Open, one: plan.Plan, brought: Brought) -> execute.Stats:
        """Run one collective: copies, or sums for everybody, or sums each for the root of its share."""
        me, tag = one.participants.index(self._me), _tag(opened, one)
        told, profile, circle = brought.progress, self._profile, [p.leader for p in opened.participants]
        if one.kind == plan.BROADCAST:
            return await execute.broadcast(
                one, me, brought.outputs, self._links, tag, progress=told, profile=profile, circle=circle
            )
        weights = {p.leader: p.weight for p in opened.participants}
        add_up = execute.reduce if one.kind == plan.REDUCE else execute.all_reduce
        return await add_up(
            one,
            me,
            brought.inputs,
            brought.outputs,
            self._links,
            tag,
            weights=[weights[PeerId(name)] for name in one.participants],
            op=opened.spec.op,
            progress=told,
            profile=profile,
            circle=circle,
        )


def _tag(opened: Open, one: plan.Plan) -> RoundTag:
    return RoundTag(opened.lineage, opened.round, opened.attempt, one.digest())


def _place(chosen: plan.Plan, me: int, brought: Brought) -> None:
    """Put what we bring where the copies of our part are made from; who is no root has nothing that is wanted.

    Raises:
        ConfigError: it is not what the plan copies from here: others would get what happens to lie in our outputs.
    """
    source, target = Flat(brought.inputs, "inputs"), Flat(brought.outputs, "outputs")
    mine = [share for share in chosen.shares if share.root == me and share.start < share.stop]
    due = sum(share.stop - share.start for share in mine)
    if due and (source.elements != due or target.elements != chosen.elements or source.dtype != target.dtype):
        raise ConfigError(
            f"{source.elements} inputs of {source.dtype} and {target.elements} outputs of {target.dtype} do not fit "
            f"a plan that copies {due} of {chosen.elements} elements from here"
        )
    at = 0
    for share in mine:
        for place in target.ranges(share.start, share.stop):
            torch.cat(source.ranges(at, at + len(place)), out=place)
            at += len(place)


def _summed(stats: Sequence[execute.Stats]) -> execute.Stats:
    """What several collectives at once moved."""
    sent, received = sum(each.bytes_sent for each in stats), sum(each.bytes_received for each in stats)
    seconds, peak = max((s.seconds for s in stats), default=0.0), sum(s.staging_peak for s in stats)
    return execute.Stats(sent, received, seconds, peak)
