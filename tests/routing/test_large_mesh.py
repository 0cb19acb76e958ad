"""What many routers cost each other."""

from __future__ import annotations

import itertools
import random

import msgspec

from ictp2p.routing.algebra import Link
from ictp2p.routing.profile import RoutingProfile
from tests.routing.mesh import Mesh
from tests.routing.scenarios import assert_optimal


def test_sixty_four_clusters_converge_with_few_messages() -> None:
    rng = random.Random(1)
    names = [f"c{i:02}" for i in range(64)]
    mesh = Mesh(names, 1, RoutingProfile.wan())
    mesh.checking = False
    chords = rng.sample(list(itertools.combinations(range(64), 2)), 64)
    edges = dict.fromkeys([(i, (i + 1) % 64) for i in range(64)] + chords)
    for a, b in edges:
        bandwidth = rng.choice([None, 5e5, 5e6, 5e7, 2e8])
        mesh.connect(names[a], names[b], Link(rng.uniform(0.005, 0.2), bandwidth))
    mesh.run(6.0)
    ends = 2 * len(mesh.wires)
    assert all(node.next_hop(name) for me, node in mesh.nodes.items() for name in names if name != me)
    assert len(mesh.sent) <= 15 * ends, "a start costs each end of a link about a dozen messages"
    assert max(len(msgspec.msgpack.encode(message)) for *_, message in mesh.sent) < 16_384
    mesh.run(200.0)
    assert_optimal(mesh)

    mesh.sent.clear()
    mesh.fail(*names[:2])
    mesh.run(mesh.now + 3.0)
    assert all(node.next_hop(name) for me, node in mesh.nodes.items() for name in names if name != me)
    assert len(mesh.sent) <= 8 * ends
