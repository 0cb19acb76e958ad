"""Leadership: offices are taken once, and what rounds bind never goes back.

There are no votes in this election (`ictp2p.gossip.election`), so two peers may lead at once, each on its side of a
cut, and even claim one term. What must hold is what rounds make of it: an attempt binds a cluster once (E2), and the
claims that are bound, ordered by term and then by id as the election orders them, never fall (E3), unless the disk is
lost on which the higher one was written: then a mesh all of whose peers have restarted since may know it no more. Nor
of a leader that has left for good: whoever begins the cluster again, on other disks, begins at a first term.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ictp2p.sync.values import Open
from ictp2p.types import PeerId
from sim.invariants.finding import Complain

if TYPE_CHECKING:
    from sim.host import Host
    from sim.view import View


class Leadership:
    """E1, E2 and E3 of one world.

    Args:
        world: whose disks remember.
        complain: told breaches.
    """

    def __init__(self, world: View, complain: Complain) -> None:
        self._world = world
        self._complain = complain
        self._offices: dict[PeerId, tuple[int, int]] = {}
        self._terms: dict[str, tuple[int, PeerId, int]] = {}

    def claimed(self, host: Host, leader: PeerId, term: int) -> None:
        """A peer believes in a leader: if in itself, then in a term that it never held in another life."""
        if leader != host.id:
            return
        before = self._offices.get(leader, (0, 0))
        if term < before[0] or (term == before[0] and host.lives != before[1]):
            self._complain("E1", f"{host.name} takes office in term {term} after {before[0]}")
        self._offices[leader] = (term, host.lives)

    def bound(self, slot: int, opened: Open) -> None:
        """A decided attempt binds clusters to leaders and terms; decisions may be learnt in any order."""
        clusters = [part.cluster for part in opened.participants]
        if len(set(clusters)) < len(clusters):
            self._complain("E2", f"slot {slot} binds a cluster twice: {clusters}")
        for part in opened.participants:
            known = self._terms.get(part.cluster)
            if known is None or known[2] > slot:
                self._terms.setdefault(part.cluster, (part.term, part.leader, slot))
                continue
            former = self._world.host_of(known[1])
            if (part.term, part.leader) < known[:2] and former is not None and not former.gone:
                text = f"slot {slot} binds {part.cluster} in term {part.term} to {part.leader} after {known[:2]}"
                self._complain("E3", text)
            self._terms[part.cluster] = (part.term, part.leader, slot)
