"""Lines of the meshes of `convergence.py` that are cut, under a call or one way, and who leaves beside a death.

How soon any of that is noticed is a matter of the profile. So each kind of run takes one, beside what those of
`convergence_faults` take, and gives what it measured by name, in virtual seconds.
"""

from __future__ import annotations

import worlds
from convergence_faults import PATIENCE, STEP, WARM, built, connected, next_commit, settle
from learned_lines import UP, Mesh

from ictp2p.collectives.plan import Plan
from ictp2p.collectives.planning.schedules.trees import Tree
from ictp2p.sync.rounds.machine import Rounds
from ictp2p.types import PeerId
from sim.faults import Crash, Cut, Leave
from sim.host import Host
from sim.world import World

RATES = {"lan": 25e6, "wan": 5e6}
"""Bytes/s of each cluster's own line."""
TRANSFER = 4.0
"""Seconds that such a line needs for a tensor, once."""
CALLS = 4
"""All-reduces from the cut on: the first one meets it."""
BETWEEN = 3.0
"""Seconds between two of them."""
EARLY = 0.5
"""Part of what a call takes within which its line is cut."""
UNNOTICED = {"lan": 1.0, "wan": 5.0}
"""Seconds after a death within which somebody begins to leave: nobody is taken for dead so soon."""


def cut_in_a_call(profile: str, clusters: int, seed: int) -> dict[str, float]:
    """A line that an all-reduce uses is cut under it, between two that do not coordinate. More calls follow."""
    with World(seed, profile=profile, elide=True) as world:
        names = [f"c{n:03}" for n in range(clusters)]
        for name in names:
            world.cluster(name, workers=1, train=False, up=RATES[profile], down=RATES[profile])
        connected(world, names, profile)
        hosts = [host for name in names for host in world.of(name)]
        worlds.met(world, hosts, UP)
        mesh, elements = Mesh(world, hosts), int(RATES[profile] * TRANSFER / 4)
        world.run_for(WARM)
        for _ in range(2):
            usual, plan, *_ = mesh.call(elements, PATIENCE)
            world.run_for(BETWEEN)
        a, b = line_in_use(world, plan)
        cut = world.now + EARLY * usual * world.chance.uniform("moment", "cut")
        world.after(cut - world.now, Cut(a.cluster, b.cluster))
        longest = 0.0
        for _ in range(CALLS):
            longest = max(longest, mesh.call(elements, PATIENCE)[0])
            world.run_for(BETWEEN)
        ends = [entry.at - cut for entry in world.trace.of("round_aborted", since=cut)]
        return {"usual": usual, "aborted": ends[0], "longest": longest, "virtual": world.now}


def line_in_use(world: World, plan: Plan) -> tuple[Host, Host]:
    """One of the lines of a plan that the coordinator is at no end of."""
    lines = {
        frozenset((plan.participants[a], plan.participants[b]))
        for share in plan.shares
        for a, b in Tree(share.root, share.reduce_parents, share.broadcast_parents).edges()
    }
    spoken_for = newest(world).agreement.coordinator
    a, b = world.chance.generator("line").choice(sorted(sorted(line) for line in lines if spoken_for not in line))
    return owner(world, a), owner(world, b)


def deaf(profile: str, clusters: int, seed: int) -> dict[str, float]:
    """Nothing reaches the coordinator any more, at any moment of a training; what it says still leaves."""
    with built(clusters, seed, train=True, profile=profile) as world:
        settle(world, "deaf")
        world.inject(Cut("*", owner(world, newest(world).agreement.coordinator).cluster, one_way=True))
        return {"deaf": next_commit(world), "virtual": world.now}


def leaving(profile: str, clusters: int, seed: int) -> dict[str, float]:
    """The coordinator's host loses its power, and a voter leaves before anybody has declared that one dead."""
    with built(clusters, seed, train=True, profile=profile) as world:
        settle(world, "leaving")
        coordinator, tip = newest(world).agreement.coordinator, newest(world).tip
        assert tip is not None
        leaver = next(owner(world, voter) for voter in tip[1].voters if voter != coordinator)
        world.inject(Crash(owner(world, coordinator).name, power=True))
        world.run_for(UNNOTICED[profile] * world.chance.uniform("moment", "leave"))
        world.inject(Leave(leaver.name))
        left = world.run_until(lambda: not leaver.alive, PATIENCE, step=STEP, what="who leaves has left")
        warned = sum("released" in entry.fields["text"] for entry in world.trace.of("warning", host=leaver.name))
        return {"left": left, "warned": warned, "virtual": world.now}


def newest(world: World) -> Rounds:
    """What the one whose decisions are newest has of them."""
    known = [host.core.m.rounds for host in world.running() if host.core is not None]
    return max(known, key=lambda rounds: rounds.tip[0] if rounds.tip is not None else -1)


def owner(world: World, peer: PeerId | None) -> Host:
    """Where a peer runs."""
    host = None if peer is None else world.host_of(peer)
    assert host is not None, f"nobody is {peer}"
    return host
