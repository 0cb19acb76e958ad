"""Evidence of life and of death that no machine asked for: bytes that arrive, and connections that end.

Between workers of one cluster it is about the worker. Between clusters a leader stands for its cluster: what comes from
another of its workers proves nothing about that. All of it is only a hint, which the two membership machines weigh.
"""

from __future__ import annotations

from ictp2p.core.context import Context
from ictp2p.core.neighbourhood import Neighbourhood
from ictp2p.core.packets import Channel
from ictp2p.types import PeerId


class Evidence:
    """What one peer sees of the others without asking.

    Args:
        context: the stack's.
        neighbourhood: the leaders next door.
    """

    def __init__(self, context: Context, neighbourhood: Neighbourhood) -> None:
        self._context = context
        self._neighbourhood = neighbourhood

    def heard(self, peer: PeerId) -> None:
        """Bytes of a peer arrived. A machine that waits for nothing from it need not know: most of them do not."""
        context = self._context
        cluster = context.directory.cluster_of(peer)
        if cluster == context.cluster:
            if context.m.members.awaits(peer):
                context.run(Channel.MEMBERS, context.m.members.heard(peer, context.now))
        elif cluster is not None and context.m.mesh.awaits(cluster) and self._neighbourhood.leader(cluster) == peer:
            context.run(Channel.MESH, context.m.mesh.heard(cluster, context.now))

    def broken(self, peer: PeerId, *, refused: bool) -> None:
        """The connection to a peer ended, or could not be opened: the host itself `refused`, or nobody knows why."""
        context = self._context
        cluster = context.directory.cluster_of(peer)
        context.dirty = True
        if cluster == context.cluster:
            context.run(Channel.MEMBERS, context.m.members.broken(peer, refused, context.now))
        elif cluster is not None and context.directory.leader_of(cluster) == peer:
            context.run(Channel.MESH, context.m.mesh.broken(cluster, refused, context.now))
