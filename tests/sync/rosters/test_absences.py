"""Workers that do not come to a meeting, or cannot: the others go on without them, and have them back when they are.

The training threads are here too, as far as groups see them: they wait for a roster, go to its meeting, wait there for
all others to a deadline, and train on until the group breaks. An oracle stands for the election.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ictp2p.machine import Send
from ictp2p.sync.rosters.machine import Rosters
from ictp2p.sync.rosters.roster import (
    Breach,
    GroupAils,
    HeirFound,
    Roster,
    RosterChanged,
    RosterFailed,
    RosterMissed,
    RosterPending,
    RosterProposal,
    RosterReady,
    StoreWanted,
    Trouble,
    WorkersStandStill,
)
from ictp2p.types import PeerId
from tests.scheduler import Scheduled
from tests.sync.rosters.roster_stage import PROFILE, STORE, A, B, C, D, following, leading, notices, sends

FORM = 20.0
"""Seconds that all members may take to meet."""
UNMET, UNBUILT = Breach("unmet", "timed out"), Breach("unbuilt", "Too many open files")


@dataclass
class Thread:
    """A training thread."""

    roster: Roster | None = None
    """The newest with this worker in it."""
    seen: tuple[int, int] = (0, 0)
    meeting: tuple[int, int] | None = None
    group: tuple[int, int] | None = None
    pending: bool = False
    """Whether a newcomer waits for its next boundary."""


@dataclass
class Cluster(Scheduled):
    """Workers, and what befalls them: they stand still, cannot build their parts, or cannot reach each other."""

    peers: tuple[PeerId, ...]
    still: set[PeerId] = field(default_factory=set)
    unable: set[PeerId] = field(default_factory=set)
    apart: set[frozenset[PeerId]] = field(default_factory=set)
    threads: dict[PeerId, Thread] = field(default_factory=dict)
    told: list[tuple[PeerId, Any]] = field(default_factory=list)
    term: int = 0

    def __post_init__(self) -> None:
        for peer in self.peers:
            self.machines[peer], self.threads[peer] = Rosters(peer, 1, PROFILE), Thread()
            self.execute(peer, self.machines[peer].view(self.peers, 0.0))
        self.lead(self.peers[0])
        for peer in self.peers:
            self.execute(peer, self.machines[peer].wants(True, 0.0))
            self.seek(peer)

    def lead(self, leader: PeerId) -> None:
        self.term += 1
        for peer in self.peers:
            self.put(self.now, "claimed", peer, leader, self.term)

    def claimed(self, peer: PeerId, leader: PeerId, term: int) -> None:
        self.execute(peer, self.machines[peer].leader(leader, term, self.now))

    # What training threads do.

    def seek(self, peer: PeerId) -> None:
        thread = self.threads[peer]
        self.execute(peer, self.machines[peer].attends("waits", thread.seen, self.now))
        self.put(self.now, "take", peer)

    def take(self, peer: PeerId) -> None:
        thread = self.threads[peer]
        roster = thread.roster
        if peer in self.still or thread.meeting or thread.group or roster is None or roster.generation <= thread.seen:
            return
        thread.seen = thread.meeting = roster.generation
        self.execute(peer, self.machines[peer].attends("meets", roster.generation, self.now))
        if peer in self.unable and len(roster.members) > 1:
            self.put(self.now, "fail", peer, roster.generation, UNBUILT)
        else:
            self.put(self.now + FORM, "fail", peer, roster.generation, UNMET)
            self.put(self.now, "meet", roster)

    def meet(self, roster: Roster) -> None:
        members = [PeerId(member) for member in roster.members]
        there = all(self.threads[member].meeting == roster.generation for member in members)
        if not there or any(pair <= {*members} for pair in self.apart):
            return
        for member in members:
            self.threads[member].meeting, self.threads[member].group = None, roster.generation
            if member not in self.still:
                self.execute(member, self.machines[member].attends("met", roster.generation, self.now))
                self.put(self.now + 0.5, "stop", member)
        for member in self.still.intersection(members):  # it met the others from within a library, and does no more
            self.hold(member)

    def fail(self, peer: PeerId, generation: tuple[int, int], breach: Breach) -> None:
        """Whatever it is at in that generation ends; a thread that stands still sees it later."""
        thread = self.threads[peer]
        if thread.meeting != generation and not (thread.group == generation and breach.kind == "broke"):
            return
        if peer in self.still:
            return
        thread.meeting = thread.group = None
        self.execute(peer, self.machines[peer].failed(generation, self.now, breach))
        self.seek(peer)

    def hold(self, peer: PeerId) -> None:
        """It stands still, in the middle of a collective; the others see that at a deadline."""
        self.still.add(peer)
        group = self.threads[peer].group
        for other, thread in self.threads.items():
            if group is not None and thread.group == group and other not in self.still:
                self.put(self.now + FORM, "fail", other, group, Breach())

    def move(self, peer: PeerId) -> None:
        """It goes on, and finds its group broken."""
        self.still.discard(peer)
        thread = self.threads[peer]
        at = thread.group or thread.meeting
        if at is not None:
            self.put(self.now, "fail", peer, at, Breach())
            self.put(self.now, "take", peer)
        else:
            self.put(self.now, "seek", peer)  # it waits for a roster, and finds which have come meanwhile

    # What peers do.

    def execute(self, peer: str, effects: list[Any]) -> None:
        name = PeerId(peer)
        for effect in effects:
            match effect:
                case Send(to=to, message=message):
                    self.put(self.now + 0.01, "deliver", name, PeerId(to), message)
                case RosterChanged(roster=roster) | RosterMissed(roster=roster):
                    self.adopt(name, roster)
                case StoreWanted(number=number):
                    self.put(self.now + 0.05, "opened", name, number)
                case RosterPending():
                    self.threads[name].pending = True
                    self.put(self.now + 0.5, "stop", name)
                case HeirFound(heir=heir):
                    self.lead(heir)
                case _:
                    self.told.append((name, effect))

    def adopt(self, peer: PeerId, roster: Roster) -> None:
        thread = self.threads[peer]
        thread.pending = False
        at = thread.meeting or thread.group
        if at is not None:
            self.put(self.now, "fail", peer, at, Breach())
        if peer in roster.members:
            thread.roster = roster
            self.put(self.now, "take", peer)
        elif at is None and peer not in self.still:
            self.put(self.now, "seek", peer)

    def stop(self, peer: PeerId) -> None:
        """The leader's threads and so all others' stand at a boundary, which is in no collective."""
        thread = self.threads[peer]
        if peer not in self.still and thread.group is not None and thread.pending:
            self.execute(peer, self.machines[peer].boundary(1, self.now))

    def opened(self, peer: PeerId, number: int) -> None:
        self.execute(peer, self.machines[peer].store_opened(STORE, number, self.now))

    def deliver(self, source: PeerId, to: PeerId, message: Any) -> None:
        self.execute(to, self.machines[to].receive(source, message, self.now))

    def groups(self) -> set[tuple[str, ...]]:
        """The members of the groups that workers train in who do not stand still."""
        made = [(t.group, t.roster) for peer, t in self.threads.items() if peer not in self.still]
        return {roster.members if roster and roster.generation == group else () for group, roster in made}


PEERS = (A, B, C, D)
LONG = 4 * FORM
"""To the end of a collective and of a meeting, both at their deadlines, and once more where the leader is in it."""


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 4),
    st.lists(st.tuples(st.floats(0.0, 60.0), st.sampled_from(PEERS), st.sampled_from(["hold", "move"])), max_size=8),
)
def test_those_who_move_train_together_whoever_stands_still(
    size: int, history: list[tuple[float, PeerId, str]]
) -> None:
    cluster = Cluster(PEERS[:size])
    cluster.run(10.0)
    for pause, peer, what in history:
        if peer in cluster.peers:
            getattr(cluster, what)(peer)
            cluster.run(cluster.now + pause)
    cluster.run(cluster.now + 3 * LONG)
    moving = {*cluster.peers} - cluster.still
    if moving and not any({*cluster.threads[peer].roster.members} <= cluster.still for peer in cluster.still):
        # Nobody waits in a meeting for a group all of which stands still: newcomers wait for its next step, and say so.
        (members,) = cluster.groups()
        assert {*members} == moving
    for peer in tuple(cluster.still):
        cluster.move(peer)
    cluster.run(cluster.now + LONG)
    (members,) = cluster.groups()
    assert {*members} == {*cluster.peers}, "who moves again is let in again"


@pytest.mark.parametrize("stuck", PEERS[:3])
def test_one_that_stands_still_is_named_to_all_once(stuck: PeerId) -> None:
    cluster = Cluster(PEERS[:3])
    cluster.run(10.0)
    cluster.hold(stuck)
    cluster.run(10.0 + 2 * LONG)
    assert sorted(peer for peer, said in cluster.told if said == WorkersStandStill((stuck,))) == sorted(PEERS[:3])
    assert all(machine.roster.absent == (stuck,) for machine in cluster.machines.values())


def test_two_that_cannot_reach_each_other_blame_nobody() -> None:
    """Both came to each meeting: to go on without one of them would be to take a side."""
    cluster = Cluster((A, B))
    cluster.apart.add(frozenset((A, B)))
    cluster.run(10 * FORM)
    assert cluster.machines[A].roster.members == (A, B)
    aches = [said.trouble for peer, said in cluster.told if peer == B]
    assert [(ache.culprit, ache.words) for ache in aches] == [("", "timed out")], "told once"
    cluster.apart.clear()
    cluster.run(12 * FORM)
    assert cluster.groups() == {(A, B)}


@pytest.mark.parametrize("sick", [A, B])
def test_one_that_cannot_build_its_part_costs_the_others_ever_less(sick: PeerId) -> None:
    (well,) = {A, B} - {sick}
    cluster = Cluster((A, B))
    cluster.run(10.0)
    cluster.unable.add(sick)
    cluster.fail(A, (1, 1), Breach())
    cluster.run(30.0)
    assert {peer for peer, _ in cluster.told} == {A, B}
    for _, said in cluster.told:
        assert (said.trouble.culprit, said.trouble.words) == (sick, "Too many open files")
    assert len(cluster.told) == 2, "told once each"
    before = cluster.machines[well].roster.number
    trained = 0
    for seconds in range(200):
        cluster.run(30.0 + seconds)
        trained += cluster.threads[well].group is not None
    assert trained > 180
    assert cluster.machines[well].roster.number - before <= 12
    cluster.unable.clear()
    cluster.run(cluster.now + PROFILE.aside_most + 10.0)
    (members,) = cluster.groups()
    assert {*members} == {A, B}


class TestLeader:
    def went(self, rosters: Rosters, peer: PeerId, generation: tuple[int, int], sequence: int) -> None:
        report = RosterReady(True, 1, 1, sequence, *generation, A, attended=generation)
        rosters.receive(peer, report, 2.0)

    def test_who_was_waited_for_is_left_out_and_told(self) -> None:
        rosters = leading()
        rosters.attends("meets", (1, 1), 2.0)
        self.went(rosters, B, (1, 1), 3)
        assert notices(rosters.receive(B, RosterFailed(1, 1, UNMET), 30.0)) == [StoreWanted(2)]
        effects = rosters.store_opened(STORE, 2, 30.0)
        assert rosters.roster.members == (A, B)
        assert rosters.roster.absent == (C,)
        assert WorkersStandStill((C,)) in effects
        assert {send.to for send in sends(effects)} == {B, C}

    def test_that_it_is_ready_counts_once_it_has_heard_what_is_said_of_it(self) -> None:
        rosters = leading()
        rosters.attends("meets", (1, 1), 2.0)
        self.went(rosters, B, (1, 1), 3)
        rosters.receive(B, RosterFailed(1, 1, UNMET), 30.0)
        rosters.store_opened(STORE, 2, 30.0)
        assert notices(rosters.receive(C, RosterReady(True, 1, 1, 9, 1, 1, A), 31.0)) == []
        assert C in {send.to for send in sends(rosters.handle_timeout(31.0))}, "it is told until it has heard"
        assert notices(rosters.receive(C, RosterReady(True, 1, 1, 10, 1, 2, A), 32.0)) == [RosterPending((C,))]

    def test_a_group_that_broke_before_its_meetings_deadline_says_nothing_of_who_is_late(self) -> None:
        rosters = leading()
        rosters.attends("meets", (1, 1), 2.0)
        rosters.receive(B, RosterFailed(1, 1), 3.0)
        rosters.store_opened(STORE, 2, 3.0)
        assert rosters.roster.members == (A, B, C)

    def test_one_that_did_not_go_itself_makes_way(self) -> None:
        rosters = leading()
        self.went(rosters, B, (1, 1), 3)
        assert notices(rosters.receive(B, RosterFailed(1, 1, UNMET), 30.0)) == []
        assert notices(rosters.handle_timeout(32.0)) == [HeirFound(B)]
        assert StoreWanted(2) in rosters.attends("waits", (1, 1), 33.0), "it moves before another has taken over"

    def test_one_that_stood_still_before_it_led_is_not_missing_from_its_own_group(self) -> None:
        rosters = following(C)
        rosters.receive(A, RosterProposal(Roster(5, 3, (A, B), STORE, 0, absent=(C,))), 2.0)
        rosters.attends("waits", (5, 2), 9.0)
        rosters.view((B, C), 10.0)
        rosters.leader(C, 6, 10.0)
        self.went(rosters, B, (5, 3), 1)
        rosters.store_opened(STORE, 1, 11.0)
        assert rosters.roster.members == (C, B)
        assert rosters.roster.absent == ()

    def test_one_that_can_open_no_store_makes_way(self) -> None:
        rosters = leading()
        rosters.failed((1, 1), 2.0)
        assert notices(rosters.store_refused(2, 2.0)) == []
        assert rosters.next_timeout() == 2.5
        assert notices(rosters.handle_timeout(2.5)) == [StoreWanted(2)]
        for refused, again in ((2.5, 3.5), (3.5, 5.5)):
            rosters.store_refused(2, refused)
            assert notices(rosters.handle_timeout(again)) == [StoreWanted(2)]
        rosters.store_refused(2, 5.5)
        assert notices(rosters.handle_timeout(7.5)) == [HeirFound(B)]


class TestWorker:
    def test_one_that_stands_still_wants_in_again_when_it_says_anything(self) -> None:
        rosters = following(C)
        rosters.attends("meets", (5, 2), 1.0)
        left = Roster(5, 3, (A, B), STORE, 0, absent=(C,))
        (report,) = sends(rosters.receive(A, RosterProposal(left), 2.0), RosterReady)
        assert not report.message.ready
        (report,) = sends(rosters.attends("waits", (5, 2), 9.0), RosterReady)
        assert report.message.ready

    def test_one_that_waits_for_a_roster_does_not_stand_still(self) -> None:
        rosters = following(C)
        rosters.attends("waits", (5, 1), 1.0)
        left = Roster(5, 3, (A, B), STORE, 0, absent=(C,))
        (report,) = sends(rosters.receive(A, RosterProposal(left), 2.0), RosterReady)
        assert not report.message.ready, "it may stand still while it waits"
        (report,) = sends(rosters.attends("waits", (5, 1), 2.1), RosterReady)
        assert report.message.ready, "but this one has heard of it"

    def test_why_the_last_groups_broke_comes_with_the_next(self) -> None:
        rosters = following(C)
        trouble = Trouble(3, A, "Too many open files")
        effects = rosters.receive(A, RosterProposal(Roster(5, 3, (A, B, C), STORE, 0, trouble=trouble)), 2.0)
        assert GroupAils(trouble) in effects
        worse = Trouble(4, A, "Too many open files")
        effects = rosters.receive(A, RosterProposal(Roster(5, 4, (A, B, C), STORE, 0, trouble=worse)), 3.0)
        assert not [effect for effect in effects if isinstance(effect, GroupAils)], "people were told"
