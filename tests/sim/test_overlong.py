"""A message of a peer's own that no other would take: it is lost and said, and the mesh is as before."""

from __future__ import annotations

import pytest

from ictp2p.core.machines import CODECS
from ictp2p.core.packets import Channel, decode_packet
from ictp2p.edge import control
from ictp2p.errors import LocalProtocolError
from ictp2p.sync.messages import Accept, Decision
from ictp2p.sync.values import Open
from ictp2p.wire import FrameKind
from sim import World


def test_who_makes_a_message_that_is_too_long_says_so_once_and_keeps_its_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: it took whomever it was about to answer for its cause and closed the connection, without a word."""
    frame = control.frame

    def bounded(kind: FrameKind, body: bytes) -> bytes:
        packet = decode_packet(body) if kind is FrameKind.MESSAGE else None
        if packet is not None and packet.channel is Channel.ROUNDS:
            message = CODECS[Channel.ROUNDS].decode(packet.body)
            if isinstance(message, Accept | Decision) and isinstance(message.value, Open):
                raise LocalProtocolError("over the limit")
        return frame(kind, body)

    with World(1, profile="lan") as world:
        for name in "abc":
            world.cluster(name, workers=1, compute=5.0)
        world.run_until(lambda: world.version() >= 2, within=120)
        before, linked = world.version(), {h.name: h.core and h.core.connected() for h in world.every_host()}
        with monkeypatch.context() as patch:
            patch.setattr(control, "frame", bounded)
            world.run_for(120.0)
        assert world.version() == before
        told = [str(entry) for entry in world.trace.of("warning") if "fault of ictp2p" in str(entry)]
        assert len(told) == 1
        assert "ROUNDS Accept of" in told[0]
        assert {h.name: h.core and h.core.connected() for h in world.every_host()} == linked
        assert not world.loop.errors
        world.run_for(60.0)
        assert world.version() > before
