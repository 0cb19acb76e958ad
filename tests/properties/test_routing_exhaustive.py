"""Routing, in every course that a few routers can take after a change: at no instant is there a loop.

A mesh that has converged, then links that end or become dear, seen by their two ends whenever either sees it; what was
said comes in any order, or twice, or never, which is more than connections do. A loop-free choice must stand all that
(RFC 8966, section 2.4). `EXHAUSTIVE=1` takes the larger worlds, minutes for each.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Hashable, Mapping, Sequence

import pytest

from ictp2p.machine import Effects, Notice, Send
from ictp2p.routing.algebra import Link
from ictp2p.routing.babel import Babel
from ictp2p.routing.profile import RoutingProfile
from tests.properties.exhaustive import Explorer
from tests.properties.worlds import Even, Move, wait

PROFILE = RoutingProfile(
    update_interval=16.0,
    trigger_delay=0.05,
    trigger_most=0.2,
    retries=(0.5, 1.0),
    settle=1.0,
    classes=1,
    source_lifetime=180.0,
)
CONVERGED = 40.0
"""Seconds in which the mesh converges, before time 0."""


class Mesh:
    """Routers named by letters, the first of which is where the others want to go.

    Args:
        links: by the names of both ends, seconds.
        moves: what may happen.
    """

    again = False
    deaths = 0
    mortal = ()

    def __init__(self, links: Mapping[str, float], moves: Sequence[Move]) -> None:
        self.peers = sorted({*"".join(links)})
        self.moves = moves
        self._nodes = {name: Babel(name, 1 << 32, PROFILE, Even()) for name in self.peers}
        for ends, delay in links.items():
            for name, other in (ends, ends[::-1]):
                self._carry(name, self._nodes[name].link_up(other, Link(delay), -CONVERGED))
        now = -CONVERGED
        while True:
            name, node = min(self._nodes.items(), key=lambda item: item[1].next_timeout() or 0.0)
            now = max(now, node.next_timeout() or 0.0)
            if now >= 0.0:
                break
            self._carry(name, node.handle_timeout(now), now)

    def _carry(self, sender: str, effects: Effects, now: float = -CONVERGED) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._carry(effect.to, self._nodes[effect.to].receive(sender, effect.message, now), now)

    def disk(self, who: int) -> bytes | None:
        return None

    def boot(self, who: int, disk: bytes | None) -> Babel:
        return copy.deepcopy(self._nodes[self.peers[who]])

    def done(self, machine: Babel) -> bool:
        return False

    def view(self, machine: Babel) -> dict[str, str]:
        return {key[0]: choice.neighbour for key, choice in machine.table.chosen.items()}

    def fact(self, notice: Notice) -> Hashable | None:
        return None

    def check(self, views: Sequence[dict[str, str]], facts: Sequence[None]) -> None:
        hops = dict(zip(self.peers, views, strict=True))
        for start in self.peers:
            for destination in self.peers:
                at, way = start, [start]
                while at != destination and (hop := hops[at].get(destination)) is not None:
                    assert hop not in way, f"a loop on the way to {destination}: {[*way, hop]}"
                    way.append(hop)
                    at = hop


def lose(who: str, other: str) -> Move:
    """The connection ends, for one of its ends."""

    def act(machine: Babel, now: float) -> Effects | None:
        return machine.link_down(other, now) if machine.next_hop(other) else None

    return Move(f"loses {other}", _index(who), act)


def measure(who: str, other: str, delay: float) -> Move:
    change = Link(delay)
    return Move(
        f"{other} is {delay} s away", _index(who), lambda machine, now: machine.link_changed(other, change, now)
    )


def pause(who: str, uses: int = 1) -> Move:
    return wait(_index(who), uses)


def _index(name: str) -> int:
    return "abcd".index(name)


_TRIANGLE = {"ab": 0.02, "bc": 0.02, "ac": 0.02}
_KITE = {"ab": 0.02, "bc": 0.02, "bd": 0.02, "cd": 0.02}
"""Who has lost a may hear of it from three that all go through itself."""
SMALL = {
    "a line": Mesh({"ab": 0.02, "bc": 0.02}, [lose("b", "a"), pause("b", 2), pause("c", 2)]),
    "a way around": Mesh({"ab": 0.02, "bc": 0.02, "ac": 0.1}, [lose("b", "a"), pause("b", 2), pause("c", 2)]),
    "two ends": Mesh(_TRIANGLE, [lose("b", "a"), lose("c", "a"), pause("b"), pause("c")]),
    "a kite": Mesh(_KITE, [lose("b", "a"), pause("b"), pause("c"), pause("d")]),
    "lines that become slow": Mesh(
        {"ab": 0.02, "bc": 0.02, "ac": 0.03},
        [measure("b", "a", 0.5), measure("c", "a", 0.5), pause("b", 2), pause("c"), pause("a")],
    ),
}
LARGE = {
    "two ends, later": Mesh(_TRIANGLE, [lose("b", "a"), lose("c", "a"), pause("b", 2), pause("c", 2)]),
    "a kite with a way around": Mesh({**_KITE, "ad": 0.2}, [lose("b", "a"), pause("b"), pause("c"), pause("d")]),
}
LONG = bool(os.environ.get("EXHAUSTIVE"))
WORLDS = {**SMALL, **LARGE} if LONG else SMALL


@pytest.mark.timeout(7200 if LONG else 120)
@pytest.mark.parametrize("name", WORLDS)
def test_in_no_course_is_there_ever_a_loop(name: str) -> None:
    Explorer(WORLDS[name], most=10_000_000).run()
