"""An outer round between the training thread and its peer ends when it is over for both, and no later."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import ictp2p
from ictp2p.training import conversation
from ictp2p.training.conversation import Conversation


class Interrupted:
    """A round's request, in which Ctrl-C comes as soon as it waits."""

    def __getattr__(self, name: str) -> None:
        return None

    def idle(self) -> None:
        raise KeyboardInterrupt


@pytest.mark.real
def test_an_interrupt_does_not_wait_for_a_round_that_never_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the peer's loop was busy for a moment, so nobody ever said that the round was over: 5 s passed."""
    monkeypatch.setattr(conversation, "_LET_GO", 3600.0)
    request: Any = Interrupted()
    with ictp2p.Peer(ictp2p.Config.local(cluster="a", token="0123456789abcdef0123456789abcdef")) as peer:
        handle: Any = peer._handle
        handle.loop.post(lambda: threading.Event().wait(1.0))
        with pytest.raises(KeyboardInterrupt):
            Conversation(handle, request).run()
