"""Plans from gossip: they fit their participants and their limits, and avoid what failed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from ictp2p.collectives import plan as plans
from ictp2p.core.planning import check_plan, check_roots, make_plan, named_cluster
from ictp2p.errors import NoRoute
from ictp2p.types import ClusterId
from tests.collectives.planning.planned import bytes_between
from tests.core.planned import ALL, MB, directory, edges, request


def test_a_slow_link_that_alone_was_measured_is_no_model_for_faster_ones() -> None:
    """On fast links every transfer is over before it shows them: of these plans know what they did at least."""
    slow = frozenset("ab")
    mesh = directory({(a, b): 1e5 for a in "abcd" for b in "abcd" if a < b})
    for name in "abcd":
        card = mesh.clusters[ClusterId(name)]
        links = tuple(
            link
            if {name, link.neighbour} == slow
            else structs.replace(link, bandwidth_out=0.0, bandwidth_in=0.0, at_least_out=5e7, at_least_in=4e7)
            for link in card.links
        )
        mesh.learn_cluster(structs.replace(card, links=links))
    answer = make_plan(mesh, request(*"abcd"))
    chosen = plans.decode(answer.plan)
    a, b = (chosen.participants.index(leader) for leader in "AB")
    assert bytes_between(chosen, a, b) + bytes_between(chosen, b, a) < 0.05 * 4_000_000


def test_a_plan_asks_of_nobody_more_room_than_its_card_gives() -> None:
    far = directory({("a", "b"): 1e9, ("b", "c"): 1e9, ("a", "c"): 1e9})
    for name, room in (("a", 48 << 20), ("b", 40 << 20), ("c", 0)):
        card = far.clusters[ClusterId(name)]
        links = tuple(structs.replace(link, round_trip=0.5) for link in card.links)
        far.learn_cluster(structs.replace(card, links=links, room=room))
    asked = request("a", "b", "c")
    made = plans.decode(make_plan(far, replace(asked, spec=structs.replace(asked.spec, elements=50_000_000))).plan)
    most = dict(zip(made.participants, map(made.room, range(3)), strict=True))
    assert 0 < most["A"] <= 48 << 20
    assert 0 < most["B"] <= 40 << 20
    assert 0 < most["C"] <= 32 << 20


def test_a_plan_fits_its_participants_and_says_why() -> None:
    answer = make_plan(directory(ALL), request("a", "b", "c"))
    assert check_plan(answer.plan, request("a", "b", "c").participants) is None
    assert check_plan(answer.plan, request("a", "b").participants) is not None
    assert check_plan(b"garbage", request("a", "b").participants) is not None
    assert plans.decode(answer.plan).kind in answer.reason
    assert answer.seconds > 0


def test_participants_that_nothing_connects_have_no_plan() -> None:
    with pytest.raises(NoRoute, match="B, C"):
        make_plan(directory({("a", "b"): MB, ("c", "d"): MB}), request("b", "c"))


def test_an_edge_that_failed_is_avoided_if_the_others_suffice() -> None:
    plan = plans.decode(make_plan(directory(ALL), request("a", "b", "c", failures=(("A", "B"),))).plan)
    assert frozenset(("A", "B")) not in edges(plan)
    alone = plans.decode(make_plan(directory({("a", "b"): MB}), request("a", "b", failures=(("A", "B"),))).plan)
    assert frozenset(("A", "B")) in edges(alone)


def test_a_limited_sender_slows_the_prediction() -> None:
    free = make_plan(directory(ALL), request("a", "b", "c"))
    limited = make_plan(directory(ALL, {"a": MB}), request("a", "b", "c"))
    assert limited.seconds > 2 * free.seconds


@pytest.mark.parametrize("up", [0.0, 5e-324])
@pytest.mark.parametrize("rate", [5e-324, 1e-200, 10 * MB, 1.7e308])
def test_whatever_a_card_says_of_its_links_there_is_a_plan(rate: float, up: float) -> None:
    names = "abcde"
    links = {(a, b): rate if (a, b) == ("a", "b") else (2 + ord(b) % 3) * MB for a in names for b in names if a < b}
    asked = request(*names)
    answer = make_plan(directory(links, {"a": up}), asked)
    assert check_plan(answer.plan, asked.participants) is None


def test_a_broadcast_has_one_root_and_it_takes_part() -> None:
    asked = request("a", "b", "c", kind="broadcast", name="broadcast@b")
    assert named_cluster(asked.spec) == "b"
    plan = plans.decode(make_plan(directory(ALL), asked).plan)
    assert {plan.participants[share.root] for share in plan.shares} == {"B"}
    with pytest.raises(NoRoute, match="'b'"):
        make_plan(directory(ALL), request("a", "c", kind="broadcast", name="broadcast@b"))


def moved_on(parents: tuple[int, ...]) -> tuple[int, ...]:
    """The same tree with each participant in the place of the one before."""
    return tuple(parent if parent < 0 else (parent + 1) % len(parents) for parent in (parents[-1], *parents[:-1]))


@pytest.mark.parametrize("kind", ["broadcast", "collect", "gather", "scatter"])
def test_a_plan_with_the_roots_of_another_round_is_refused(kind: str) -> None:
    """What is copied from whom, and whose sum is where, is decided, and no plan may say otherwise."""
    asked = request("a", "b", "c", kind=kind, name=f"{kind}@b")
    plan = plans.decode(make_plan(directory(ALL), asked).plan)
    assert check_roots(plan, asked.spec, asked.participants) is None
    one, *_ = plan.shares
    root = (one.root + 1) % 3
    shares = tuple(
        structs.replace(
            share,
            root=(share.root + 1) % 3,
            reduce_parents=moved_on(share.reduce_parents),
            broadcast_parents=moved_on(share.broadcast_parents),
        )
        for share in plan.shares
    )
    other = structs.replace(plan, shares=shares)
    assert plans.check(other, plan.participants, plan.elements) is None
    wrong = check_roots(other, asked.spec, asked.participants)
    assert wrong == f"elements [{one.start}, {one.stop}) are not those of cluster {'abc'[root]}"
    assert check_roots(other, request("a", "b", "c").spec, asked.participants) is None, "anybody may add up for all"
