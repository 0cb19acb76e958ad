from __future__ import annotations

import dataclasses
from collections import Counter, deque

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.collectives.plan import NO_PARENT, Plan, Share, check
from ictp2p.collectives.planning.schedules import star
from ictp2p.collectives.running import windows
from ictp2p.collectives.running.exchange import Exchange
from ictp2p.collectives.running.lane import EACH, LEAD, QUEUED, Piece
from ictp2p.errors import RemoteProtocolError
from tests.collectives.planning.drawn_plans import PARTIAL_BYTES, plans


@dataclasses.dataclass
class World:
    """All participants of one plan, each two joined by ordered connections; who calls chooses what happens next."""

    plan: Plan
    reduce: bool = True
    connections: int = 1

    def __post_init__(self) -> None:
        size = len(self.plan.participants)
        self.machines = [Exchange(self.plan, n, PARTIAL_BYTES, reduce=self.reduce) for n in range(size)]
        self.wires: dict[tuple[int, int, int], deque[tuple[Piece, Counter[int]]]] = {}
        self.heard: dict[tuple[int, int], bool] = {}
        self.asleep: set[tuple[int, int]] = set()
        self.staged: list[dict[tuple[int, int], dict[int, Counter[int]]]] = [{} for _ in range(size)]
        self.results: list[dict[tuple[int, int], Counter[int]]] = [{} for _ in range(size)]
        for node, machine in enumerate(self.machines):
            for peer in machine.neighbours:
                machine.spread(peer, self.connections)
                self.wires.update({(node, peer, number): deque() for number in range(self.connections)})
                self.heard[node, peer] = False
            if not self.reduce:
                for number, share in enumerate(self.plan.shares):
                    if share.root == node:
                        for chunk in range(share.chunks(self.plan.chunk)):
                            self.results[node][number, chunk] = Counter([node])
            self.finish(node, machine.alone())

    def moves(self) -> list[tuple[str, int, int, int]]:
        found = [("begin", *pair, 0) for pair, heard in self.heard.items() if not heard]
        pulling = {pair for pair in self.heard if self.pulls(*pair)}
        found += [("send", *wire) for wire in self.wires if wire[:2] in pulling]
        found += [("early", *pair, 0) for pair in self.heard if self.can_send_early(*pair)]
        return found + [("deliver", *key) for key, wire in self.wires.items() if wire]

    def pulls(self, node: int, peer: int) -> bool:
        """Whether a connection that asks for more gets it; if not, it asks again only when it is told to."""
        if (node, peer) in self.asleep:
            return False
        if not self.can_send(node, peer):
            self.asleep.add((node, peer))
        return (node, peer) not in self.asleep

    def can_send(self, node: int, peer: int) -> bool:
        return peer in self.machines[node]._begun and self.machines[node]._best(peer) is not None

    def can_send_early(self, node: int, peer: int) -> bool:
        machine = self.machines[node]
        return peer not in machine._begun and machine._early[peer] < 2 and machine._best(peer) is not None

    def do(self, move: tuple[str, int, int, int]) -> None:
        what, source, target, number = move
        if what == "begin":
            self.heard[source, target] = True
            self.machines[source].begun(target)
            self.asleep.discard((source, target))
        elif what in ("send", "early"):
            machine = self.machines[source]
            piece = machine.next_send(target) if what == "send" else machine.next_early(target, 2)
            assert piece is not None
            self.wires[source, target, number].append((piece, self.content(source, piece)))
            self.asleep -= {(source, peer) for peer in machine.released()}
        else:
            piece, content = self.wires[source, target, number].popleft()
            machine = self.machines[target]
            if piece.partial:
                self.staged[target].setdefault((piece.share, source), {})[piece.chunk] = content
            else:
                self.results[target][piece.share, piece.chunk] = content
            self.finish(target, machine.arrived(source, piece))
            self.check_room(target)
            self.asleep -= {(target, peer) for peer in machine.downstream(piece)}

    def content(self, node: int, piece: Piece) -> Counter[int]:
        if not piece.partial:
            return self.results[node][piece.share, piece.chunk]
        return self.combine(node, piece)

    def combine(self, node: int, piece: Piece) -> Counter[int]:
        total = Counter([node])
        for child in self.machines[node].contributors(piece.share):
            total += self.staged[node][piece.share, child].pop(piece.chunk)
        return total

    def finish(self, node: int, pieces: list[Piece]) -> None:
        for piece in pieces:
            self.results[node][piece.share, piece.chunk] = self.combine(node, piece)

    def check_room(self, node: int) -> None:
        machine = self.machines[node]
        assert staged(machine) == sum(map(len, self.staged[node].values()))
        for number, _ in enumerate(self.plan.shares):
            for child in machine.contributors(number):
                assert len(self.staged[node].get((number, child), ())) <= machine._lanes[number].room
            lane = machine._lanes[number]
            if self.reduce and lane.passed:  # what a coder keeps in encoded form
                furthest = max(each._lanes[number].window for each in self.machines)
                assert lane.done - min(lane.passed.values()) <= furthest


def staged(machine: Exchange) -> int:
    """The partial chunks that are held, arrived and not yet added up."""
    return sum(
        count - lane.used + len(lane.beyond.get((peer, True), ()))
        for lane in machine._lanes
        for peer, count in lane.arrived.items()
    )


@given(plans(), st.data(), st.integers(1, 3), st.booleans(), st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_any_interleaving_ends_with_every_contribution_counted_once(
    plan: Plan, data: st.DataObject, window: int, reduce: bool, connections: int
) -> None:
    plan = msgspec.structs.replace(plan, seconds=data.draw(st.sampled_from([0.0, 3600.0])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "MAX_WINDOW", window)
        world = World(plan, reduce, connections)
        for machine in world.machines:
            for peer in machine.neighbours:
                machine.limit(peer, data.draw(st.integers(0, 3)))
        choose = data.draw(st.randoms(use_true_random=False))
        while moves := world.moves():
            world.do(choose.choice(moves))
    assert check(plan, plan.participants, plan.elements) is None
    everybody = Counter(range(len(plan.participants)))
    for node, machine in enumerate(world.machines):
        assert machine.finished, f"participant {node} waits on {sorted(machine.waiting_on())}"
        assert not machine.waiting_on()
        assert staged(machine) == 0
        assert not any(machine.owes(peer) for peer in machine.neighbours)
        for number, share in enumerate(plan.shares):
            for chunk in range(share.chunks(plan.chunk)):
                expected = everybody if reduce else Counter([share.root])
                assert world.results[node][number, chunk] == expected


def star_of(size: int, chunks: int) -> Plan:
    shares = tuple(Share(n * chunks, (n + 1) * chunks, *tree) for n, tree in enumerate(star.trees(size)))
    return Plan("star", tuple(f"{n:032x}" for n in range(size)), shares, 1, 0.0, 0.0)


def test_a_plan_of_nothing_may_name_room_for_it() -> None:
    """Regression: a division by zero, for a codec that writes no elements in no bytes."""
    plan = star_of(2, 3)
    roomy = [msgspec.structs.replace(share, room=1000) for share in plan.shares]
    assert Exchange(msgspec.structs.replace(plan, shares=tuple(roomy)), 0, 0).silent() == (1,)


def test_nothing_is_sent_to_a_participant_that_has_not_begun() -> None:
    machine = Exchange(star_of(2, 3), 0, PARTIAL_BYTES)
    assert machine.next_send(1) is None
    assert machine.silent() == (1,)
    machine.begun(1)
    assert machine.next_send(1) == Piece(True, 1, 0)
    assert machine.silent() == ()


def test_contributions_stop_at_the_window_until_results_come() -> None:
    machine = Exchange(star_of(2, 200), 0, PARTIAL_BYTES)
    machine.begun(1)
    sent = [machine.next_send(1) for _ in range(windows.MAX_WINDOW)]
    assert sent == [Piece(True, 1, chunk) for chunk in range(windows.MAX_WINDOW)]
    assert machine.next_send(1) is None
    machine.arrived(1, Piece(False, 1, 0))
    assert machine.next_send(1) == Piece(True, 1, windows.MAX_WINDOW)


@pytest.mark.parametrize("reduce", [True, False])
def test_shares_advance_in_proportion_to_their_length(reduce: bool) -> None:
    """All of them end at one time, as was planned: else links that only the long ones use lie idle at first."""
    lengths = (3, 12, 30)
    shares, start = [], 0
    for length in lengths:
        shares.append(Share(start, start + length, *((1, (1, -1), (1, -1)) if reduce else (0, (-1, 0), (-1, 0)))))
        start += length
    plan = Plan("random", ("0" * 32, "1" * 32), tuple(shares), 1, 0.0, 0.0)
    machine = Exchange(plan, 0, PARTIAL_BYTES, reduce=reduce)
    machine.begun(1)
    gone = [0, 0, 0]
    while (piece := machine.next_send(1)) is not None:
        gone[piece.share] += 1
        parts = [(count - 1) / length for count, length in zip(gone, lengths, strict=True)]
        assert max(parts) <= sum(gone) / sum(lengths)
    assert gone == list(lengths)


def test_the_least_advanced_share_goes_first_and_contributions_have_a_head_start() -> None:
    chunks = 1024
    shares = tuple(
        Share(n * chunks, (n + 1) * chunks, *tree, chunks * PARTIAL_BYTES) for n, tree in enumerate(star.trees(2))
    )
    machine = Exchange(Plan("star", tuple("ab"), shares, 1, 60.0, 0.0), 0, PARTIAL_BYTES)
    machine.begun(1)
    for number in range(chunks):
        machine.arrived(1, Piece(True, 0, number))
    head = int(chunks * LEAD)
    order = [machine.next_send(1) for _ in range(2 * chunks)]
    assert order[: head + 1] == [Piece(True, 1, number) for number in range(head + 1)]
    by_turns = [Piece(*each) for n in range(head + 1, chunks) for each in ((False, 0, n - head - 1), (True, 1, n))]
    assert order[head + 1 : -head - 1] == by_turns
    assert order[-head - 1 :] == [Piece(False, 0, number) for number in range(chunks - head - 1, chunks)]


@pytest.mark.parametrize("delay", [0, 1, 5, 10])
def test_a_long_way_is_full_until_the_last_result_is_one_delay_away(delay: int) -> None:
    """Two ends, each of which sends a chunk in each turn, which comes so many turns later."""
    chunks = 100
    plan = msgspec.structs.replace(star_of(2, chunks), seconds=2.0)
    machines = [Exchange(plan, node, PARTIAL_BYTES) for node in range(2)]
    arriving: dict[int, list[tuple[int, Piece]]] = {}
    for node, machine in enumerate(machines):
        machine.begun(1 - node)
    turn = 0
    while not all(machine.finished for machine in machines):
        for target, piece in arriving.pop(turn, ()):
            machines[target].arrived(1 - target, piece)
        for node, machine in enumerate(machines):
            if (piece := machine.next_send(1 - node)) is not None:
                arriving.setdefault(turn + 1 + delay, []).append((1 - node, piece))
        turn += 1
    assert turn == 2 * chunks + 1 + delay


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        (Piece(True, 0, 3), "expected chunk 0"),
        (Piece(True, 1, 0), r"expected nothing \(do the tensors differ"),
        (Piece(False, 0, 0), r"expected nothing \(do the tensors differ"),
        (Piece(False, 1, 3), "expected chunk 0"),
        (Piece(True, 9, 0), "share 9 of 2"),
    ],
)
def test_what_a_participant_does_not_have_to_send_is_refused(piece: Piece, message: str) -> None:
    machine = Exchange(star_of(2, 3), 0, PARTIAL_BYTES)
    with pytest.raises(RemoteProtocolError, match=message):
        machine.arrived(1, piece)


@pytest.mark.parametrize("piece", [Piece(True, 0, 1), Piece(False, 1, 1)])
def test_a_chunk_may_overtake_another_but_comes_only_once(piece: Piece) -> None:
    machine = Exchange(star_of(2, 3), 0, PARTIAL_BYTES)
    assert machine.arrived(1, piece) == []
    for before in (Piece(piece.partial, piece.share, 0), None):
        with pytest.raises(RemoteProtocolError, match=r"sent .* expected (chunk|nothing)"):
            machine.arrived(1, piece)
        if before is not None:
            finished = machine.arrived(1, before)
            assert finished == ([Piece(False, 0, 0), Piece(False, 0, 1)] if piece.partial else [])


def test_a_sender_beyond_its_window_is_refused() -> None:
    machine = Exchange(star_of(3, 200), 0, PARTIAL_BYTES)
    for chunk in range(windows.MAX_WINDOW):
        machine.arrived(1, Piece(True, 0, chunk))
    with pytest.raises(RemoteProtocolError, match="beyond its window of 64"):
        machine.expect(1, Piece(True, 0, windows.MAX_WINDOW))


@given(st.integers(2, 64), st.integers(1, 4 * 1024 * 1024))
def test_staging_is_bounded_however_many_participants_there_are(size: int, partial_bytes: int) -> None:
    machine = Exchange(star_of(size, 1), 0, partial_bytes)
    room = sum(lane.room * len(lane.children) for lane in machine._lanes)
    assert room * partial_bytes <= max(windows.STAGING_BYTES, (size - 1) * partial_bytes)


def test_a_limit_holds_back_only_what_runs_ahead() -> None:
    plan = Plan(
        "star", tuple("ab"), tuple(Share(n * 9, n * 9 + 9, *t) for n, t in enumerate(star.trees(2))), 1, 0.0, 0.0
    )
    machine = Exchange(plan, 0, PARTIAL_BYTES)
    machine.begun(1)
    machine.limit(1, 3)
    assert [machine.next_send(1) for _ in range(4)] == [*(Piece(True, 1, n) for n in range(3)), None]
    machine.arrived(1, Piece(False, 1, 0))
    assert machine.next_send(1) == Piece(True, 1, 3)
    assert machine.next_send(1) is None


def test_who_is_ahead_waits_until_all_have_caught_up_and_is_told() -> None:
    chunks, lead = 320, 320 * LEAD
    trees = star.trees(3)
    shares = tuple(Share(n * chunks, (n + 1) * chunks, *tree, chunks * PARTIAL_BYTES) for n, tree in enumerate(trees))
    machine = Exchange(Plan("star", tuple("abc"), shares, 1, 60.0, 0.0), 0, PARTIAL_BYTES)
    for peer in (1, 2):
        machine.begun(peer)
        for number in range(chunks):
            machine.arrived(peer, Piece(True, 0, number))
    sent = Counter[int]()

    def send(peer: int) -> bool:
        went = machine.next_send(peer) is not None
        sent[peer] += went
        return went

    while send(1):
        assert machine.released() == ()
    assert sent[1] == 2 * (lead + 1), "its share and ours go to it side by side"
    while machine.released() != (1,):
        assert send(2)
    assert 0 < sent[2] <= 2 * lead
    assert send(1)
    while sum(send(peer) for peer in (1, 2)):
        machine.released()
    assert sent == {1: 2 * chunks, 2: 2 * chunks}


@pytest.mark.parametrize("hops", [2, 8, 19])
def test_who_is_ahead_does_not_wait_for_what_is_on_a_long_way(hops: int) -> None:
    """Regression: lines lay idle until the first chunks had come through a chain, which took twice the time in all."""
    chunks, size, me = 100, 20, 10
    last = size - 1
    chained = [n + 1 if last - hops <= n < last else last for n in range(size)]
    chain = tuple(NO_PARENT if n == last else parent for n, parent in enumerate(chained))
    star_at_0 = (NO_PARENT, *[0] * last)
    trees = [(last, chain, chain), (0, star_at_0, star_at_0)]
    shares = tuple(Share(n * chunks, n * chunks + chunks, *t, chunks * PARTIAL_BYTES) for n, t in enumerate(trees))
    machine = Exchange(Plan("tree", tuple(map(str, range(size))), shares, 1, 60.0, 0.0), me, PARTIAL_BYTES)
    for peer in machine.neighbours:
        machine.begun(peer)
    sent = 0
    while machine.next_send(0) is not None:
        sent += 1
    assert sent == 1 + max(int(LEAD * chunks), 2 * hops)


@pytest.mark.parametrize(("way", "ahead"), [(0.0, LEAD), (6.0, QUEUED * 6.0 / 54.0), (24.0, 1.0), (60.0, 1.0)])
def test_who_is_ahead_does_not_wait_for_what_takes_long_to_come_up_and_down_its_way(way: float, ahead: float) -> None:
    """Regression: contributions waited for results 3 s away, a tenth of a share at a time: a ring took 28 s for 6."""
    chunks = 320
    shares = tuple(
        Share(n * chunks, n * chunks + chunks, *tree, chunks * PARTIAL_BYTES) for n, tree in enumerate(star.trees(3))
    )
    machine = Exchange(Plan("star", tuple("abc"), shares, 1, 60.0, 0.0, way=way), 0, PARTIAL_BYTES)
    for peer in (1, 2):
        machine.begun(peer)
    sent = 0
    while machine.next_send(1) is not None:
        sent += 1
    assert sent == min(chunks, int(ahead * chunks) + 1), "of its share; of ours nothing has come yet"


def test_a_share_may_be_ahead_by_some_chunks_for_each_of_several_connections() -> None:
    """Regression: where each is slow, all but a few had nothing to send, and the plan's next rate was no better."""
    chunks = 3200
    trees = star.trees(3)
    shares = tuple(Share(n * chunks, (n + 1) * chunks, *tree, chunks * PARTIAL_BYTES) for n, tree in enumerate(trees))
    sent = {}
    for connections in (1, 16, 64):
        machine = Exchange(Plan("star", tuple("abc"), shares, 1, 60.0, 0.0), 0, PARTIAL_BYTES)
        machine.spread(1, connections)
        for peer in (1, 2):
            machine.begun(peer)
        sent[connections] = 0
        while machine.next_send(1) is not None:
            sent[connections] += 1
        machine.spread(2, connections)
        assert connections == 1 or machine._shortest_lead >= EACH * connections / chunks
    assert sent == {1: LEAD * chunks + 1, 16: LEAD * chunks + 1, 64: EACH * 64 + 1}


def test_however_low_a_limit_one_chunk_goes_while_the_result_of_another_comes() -> None:
    machine = Exchange(star_of(2, 9), 0, PARTIAL_BYTES)
    machine.begun(1)
    machine.limit(1, 0)
    assert [machine.next_send(1) for _ in range(3)] == [Piece(True, 1, 0), Piece(True, 1, 1), None]


def test_where_the_plan_gives_room_a_short_link_does_not_hold_back() -> None:
    """The results come from further up, over a long one."""
    share = Share(0, 9, 1, (1, -1), (1, -1), room=6 * PARTIAL_BYTES)
    machine = Exchange(Plan("star", tuple("ab"), (share,), 1, 0.0, 0.0), 0, PARTIAL_BYTES)
    machine.begun(1)
    machine.limit(1, 2)
    assert [machine.next_send(1) for _ in range(7)] == [*(Piece(True, 0, n) for n in range(6)), None]


def test_some_chunks_go_ahead_of_the_beginning_and_no_more() -> None:
    plan = Plan(
        "star", tuple("ab"), tuple(Share(n * 9, n * 9 + 9, *t) for n, t in enumerate(star.trees(2))), 4, 0.0, 0.0
    )
    machine = Exchange(plan, 0, PARTIAL_BYTES)
    assert machine.longest(1) == 4
    assert machine.next_early(1, 0) is None
    assert [machine.next_early(1, 2) for _ in range(3)] == [Piece(True, 1, 0), Piece(True, 1, 1), None]
    assert machine.next_send(1) is None
    machine.begun(1)
    assert machine.next_early(1, 9) is None
    assert machine.next_send(1) == Piece(True, 1, 2)


@pytest.mark.parametrize("connections", [2, 4, 16])
@pytest.mark.parametrize("chunks", [100, 180, 183, 379])
def test_who_was_held_back_is_told_however_parts_are_rounded(chunks: int, connections: int) -> None:
    """Regression: 10 of 180 were less than the part that had to go, but chunk 10 was not before it: all stood still."""
    shares = tuple(Share(n * chunks, (n + 1) * chunks, *tree) for n, tree in enumerate(star.trees(3)))
    machine = Exchange(Plan("star", tuple(f"{n:032x}" for n in range(3)), shares, 1, 3600.0, 0.0), 0, PARTIAL_BYTES)
    for peer in (1, 2):
        machine.spread(peer, connections)
        machine.begun(peer)
    for chunk in range(chunks):
        for peer in (1, 2):
            machine.arrived(peer, Piece(True, 0, chunk))
            machine.arrived(peer, Piece(False, peer, chunk))
        while machine.next_send(1) is not None:  # as far as it may be ahead of the other
            machine.released()
        machine.next_send(2)
        machine.released()
        assert not machine._held or machine._least_gone() < machine._release_at, "what it waits for has gone"
