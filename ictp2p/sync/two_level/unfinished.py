"""What people are told of steps that no round carries: nothing else shows them, and nothing fails.

A loop may end anywhere, also before its first round; and a policy that is made and never entered trains alone. Either
way the agreed state knows nothing of what was trained, and a program that evaluates it finds that much later.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from ictp2p.errors import PeerClosed
from ictp2p.sync.cluster.progress import Progress
from ictp2p.uncompiled import never_compiled


def tail(at: Progress, every: int, rounds: int) -> str | None:
    """Say what was trained since the last round; None: nothing that counts.

    Args:
        at: how far the worker is.
        every: inner steps after which a round comes.
        rounds: that the agreed state has behind it.
    """
    if not (at.since and any(at.weights)):
        return None
    text = (
        f"ends with {at.since} inner steps that are in no agreed state: rounds come every {every}. Where training is "
        "to end, call peer.drain() and go on until peer.steps ends, which is after a round"
    )
    return text if rounds else f"{text}. There was none: global_parameters() are what training began with"


class Unentered:
    """Counts the steps of an optimizer whose policy was made and never entered: it trains alone, and nothing fails.

    A few are none of the policy's business, as of a model that is warmed up before.

    Args:
        inner: the optimizer.
        policy: whose it is; nothing is told of one that is gone.
        most: steps after which people are told, once.
        tell: told in words.
    """

    def __init__(self, inner: torch.optim.Optimizer, policy: object, most: int, tell: Callable[[str], None]) -> None:
        seen, known, name = itertools.count(1), weakref.ref(policy), type(policy).__name__

        @never_compiled
        def count(*_: Any) -> None:
            if next(seen) != most or known() is None:  # nor is a hook removed by a hook: torch goes through them
                return
            with suppress(PeerClosed):  # its peer may have gone, and this is a program's own step
                tell(f"{name} was made but not entered (`with policy:`): {most} inner steps were averaged with nobody")

        self._hook = inner.register_step_post_hook(count)

    def remove(self) -> None:
        """It is entered."""
        self._hook.remove()
