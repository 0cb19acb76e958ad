"""What the parts of the stack share: who we are, what time it is, the machines, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ictp2p.core.cards import PeerCard
from ictp2p.core.commands import Command
from ictp2p.core.directory import Directory
from ictp2p.core.machines import Machines
from ictp2p.core.packets import Channel
from ictp2p.machine import Effects, Message
from ictp2p.types import ClusterId, PeerId


def _unbound(*_: object) -> None:
    raise AssertionError("the stack binds this before anything happens")


@dataclass(slots=True)
class Context:
    """One peer's stack, as its parts see it."""

    card: PeerCard
    directory: Directory
    m: Machines
    out: list[Command] = field(default_factory=list)
    """Commands for the driver, in order."""
    now: float = 0.0
    """Time of the present input, seconds."""
    dirty: bool = False
    """Whether something changed that other machines have not been told."""
    run: Callable[[Channel, Effects], None] = _unbound
    """Carry out the effects of the machine on a channel."""
    send: Callable[[Channel, str, Message], None] = _unbound
    """Send a message of a channel's machine to a peer, or to the leader of a cluster."""

    @property
    def me(self) -> PeerId:
        """This peer."""
        return self.card.peer

    @property
    def cluster(self) -> ClusterId:
        """The cluster of this peer."""
        return self.card.cluster

    @property
    def leading(self) -> bool:
        """Whether this peer leads its cluster."""
        return self.m.election.in_office

    @property
    def leader(self) -> PeerId | None:
        """Who leads this cluster, as far as this peer knows."""
        return self.m.election.leader

    def mates(self) -> list[PeerId]:
        """The other workers of this cluster that are alive or suspected."""
        return [PeerId(p) for p in self.m.members.alive() if p != self.me]
