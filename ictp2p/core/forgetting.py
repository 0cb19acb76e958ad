"""When those who are there no more are forgotten, so that nobody is dialed for ever; `directory` says who they are.

Whoever cannot tell who is there, since no quorum of the mesh is in touch, forgets no cluster.
"""

from __future__ import annotations

from ictp2p.core.context import Context
from ictp2p.core.meetings import Meetings
from ictp2p.core.post import Post
from ictp2p.types import ClusterId

_SWEEP = 60.0
"""Seconds between two looks at who may be forgotten. No timer of its own: something is due every few seconds anyway."""

_CARDS = 24
"""Times as long as membership remembers the dead, a day: only who still has the other's card can heal a partition."""

_LAST = 32
"""Dead clusters that are dialed for good: there may be one that is back, and cannot dial."""

_FORMER = 128
"""Dead workers that are dialed at most, for any one leads back to all. Those without a disk that are started again and
again are others each time, and thousands would keep their mates at nothing but dialing."""


class Forgetting:
    """When one peer looks whom it may forget.

    Args:
        context: the stack's.
        post: who is connected.
        meetings: forget with the directory.
    """

    def __init__(self, context: Context, post: Post, meetings: Meetings) -> None:
        self._context = context
        self._post = post
        self._meetings = meetings
        self._swept = 0.0

    def handle_timeout(self) -> None:
        """Look, if the last look was long enough ago."""
        if self._context.now >= self._swept + _SWEEP:
            self._swept = self._context.now
            self._sweep()

    def _sweep(self) -> None:
        context, m, directory = self._context, self._context.m, self._context.directory
        tip = m.rounds.tip
        voters = () if tip is None else tip[1].voters  # whom people are told to bring back, if they are missing
        revision, here = directory.revision, self._post.open.union(context.mates(), voters)
        after = _CARDS * m.members.profile.forget_after
        present = map(ClusterId, m.mesh.members) if m.rounds.in_touch() else directory.clusters
        directory.forget_clusters(tuple(present), context.now, after, _LAST)
        directory.forget(here, context.now, after, _FORMER)
        self._meetings.forget()
        context.dirty |= directory.revision != revision
