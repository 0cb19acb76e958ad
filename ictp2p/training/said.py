"""What the peer was told last of what its training thread wants: nothing is said twice.

Each word is a way to the peer's thread and back, which a collective call would take anew each time that it is made.
"""

from __future__ import annotations

import torch

from ictp2p.collectives.group.library import describe
from ictp2p.handle import Handle
from ictp2p.sync.rosters.devices import Device


class Said:
    """What is wanted of one peer.

    Args:
        peer: the peer.
    """

    def __init__(self, peer: Handle) -> None:
        self._peer = peer
        self.device = torch.device("cpu")
        """What training computes on."""
        self._wanted: Device | None = None
        """With what it was said to want into the cluster's group; None if it does not."""
        self._training: bool | None = None

    def wants_in(self, device: torch.device, calls: bool = False) -> None:
        """Say that it wants into the cluster's group, with that device, and how it waits for the others."""
        self.device = device
        described = describe(device)
        if described != self._wanted:
            self._peer.equip(described)
            self._peer.wants(True, described, calls)
            self._wanted = described

    def wants_out(self) -> None:
        """Say that it does not, and so that rounds need not wait either."""
        self._peer.wants_out(describe(self.device))
        self._wanted, self._training = None, False

    def trains(self, training: bool) -> None:
        """Say whether rounds have to wait for this cluster."""
        if training != self._training:
            self._peer.set_training(training)
            self._training = training

    def begins(self) -> None:
        """Say that rounds need not wait yet, whatever was said before."""
        self._peer.set_training(False)
        self._training = False
