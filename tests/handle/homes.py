"""Peers that live in a thread or in a process of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ictp2p

TOKEN = "0123456789abcdef0123456789abcdef"
PATIENCE = 60.0
ROOT = Path(__file__).parent.parent.parent


def config(cluster: str, isolation: str = "thread", join: ictp2p.Peer | None = None, **more: Any) -> ictp2p.Config:
    seeds = (str(join.address),) if join is not None else ()
    return ictp2p.Config.local(cluster=cluster, token=TOKEN, join=seeds, isolation=isolation, **more)
