"""Between whom a plan may send: what is measured is used, what cannot be dialed is relayed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from ictp2p.collectives import plan as plans
from ictp2p.core.cards import PeerCard
from ictp2p.core.planning import make_plan
from ictp2p.types import ClusterId, PeerId
from tests.core.planned import MB, directory, request


@pytest.mark.parametrize(("hosts", "kind"), [(("::1",) * 4, "ring"), (("::1", "::2", "::3", "::4"), "star")])
def test_on_one_machine_cores_count_and_not_what_its_links_were_measured_at(hosts: tuple[str, ...], kind: str) -> None:
    """Both kinds move as many bytes, and a star costs the cores more; its links would be used less."""
    mesh = directory({(a, b): 1e9 for a in "abcd" for b in "abcd" if a < b})
    for name, host in zip("abcd", hosts, strict=True):
        card = mesh.clusters[ClusterId(name)]
        worker = structs.replace(card.workers[0], address=f"[{host}]:7000")
        links = tuple(structs.replace(link, round_trip=1e-4) for link in card.links)
        mesh.learn_cluster(structs.replace(card, workers=(worker,), links=links))
    asked = request(*"abcd")
    asked = replace(asked, spec=structs.replace(asked.spec, elements=25_000_000))
    assert plans.decode(make_plan(mesh, asked).plan).kind == kind


def test_a_pair_without_a_link_is_planned_over_the_third() -> None:
    links = {("a", "b"): 10 * MB, ("a", "c"): 10 * MB}
    plan = plans.decode(make_plan(directory(links), request("b", "c")).plan)
    assert plan.elements == 1_000_000


def test_what_is_relayed_takes_its_share_of_the_links_of_the_relay() -> None:
    """B and C meet only over A: whatever they exchange goes over the links that both have to A, as its own does."""
    asked = request("a", "b", "c")
    answer = make_plan(directory({("a", "b"): 10 * MB, ("a", "c"): 10 * MB}), asked)
    carried: dict[tuple[int, int], int] = {}
    for share in plans.decode(answer.plan).shares:
        up = [(node, parent) for node, parent in enumerate(share.reduce_parents) if parent >= 0]
        down = [(parent, node) for node, parent in enumerate(share.broadcast_parents) if parent >= 0]
        for source, target in up + down:
            for hop in [(source, target)] if 0 in (source, target) else [(source, 0), (0, target)]:
                carried[hop] = carried.get(hop, 0) + 4 * (share.stop - share.start)
    assert max(carried.values()) <= answer.seconds * 10 * MB


@pytest.mark.parametrize("mutual", [False, True])
def test_nothing_is_planned_over_the_dead(mutual: bool) -> None:
    """Regression: what a dead cluster had last said of its links made it the widest relay of those who live.

    And so did what the others still said of these.
    """
    links = {("a", "b"): 5 * MB, ("a", "c"): 5 * MB}
    known = directory(links)
    without = make_plan(known, request("b", "c"))
    told = directory({**links, ("d", "b"): 50 * MB, ("d", "c"): 50 * MB}).clusters
    wide = told[ClusterId("d")]
    known.learn_cluster(wide)
    if mutual:  # who was cut off is listed by those who live as long as their connections stand
        for name in "bc":
            known.learn_cluster(told[ClusterId(name)])
    assert make_plan(known, request("b", "c")).seconds < without.seconds
    known.lapse(wide.cluster)
    assert make_plan(known, request("b", "c")) == without
    known.learn_cluster(wide)
    assert make_plan(known, request("b", "c")).seconds < without.seconds, "it is back"


def test_in_a_mesh_that_is_not_complete_a_pair_without_a_connection_is_planned_as_unknown() -> None:
    known = directory({("a", "c"): 4e6, ("c", "b"): 4e6})
    relayed = make_plan(known, request("a", "b"))
    assert make_plan(known, request("a", "b"), complete=2) == relayed, "neither can be dialed"
    known.learn_peer(PeerCard(PeerId("A"), ClusterId("a"), "10.0.0.1:7450", bytes(32)))
    assert make_plan(known, request("a", "b"), complete=3) == relayed, "in a complete mesh they would be connected"
    assert make_plan(known, request("a", "b"), complete=2).seconds != relayed.seconds
