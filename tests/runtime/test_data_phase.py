"""The data phase of an attempt, over connections of the test's own, on virtual time: who brings what, and gets what."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack
from msgspec.structs import replace

from ictp2p.collectives.channel import CollectiveTimeout, ParticipantLost
from ictp2p.collectives.plan import BROADCAST, GROUPS, NO_PARENT, ONE_SHOT, REDUCE, Plan, Share
from ictp2p.collectives.running.advance import Advance
from ictp2p.collectives.running.attempt import ExecuteProfile
from ictp2p.collectives.running.execute import Stats
from ictp2p.core.grouping import check_groups, groups
from ictp2p.errors import ConfigError
from ictp2p.runtime.data_phase import Brought, DataPhase, Holds, check_kind
from ictp2p.sync.rounds.modules import NAME, Card, HeldModule, room
from ictp2p.sync.values import Grouping, Open, Participant, Spec, StateRef
from ictp2p.types import ClusterId, PeerId
from sim.loop import SimLoop
from tests.collectives.planning.drawn_plans import plans
from tests.wires import Wires

PROFILE = ExecuteProfile(connect=1.0, start=10.0, total=100.0)


@dataclass
class Leader:
    """What one leader brings, and what came of it."""

    inputs: Sequence[torch.Tensor] = ()
    outputs: Sequence[torch.Tensor] = ()
    holds: Holds | None = None
    told: list[int] = field(default_factory=list)

    def brought(self) -> Brought:
        return Brought(self.inputs, self.outputs, lambda a, b: self.told.extend(range(a, b)), self.holds)


def attempt(kind: str, plan: Plan, weights: Sequence[float], grouping: Grouping = "all", *notes: bytes) -> Open:
    said = notes or (b"",) * len(weights)
    parts = tuple(
        Participant(chr(97 + n), PeerId(name), 1, weight, note)
        for n, (name, weight, note) in enumerate(zip(plan.participants, weights, said, strict=True))
    )
    spec: Any = Spec(kind, "test", "float32", plan.elements, "avg", "none", grouping=grouping)
    me = parts[0].leader
    return Open(b"lineage!", (me,), StateRef(1, b"base", ()), me, 2, 1, spec, parts, plan.encode(), "", 9.0)


def phases(opened: Open, wires: Wires) -> list[DataPhase]:
    return [DataPhase(p.leader, ClusterId(p.cluster), wires.of(p.leader), PROFILE) for p in opened.participants]


def run_all(opened: Open, plan: Plan, leaders: Sequence[Leader], wires: Wires | None = None) -> list[Any]:
    """All of them at once: what each returned or raised, in virtual time."""

    async def together() -> list[Stats | BaseException]:
        ends = phases(opened, wires or Wires())
        runs = [end.run(opened, plan, leader.brought()) for end, leader in zip(ends, leaders, strict=True)]
        return await asyncio.gather(*runs, return_exceptions=True)

    return on_virtual_time(together())


def on_virtual_time(story: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(story)


def moved(found: list[Any]) -> list[Stats]:
    assert all(isinstance(each, Stats) for each in found), found
    assert sum(each.bytes_sent for each in found) == sum(each.bytes_received for each in found)
    return found


def ended(plan: Plan, leaders: Sequence[Leader]) -> None:
    """Each has been told, once, of all that it counts to know how far it is."""
    for node, leader in enumerate(leaders):
        results = plan.results(node)
        assert sorted(leader.told) == [i for share in results for i in range(share.start, share.stop)]
        advance = Advance(results)
        for place in leader.told:
            advance.add(place, place + 1)
        assert advance.least == 1.0


def vector(elements: int, node: int) -> torch.Tensor:
    return (torch.arange(elements) % 7 + 3 * node).float()


def cut(whole: torch.Tensor, at: int) -> list[torch.Tensor]:
    return [whole[:at], whole[at:]]


# ------------------------------------------------------------ one collective


@given(plans(), st.data())
def test_a_mean_is_everybodys_each_by_its_own_weight(plan: Plan, data: st.DataObject) -> None:
    size = len(plan.participants)
    weights = data.draw(st.lists(st.sampled_from([1.0, 2.0, 0.5]), min_size=size, max_size=size))
    at = data.draw(st.integers(0, plan.elements))
    given_ = [vector(plan.elements, n) for n in range(size)]
    leaders = [Leader(cut(v.clone(), at), cut(torch.full((plan.elements,), torch.nan), at)) for v in given_]
    moved(run_all(attempt("reduce", plan, weights), plan, leaders))
    mean = sum((w * v.double() for w, v in zip(weights, given_, strict=True)), torch.zeros(())) / sum(weights)
    for leader, brought in zip(leaders, given_, strict=True):
        torch.testing.assert_close(torch.cat(list(leader.outputs)), mean.float().expand(plan.elements))
        assert torch.equal(torch.cat(list(leader.inputs)), brought)
        assert sorted(leader.told) == list(range(plan.elements))
        assert torch.equal(torch.cat(list(leader.outputs)), torch.cat(list(leaders[0].outputs)))
    ended(plan, leaders)


def as_copies(plan: Plan) -> Plan:
    """The same ways down, and nothing climbs."""
    up = (NO_PARENT,) * len(plan.participants)
    return replace(plan, kind=BROADCAST, shares=tuple(replace(s, reduce_parents=up) for s in plan.shares))


def as_sums(plan: Plan) -> Plan:
    """The same ways up; results stay."""
    return replace(plan, kind=REDUCE, shares=tuple(replace(s, broadcast_parents=s.reduce_parents) for s in plan.shares))


@given(plans().map(as_copies), st.data())
def test_a_copy_is_of_what_each_root_brings(plan: Plan, data: st.DataObject) -> None:
    """Also where one root has several parts that lie apart; who is no root may bring what it likes."""
    roots = {s.root: sum(t.stop - t.start for t in plan.shares if t.root == s.root) for s in plan.shares}
    inputs = [vector(roots.get(n, 0) or 3, n) for n in range(len(plan.participants))]
    leaders = [
        Leader(cut(v, data.draw(st.integers(0, len(v)))), [torch.full((plan.elements,), torch.nan)]) for v in inputs
    ]
    moved(run_all(attempt("gather", plan, [1.0] * len(leaders)), plan, leaders))
    left = [list(v) for v in inputs]
    expected = [left[s.root].pop(0) for s in plan.shares for _ in range(s.start, s.stop)]
    for node, leader in enumerate(leaders):
        assert leader.outputs[0].tolist() == expected
        assert sorted(leader.told) == [i for s in plan.shares if s.root != node for i in range(s.start, s.stop)]
    ended(plan, leaders)


@given(plans().map(as_sums))
def test_a_scattered_mean_is_each_roots_own_part(plan: Plan) -> None:
    weights = [float(n + 1) for n in range(len(plan.participants))]
    given_ = [vector(plan.elements, n) for n in range(len(weights))]
    mean = sum((w * v.double() for w, v in zip(weights, given_, strict=True)), torch.zeros(())) / sum(weights)
    due = [[i for s in plan.shares if s.root == n for i in range(s.start, s.stop)] for n in range(len(weights))]
    leaders = [Leader([v], [torch.full((len(mine),), torch.nan)]) for v, mine in zip(given_, due, strict=True)]
    moved(run_all(attempt("scatter", plan, weights), plan, leaders))
    for leader, mine in zip(leaders, due, strict=True):
        torch.testing.assert_close(leader.outputs[0], mean.float().expand(plan.elements)[mine])
    ended(plan, leaders)


@pytest.mark.parametrize(
    ("kind", "plan", "well"),
    [
        *((kind, name, True) for kind in ("sync", "reduce", "barrier") for name in ("star", "ring")),
        *((kind, BROADCAST, True) for kind in ("broadcast", "gather")),
        *((kind, REDUCE, True) for kind in ("scatter", "collect")),
        *((kind, name, False) for kind in ("sync", "reduce", "barrier") for name in (BROADCAST, REDUCE, ONE_SHOT)),
        *((kind, name, False) for kind in ("broadcast", "gather") for name in ("star", REDUCE)),
        *((kind, name, False) for kind in ("scatter", "collect") for name in ("star", BROADCAST)),
        *((kind, GROUPS, False) for kind in ("sync", "reduce", "barrier", "broadcast", "gather", "scatter", "collect")),
    ],
)
def test_a_round_is_done_by_plans_of_its_kind(kind: str, plan: str, well: bool) -> None:
    one = Plan(plan, ("0" * 32,), (), 1, 0.0, 0.0)
    said = check_kind(one, attempt(kind, one, [1.0]).spec)
    assert said is None if well else said == f"a plan of kind {plan!r} does not do what a {kind} is for"
    for grouping in get_args(Grouping):
        said = check_kind(one, attempt("sync", one, [1.0], grouping).spec)
        assert (said is None) == (plan == GROUPS if grouping != "all" else plan in ("star", "ring")), grouping


NAMES = tuple(f"{n:032x}" for n in range(3))
COPIES = Plan(BROADCAST, NAMES, (Share(0, 4, 0, (-1, -1, -1), (-1, 0, 1)),), 2, 0.0, 0.0)
MISFITS = {
    "too few": ([torch.zeros(3)], [torch.zeros(4)]),
    "too many": ([torch.zeros(5)], [torch.zeros(4)]),
    "none": ([], [torch.zeros(4)]),
    "of another type": ([torch.zeros(4, dtype=torch.int32)], [torch.zeros(4)]),
    "too little room": ([torch.zeros(4)], [torch.zeros(3)]),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_root_that_does_not_bring_what_is_copied_from_it_is_told_so(misfit: str) -> None:
    """Others would get what happens to lie in its memory."""
    leaders = [Leader(*MISFITS[misfit]), *(Leader((), [torch.zeros(4)]) for _ in range(2))]
    mine, *others = run_all(attempt("broadcast", COPIES, [1.0] * 3), COPIES, leaders)
    assert isinstance(mine, ConfigError)
    assert "a plan that copies 4 of 4 elements from here" in str(mine)
    assert all(isinstance(each, CollectiveTimeout | ParticipantLost) for each in others)


def test_who_does_not_come_is_named_when_the_time_is_up() -> None:
    opened, wires = attempt("broadcast", COPIES, [1.0] * 3), Wires()

    async def alone() -> float:
        loop = asyncio.get_running_loop()
        first = phases(opened, wires)[0]
        with pytest.raises(CollectiveTimeout) as caught:
            await first.run(opened, COPIES, Leader([torch.ones(4)], [torch.zeros(4)]).brought())
        assert caught.value.suspects == (NAMES[1],)
        return loop.time()

    assert on_virtual_time(alone()) == pytest.approx(PROFILE.start)
    assert not wires.ends


# ------------------------------------------------------------ groups


def in_groups(opened: Open) -> Plan:
    """A plan for the groups that follow from what was decided: each a single star."""
    made = []
    for group in groups(opened.spec, opened.state.digest, opened.participants):
        root = 0 if group.root is None else group.members.index(group.root)
        down = tuple(NO_PARENT if node == root else root for node in range(len(group.members)))
        one = Plan("star", group.members, (Share(0, group.elements, root, down, down),), 3, 0.0, 0.0)
        made.append(one if group.root is None else as_copies(one))
    plan = Plan(GROUPS, tuple(p.leader for p in opened.participants), (), 1, 0.0, 0.0, groups=tuple(made))
    assert check_groups(plan, opened.spec, opened.state.digest, opened.participants) is None
    return plan


def apart(size: int, elements: int, grouping: Grouping, *notes: bytes) -> Open:
    whole = Plan(GROUPS, tuple(f"{n:032x}" for n in range(size)), (Share(0, elements, 0, (), ()),), 1, 0.0, 0.0)
    return attempt("sync", whole, [float(n + 1) for n in range(size)], grouping, *notes)


@given(st.integers(1, 5), st.integers(1, 20))
def test_each_pair_averages_by_its_own_weights_and_hears_of_all(size: int, elements: int) -> None:
    opened = apart(size, elements, "pairs")
    plan, wires = in_groups(opened), Wires()
    leaders = [Leader([vector(elements, n)], [torch.full((elements,), torch.nan)]) for n in range(size)]
    moved(run_all(opened, plan, leaders, wires))
    for group in plan.groups:
        met = [int(name, 16) for name in group.participants]
        mean = sum(((n + 1) * vector(elements, n) for n in met), torch.zeros(())) / sum(n + 1 for n in met)
        for node in met:
            torch.testing.assert_close(leaders[node].outputs[0], mean)
            assert sorted(leaders[node].told) == list(range(elements))
    tags = [tag for each in wires.tags.values() for tag in set(each)]
    assert len(set(tags)) == len(plan.groups)


@st.composite
def modules(draw: st.DrawFn) -> list[Card]:
    """Who holds which of four modules, of `key + 1` elements and a state of twice as many; who is behind."""
    held = draw(st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=4))
    return [
        Card(draw(st.booleans()), tuple(HeldModule(bytes([k]) * 8, k + 1, 2 * (k + 1)) for k in sorted(keys)))
        for keys in held
    ]


def agreed(card: Card, node: int) -> Mapping[bytes, list[torch.Tensor]]:
    return {m.key: [torch.full((m.state,), 100.0 * m.key[0] + node)] for m in card.modules}


def holding(card: Card, node: int) -> Leader:
    async def holds(keys: Sequence[bytes]) -> Mapping[bytes, Sequence[torch.Tensor]]:
        return {key: agreed(card, node)[key] for key in keys}

    mine = sum(m.elements for m in card.modules)
    return Leader([vector(mine, node)], [torch.full((mine + room(card),), torch.nan)], holds)


@given(modules())
def test_modules_are_averaged_among_their_holders_and_copied_to_who_is_behind(cards: list[Card]) -> None:
    notes = [msgpack.encode({NAME: card.encode()}) for card in cards]
    opened = apart(len(cards), 1, "modules", *notes)
    plan, leaders = in_groups(opened), [holding(card, n) for n, card in enumerate(cards)]
    moved(run_all(opened, plan, leaders))
    for node, (card, leader) in enumerate(zip(cards, leaders, strict=True)):
        at, behind = 0, sum(m.elements for m in card.modules)
        assert sorted(leader.told) == list(range(leader.outputs[0].numel()))
        for module in card.modules:
            holders = [n for n, each in enumerate(cards) if module in each.modules]
            mean = sum((n + 1) * part(cards[n], n, module) for n in holders) / sum(n + 1 for n in holders)
            torch.testing.assert_close(leader.outputs[0][at : at + module.elements], torch.as_tensor(mean))
            root = next((n for n in holders if not cards[n].behind), holders[0])
            if card.behind and root != node:
                given_ = leader.outputs[0][behind : behind + module.state]
                assert torch.equal(given_, agreed(cards[root], root)[module.key][0])
            at, behind = at + module.elements, behind + (module.state if card.behind else 0)


def part(card: Card, node: int, module: HeldModule) -> torch.Tensor:
    start = sum(m.elements for m in card.modules if m.key < module.key)
    return vector(sum(m.elements for m in card.modules), node)[start : start + module.elements]


def test_a_group_that_fails_ends_the_others_and_is_all_that_is_told_of() -> None:
    """Cluster a shares one module with b, which gives up, and another with c: nobody is waited for any longer."""
    cards, size = [(1, 2), (1,), (2,)], {1: 40, 2: 40_000}
    notes = [
        msgpack.encode({NAME: Card(False, tuple(HeldModule(bytes([k]) * 8, size[k], 1) for k in keys)).encode()})
        for keys in cards
    ]
    opened, wires = apart(3, 1, "modules", *notes), Wires()
    plan, held = in_groups(opened), [sum(size[k] for k in keys) for keys in cards]
    leaders = [Leader([vector(n, node)], [torch.zeros(n + 2)]) for node, n in enumerate(held)]

    async def story() -> list[Any]:
        ends = zip(phases(opened, wires), leaders, strict=True)
        runs = [asyncio.ensure_future(end.run(opened, plan, leader.brought())) for end, leader in ends]
        await asyncio.sleep(0)
        runs[1].cancel()
        return await asyncio.gather(*runs, return_exceptions=True)

    first, cancelled, third = on_virtual_time(story())
    for found in (first, third):
        assert isinstance(found, ParticipantLost)
        assert found.suspects == (opened.participants[1].leader,), "who ends its part for another is not to blame"
    assert isinstance(cancelled, asyncio.CancelledError)
    assert not wires.ends


def test_attempts_and_rounds_are_fenced_off_from_each_other() -> None:
    opened, wires = attempt("broadcast", COPIES, [1.0] * 3), Wires()
    for each in (opened, replace(opened, attempt=2), replace(opened, round=3)):
        leaders = [Leader([torch.ones(4)], [torch.zeros(4)]) for _ in NAMES]
        moved(run_all(each, COPIES, leaders, wires))
    assert {len(set(tags)) for tags in wires.tags.values()} == {3}
