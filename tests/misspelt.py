"""What a type checker tells who misspells a name of ours: each line with an `ignore` has the error that it names.

mypy runs over this module (pyproject.toml) and calls an `ignore` unused where it hides nothing. Nothing here is run.
"""

from __future__ import annotations

import torch

import ictp2p


def a_policy(peer: ictp2p.Peer, model: torch.nn.Module, inner: torch.optim.Optimizer) -> None:
    ictp2p.DiLoCo(peer, model, inner, sync_every=100)
    ictp2p.DiLoCo(peer, model, inner, sync_evry=100)  # type: ignore[call-arg]
    ictp2p.DiLoCo(peer, model, inner, sync_every=100, fragmnts=4)  # type: ignore[call-arg]
    ictp2p.DiLoco(peer, model, inner, sync_every=100)  # type: ignore[attr-defined]


def a_peer(peer: ictp2p.Peer, tensor: torch.Tensor) -> None:
    peer.all_reduce(tensor)
    peer.al_reduce(tensor)  # type: ignore[attr-defined]
    peer.all_reduce(tensor, codc="int8")  # type: ignore[call-overload]
