"""Cards of a former life or address: whoever knows better is not talked out of it, and all come to know."""

from __future__ import annotations

import msgspec

from ictp2p.core.cards import PeerCard
from ictp2p.identity import Identity
from ictp2p.types import Address
from tests.core.control_planes import Host, World, mesh

ELSEWHERE = Address("10.0.0.9", 9000)


def started_again(world: World, mate: Host, lead: Host, address: Address) -> tuple[Host, PeerCard]:
    """The next life of a worker, which its leader meets: another process, so another key."""
    again = Identity.from_bytes(mate.identity.to_bytes(), bytes(range(32)))
    card = msgspec.structs.replace(mate.core.card, bulk_public=again.bulk_public, address=str(address))
    new = world._start(again, card, mate.disk, address, life=2)
    world._connect(world.id(new), world.id(lead))
    return new, card


def test_an_old_view_of_the_mesh_replaces_no_card_of_a_mate_who_is_here() -> None:
    """Regression: who had been cut off showed it, and the leader published its worker's former key and address."""
    world = World()
    hosts = mesh(world, "a", "b", "r", workers=2)
    one, (lead, mate) = hosts["a"][0], hosts["b"]
    for far in hosts["r"]:
        for other in (*hosts["a"], *hosts["b"]):
            world.sever(far, other)
    world.run(5.0)
    world.kill(mate)
    world.run(5.0)
    new, card = started_again(world, mate, lead, ELSEWHERE)
    world.run(10.0)
    assert lead.core.directory.peers[world.id(new)] == card == one.core.directory.peers[world.id(new)]
    world.cut.clear()
    world.run(120.0)
    assert set(lead.core.m.mesh.alive()) == {"a", "b", "r"}
    assert [who.core.directory.peers[world.id(new)] for who in (lead, one, *hosts["r"])] == [card] * 4


def test_nor_does_whoever_introduces_one_by_the_card_of_its_former_life() -> None:
    """A connection to it stays open there for a while after its power has failed."""
    world = World()
    hosts = mesh(world, "s", "b", workers=2)
    far, (lead, mate) = hosts["s"][0], hosts["b"]
    if world.id(mate) not in far.open:
        world._connect(world.id(mate), world.id(far))
    world.run(2.0)
    for each in hosts["s"]:
        world.sever(lead, each)
    mate.alive = False
    world.swallowed.add((world.id(mate), world.id(far)))
    world._disconnect(world.id(mate), world.id(lead))
    new, card = started_again(world, mate, lead, mate.address)
    world.run(0.3)
    world.cut.clear()
    world._connect(world.id(lead), world.id(far))
    world.run(2.0)
    far.open.discard(world.id(new))
    world.do(far, far.core.lost(world.id(new), world.now))  # the reset at last
    world.run(60.0)
    assert lead.core.directory.peers[world.id(new)] == card


def test_a_follower_learns_where_workers_of_other_clusters_have_moved() -> None:
    """Regression: it kept the old address until something else changed, and took office with it."""
    world = World()
    hosts = mesh(world, "a", "b", workers=2)
    world.run(20.0)
    for port, moved in enumerate(reversed(hosts["b"]), 9000):  # the follower, then the leader
        moved.address = Address("10.0.0.9", port)
        world.do(moved, moved.core.readdress(str(moved.address), world.now))
        world.run(600.0)
    for moved in hosts["b"]:
        assert {who.core.directory.peers[world.id(moved)].address for who in hosts["a"]} == {str(moved.address)}
