"""The data phase of an attempt: the plan that was agreed, run on what one leader brings.

What a round is (`Spec.kind`) says which collective runs; whose parts are copied is in the plan. Where a plan has
groups, each is a collective of its own, on its own part of the tensors, and a leader that is in several runs them at
once.
Every collective is fenced by a tag of its own plan, so that what belongs to another attempt, or to another group, is
never taken for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import torch

from ictp2p.carried import Carried, copied, gaps, shares
from ictp2p.collectives import execute, plan
from ictp2p.collectives.channel import Links, RoundTag
from ictp2p.sync.values import Open
from ictp2p.types import ClusterId, PeerId

Holds: TypeAlias = Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, Sequence[torch.Tensor]]]]
"""Gives what is agreed of modules, by their keys."""
Told: TypeAlias = Callable[[int, int], None]
"""Takes the elements `[start, stop)` whose result is in the outputs."""


class DataPhase:
    """One leader's end of the data phases of its rounds.

    Args:
        me: this peer.
        cluster: whom it speaks for.
        links: the data connections.
        profile: deadlines.
    """

    def __init__(self, me: PeerId, cluster: ClusterId, links: Links, profile: execute.ExecuteProfile) -> None:
        self._me = me
        self._cluster = cluster
        self._links = links
        self._profile = profile

    async def run(
        self,
        opened: Open,
        chosen: plan.Plan,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        holds: Holds | None,
        progress: Told,
    ) -> execute.Stats:
        """Have the result in the outputs, and say what that moved.

        Args:
            opened: the attempt.
            chosen: its plan, decoded.
            inputs: what this leader brings; never written.
            outputs: where the result goes.
            holds: gives modules that others lack; None: there are none here.
            progress: told of results as they arrive.

        Raises:
            ConfigError: tensors and plan do not fit together.
            ParticipantLost: a participant died, stalled or gave up; `suspects` names it.
            CollectiveTimeout: it did not end in time.
        """
        if chosen.groups:
            return await self._run_groups(opened, chosen, inputs, outputs, holds, progress)
        if opened.spec.kind in ("broadcast", "gather"):
            _place(chosen, chosen.participants.index(self._me), inputs, outputs)
            return await self._copy(opened, chosen, outputs, progress)
        weights = [p.weight for p in opened.participants]
        scattered = opened.spec.kind in ("scatter", "collect")
        return await self._add_up(opened, chosen, inputs, outputs, weights, progress, scattered=scattered)

    async def _run_groups(
        self,
        opened: Open,
        chosen: plan.Plan,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        holds: Holds | None,
        progress: Told,
    ) -> execute.Stats:
        """Run the plans of all groups that this peer is in, at once."""
        keys = copied(opened, self._cluster)
        held = await holds(keys) if keys and holds is not None else {}
        carried = shares(opened, self._cluster, inputs, outputs, lambda key: held.get(key, ()))
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self._run_group(opened, chosen.groups[number], part, part.told(progress)))
                    for number, part in carried.items()
                ]
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        for start, stop in gaps(carried.values(), sum(output.numel() for output in outputs)):
            progress(start, stop)
        return _together([task.result() for task in running])

    async def _run_group(self, opened: Open, group: plan.Plan, carried: Carried, progress: Told) -> execute.Stats:
        if group.kind == plan.BROADCAST:
            return await self._copy(opened, group, carried.outputs, progress)
        weights = [p.weight for p in opened.participants if p.leader in group.participants]
        return await self._add_up(opened, group, carried.inputs, carried.outputs, weights, progress)

    async def _copy(
        self, opened: Open, group: plan.Plan, tensors: Sequence[torch.Tensor], progress: Told
    ) -> execute.Stats:
        me, tag = group.participants.index(self._me), _tag(opened, group)
        return await execute.broadcast(group, me, tensors, self._links, tag, progress=progress, profile=self._profile)

    async def _add_up(
        self,
        opened: Open,
        group: plan.Plan,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        weights: Sequence[float],
        progress: Told,
        *,
        scattered: bool = False,
    ) -> execute.Stats:
        """Add up, to everybody or, `scattered`, each share to its root."""
        return await (execute.reduce if scattered else execute.all_reduce)(
            group,
            group.participants.index(self._me),
            inputs,
            outputs,
            self._links,
            _tag(opened, group),
            weights=weights,
            op=opened.spec.op,
            progress=progress,
            profile=self._profile,
        )


def _tag(opened: Open, group: plan.Plan) -> RoundTag:
    return RoundTag(opened.lineage, opened.round, opened.attempt, group.digest())


def _place(chosen: plan.Plan, me: int, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
    """Put what we bring where the copies of our part are made from; elsewhere there is nothing to bring."""
    start = next((share.start for share in chosen.shares if share.root == me), None)
    if start is None or not inputs:
        return
    (target,) = outputs
    for given in inputs:
        target[start : start + len(given)].copy_(given)
        start += len(given)


def _together(stats: Sequence[execute.Stats]) -> execute.Stats:
    """What several collectives at once moved."""
    sent, received = sum(each.bytes_sent for each in stats), sum(each.bytes_received for each in stats)
    seconds, peak = max((s.seconds for s in stats), default=0.0), sum(s.staging_peak for s in stats)
    return execute.Stats(sent, received, seconds, peak)
