"""Plans from gossip: what is measured is used, what cannot be dialed is relayed, what failed is avoided."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack, structs

from ictp2p.collectives import plan as plans
from ictp2p.core.cards import ClusterCard, LinkCard, PeerCard
from ictp2p.core.directory import Directory
from ictp2p.core.planning import check_groups, check_plan, check_roots, make_plan, named_cluster
from ictp2p.errors import NoRoute
from ictp2p.sync.rounds import modules
from ictp2p.sync.rounds.opening import PlanQuestion
from ictp2p.sync.values import Participant, Spec
from ictp2p.types import ClusterId, PeerId
from tests.collectives.planning.planned import bytes_between

MB = 1e6


def directory(links: dict[tuple[str, str], float], limits: dict[str, float] | None = None) -> Directory:
    """Clusters a, b, ... each led by peer of the same name in capitals, with symmetric links in bytes/s."""
    names = sorted({name for pair in links for name in pair})
    found = Directory(PeerCard(PeerId("me"), ClusterId("none"), "", bytes(32)))
    for name in names:
        cards = tuple(
            LinkCard(ClusterId(other), rate, rate, 0.02, 0.0)
            for (a, b), rate in sorted(links.items())
            for mine, other in ((a, b), (b, a))
            if mine == name
        )
        leader = PeerId(name.upper())
        worker = PeerCard(leader, ClusterId(name), "", bytes(32))
        up = (limits or {}).get(name, 0.0)
        found.learn_cluster(ClusterCard(ClusterId(name), leader, 1, (worker,), links=cards, up=up))
    return found


def request(
    *names: str, failures: tuple[tuple[str, str], ...] = (), kind: str = "reduce", name: str = "x"
) -> PlanQuestion:
    spec = Spec(kind, name, "float32", 1_000_000, "avg", "none")  # type: ignore[arg-type]
    participants = tuple(Participant(ClusterId(n), PeerId(n.upper()), 1, 1.0) for n in names)
    pairs = tuple((PeerId(a), PeerId(b)) for a, b in failures)
    return PlanQuestion(1, 1, spec, participants, pairs)


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


def edges(plan: plans.Plan) -> set[frozenset[str]]:
    """Which pairs exchange anything."""
    used = set()
    for share in plan.shares:
        if share.stop > share.start:
            for parents in (share.reduce_parents, share.broadcast_parents):
                used |= {
                    frozenset((plan.participants[i], plan.participants[p])) for i, p in enumerate(parents) if p >= 0
                }
    return used


ALL = {("a", "b"): 10 * MB, ("a", "c"): 10 * MB, ("b", "c"): 10 * MB}


def test_a_plan_fits_its_participants_and_says_why() -> None:
    answer = make_plan(directory(ALL), request("a", "b", "c"))
    assert check_plan(answer.plan, request("a", "b", "c").participants) is None
    assert check_plan(answer.plan, request("a", "b").participants) is not None
    assert check_plan(b"garbage", request("a", "b").participants) is not None
    assert plans.decode(answer.plan).kind in answer.reason
    assert answer.seconds > 0


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


def test_in_a_mesh_that_is_not_complete_a_pair_without_a_connection_is_planned_as_unknown() -> None:
    known = directory({("a", "c"): 4e6, ("c", "b"): 4e6})
    relayed = make_plan(known, request("a", "b"))
    assert make_plan(known, request("a", "b"), complete=2) == relayed, "neither can be dialed"
    known.learn_peer(PeerCard(PeerId("A"), ClusterId("a"), "10.0.0.1:7450", bytes(32)))
    assert make_plan(known, request("a", "b"), complete=3) == relayed, "in a complete mesh they would be connected"
    assert make_plan(known, request("a", "b"), complete=2).seconds != relayed.seconds


def paired(*names: str, base: bytes = b"base") -> PlanQuestion:
    asked = request(*names)
    return replace(asked, spec=structs.replace(asked.spec, kind="sync", grouping="pairs"), base=base)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_pairs_are_planned_apart_and_nothing_goes_between_them(count: int) -> None:
    names = "abcdefg"[:count]
    known = directory({(a, b): 10 * MB for a in names for b in names if a < b} or ALL)
    asked = paired(*names)
    answer = make_plan(known, asked)
    plan = plans.decode(answer.plan)
    assert check_plan(answer.plan, asked.participants) is None
    assert check_groups(plan, asked.spec, b"base", asked.participants) is None
    assert [len(group.participants) for group in plan.groups] == [2] * (count // 2) + [1] * (count % 2)
    assert all(edge == frozenset(group.participants) for group in plan.groups for edge in edges(group))
    assert sorted(name for group in plan.groups for name in group.participants) == sorted(plan.participants)


def test_a_pair_of_which_nothing_is_known_is_planned_all_the_same() -> None:
    known = directory({("a", "b"): 10 * MB, ("c", "d"): 10 * MB})
    for seed in range(8):
        plan = plans.decode(make_plan(known, paired("a", "b", "c", "d", base=bytes([seed]))).plan)
        assert all(edges(group) for group in plan.groups)


def test_a_plan_for_other_pairs_is_refused() -> None:
    names = "abcdef"
    known = directory({(a, b): 10 * MB for a in names for b in names if a < b})
    asked = paired(*names)
    answers = {bytes([seed]): make_plan(known, paired(*names, base=bytes([seed]))) for seed in range(4)}
    for seed, answer in answers.items():
        wrong = check_groups(plans.decode(answer.plan), asked.spec, seed, asked.participants)
        other = check_groups(plans.decode(answer.plan), asked.spec, b"base", asked.participants)
        assert wrong is None
        assert other is not None
        assert "due are" in other
    whole = plans.decode(make_plan(known, request(*names)).plan)
    assert check_groups(whole, asked.spec, b"base", asked.participants) is not None
    assert check_groups(whole, request(*names).spec, b"base", asked.participants) is None


def test_a_group_that_is_no_plan_of_its_own_is_refused() -> None:
    names = "abcd"
    known = directory({(a, b): 10 * MB for a in names for b in names if a < b})
    plan = plans.decode(make_plan(known, paired(*names)).plan)
    one, other = plan.groups
    nested = structs.replace(plan, participants=one.participants, groups=(one,))
    for groups, said in (
        ((nested, other), "none that may be"),
        ((one, structs.replace(other, codec="zip")), "codec 'zip'"),
        ((one, structs.replace(other, kind=plans.REDUCE)), "none that may be"),
        ((one, structs.replace(other, chunk=0)), "chunk of 0"),
        ((one, structs.replace(other, participants=(*other.participants[1:], "Z"))), "none that may be"),
    ):
        wrong = plans.check(structs.replace(plan, groups=groups), plan.participants, 0)
        assert wrong is not None
        assert said in wrong
    for groups in ((one,), (one, one), ()):
        left_out = structs.replace(plan, groups=groups)
        assert check_groups(left_out, paired(*names).spec, b"base", paired(*names).participants) is not None
    encoded = structs.replace(plan, groups=(one, structs.replace(other, codec="int8", chunk=256)))
    assert plans.check_codec(encoded, "int8") is None
    assert plans.check_codec(encoded, "auto") is None
    assert "'int8'" in (plans.check_codec(encoded, "bfloat16") or "")
    shared = structs.replace(plan, shares=one.shares)
    assert "shares" in (plans.check(shared, plan.participants, 0) or "")
    assert "groups" in (plans.check(structs.replace(one, groups=(other,)), one.participants, 1_000_000) or "")


def said(behind: bool, *keys: int) -> bytes:
    held = tuple(modules.HeldModule(key.to_bytes(8, "big"), 1000 * key, 2000 * key) for key in keys)
    return msgpack.encode({modules.NAME: modules.Card(behind, held).encode()})


def test_modules_are_planned_over_their_holders_and_copied_to_who_lacks_them() -> None:
    names = "abc"
    known = directory({(a, b): 10 * MB for a in names for b in names if a < b})
    notes = (said(False, 1, 2), said(False, 2, 3), said(True, 2, 3, 4))
    asked = request(*names)
    parts = tuple(structs.replace(p, note=note) for p, note in zip(asked.participants, notes, strict=True))
    asked = replace(asked, participants=parts, spec=structs.replace(asked.spec, grouping="modules", elements=1))
    answer = make_plan(known, asked)
    plan = plans.decode(answer.plan)
    assert check_plan(answer.plan, parts) is None
    assert check_groups(plan, asked.spec, b"", parts) is None
    assert [(g.participants, g.elements, g.source) for g in plan.groups] == [
        (("A",), 1000, None),
        (("A", "B", "C"), 2000, None),
        (("B", "C"), 3000, None),
        (("C",), 4000, None),
        (("A", "C"), 4000, "A"),
        (("B", "C"), 6000, "B"),
    ]
    wrong = (structs.replace(parts[0], note=said(True, 1, 2)), *parts[1:])
    assert check_groups(plan, asked.spec, b"", wrong) is not None


@st.composite
def rounds_in_groups(draw: st.DrawFn) -> tuple[Directory, PlanQuestion]:
    """A mesh whose links are all measured, and a round in which not all average all: in pairs, or of modules."""
    names = "abcdefg"[: draw(st.integers(1, 7))]
    rates = st.sampled_from([1 * MB, 5 * MB, 20 * MB])
    known = directory({(a, b): draw(rates) for a in names for b in names if a < b} or ALL)
    if draw(st.booleans()):
        return known, paired(*names, base=draw(st.binary(min_size=1, max_size=4)))
    held = st.sets(st.integers(1, 5), max_size=4).map(sorted)
    asked = request(*names)
    parts = tuple(structs.replace(p, note=said(draw(st.booleans()), *draw(held))) for p in asked.participants)
    spec = structs.replace(asked.spec, kind="sync", grouping="modules", elements=1)
    return known, replace(asked, spec=spec, participants=parts)


@given(rounds_in_groups())
def test_groups_move_at_once_and_a_round_takes_as_long_as_whoever_is_in_most_of_them(
    made: tuple[Directory, PlanQuestion],
) -> None:
    answer = make_plan(*made)
    every = plans.decode(answer.plan).groups
    sharing = {name: [g.seconds for g in every if name in g.participants] for g in every for name in g.participants}
    assert answer.seconds == pytest.approx(max(map(sum, sharing.values()), default=0.0))
    assert all(group.seconds <= answer.seconds for group in every)
    if all(len(groups) == 1 for groups in sharing.values()):
        assert answer.seconds == max((group.seconds for group in every), default=0.0)


def test_pairs_that_meet_over_one_relay_share_its_lines() -> None:
    known = directory({("r", name): 10 * MB for name in "abcd"})
    answer = make_plan(known, paired(*"abcd"))
    assert answer.seconds == pytest.approx(sum(group.seconds for group in plans.decode(answer.plan).groups))
