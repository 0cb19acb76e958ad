"""Leadership: offices are taken once, and what rounds bind never goes back.

There are no votes in this election (`ictp2p.gossip.election`), so two peers may lead at once, each on its side of a
cut, and even claim one term. What must hold is what rounds make of it: an attempt binds a cluster once (E2), and the
claims that are bound, ordered by term and then by id as the election orders them, never fall (E3), unless nobody is
there who could know of the higher one: the disk on which it was written is lost, or the host that has it is down,
paused or cut off from everybody, and all others have restarted since, or are paused. (It claims a higher one when it is
back and hears of a lower.) Nor by a rival that binds itself and has not heard of the claim, with a line between the two
that is cut: to learn of it from decisions would begin a contest that ends with the cut.
Nor of a leader that has left for good: whoever begins the cluster again, on other disks, begins at a first term.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ictp2p.sync.values import Open
from ictp2p.types import PeerId
from sim.invariants.finding import Complain

if TYPE_CHECKING:
    from sim.host import Host
    from sim.view import View


@dataclass(frozen=True, slots=True)
class _Bound:
    """The claim by which a cluster was bound last."""

    term: int
    leader: PeerId
    slot: int
    lives: dict[str, int]
    """The hosts that ran then, and in which life: who is still in it may have heard of the claim. Who learns of the
    decision later does not tell the cluster's next leader, who may have bound it anew by then."""


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
        self._bound: dict[str, _Bound] = {}

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
        lives = {host.name: host.lives for host in self._world.running()}
        for part in opened.participants:
            known, claim = self._bound.get(part.cluster), _Bound(part.term, part.leader, slot, lives)
            if known is not None and known.slot >= slot:
                continue
            falls = known is not None and (part.term, part.leader) < (known.term, known.leader)
            rival = self._world.host_of(part.leader)
            if known is not None and falls and not self._unheard(known, opened, rival) and self._known(known, rival):
                highest = (known.term, known.leader)
                text = f"slot {slot} binds {part.cluster} in term {part.term} to {part.leader} after {highest}"
                self._complain("E3", text)
            self._bound[part.cluster] = claim

    def _unheard(self, claim: _Bound, opened: Open, rival: Host | None) -> bool:
        """Whether a rival has bound itself that has not heard of a claim: it goes by its mates, not by decisions."""
        return rival is not None and opened.author == rival.id and rival.term < claim.term

    def _known(self, claim: _Bound, rival: Host | None) -> bool:
        """Whether anybody is there who could know of a claim, besides the `rival` that is bound after it.

        That may be one that led all the time, on its side of a cut: it hears of the higher claim, and cannot follow it.
        """
        holder = self._world.host_of(claim.leader)
        if holder is None or holder.gone:
            return False
        others = [host for host in self._world.running() if host.awake and host not in (holder, rival)]
        told = holder.awake and any(self._world.joined(holder, other) for other in others)
        return told or any(claim.lives.get(other.name) == other.lives for other in others)
