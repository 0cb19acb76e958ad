"""Who leads a cluster makes way for another, stops, or goes on above those who claimed it too."""

from ictp2p.sync.rosters.machine import Rosters
from ictp2p.sync.rosters.roster import (
    HeirFound,
    RosterReady,
    StoreWanted,
)
from tests.sync.rosters.roster_stage import (
    PROFILE,
    STORE,
    A,
    B,
    C,
    D,
    following,
    leading,
    notices,
    ready,
    sends,
)


def test_a_successor_waits_only_for_the_last_group():
    rosters = following(B)
    rosters.view((B, C, D), 1.0)
    assert notices(rosters.leader(B, 6, 1.0)) == []
    assert notices(rosters.receive(C, ready(), 1.1)) == [StoreWanted(1)]


def test_a_leader_whose_training_is_not_up_makes_no_group():
    rosters = Rosters(A, 1, PROFILE)
    rosters.view((A,), 0.0)
    assert notices(rosters.leader(A, 1, 0.0)) == []
    assert notices(rosters.handle_timeout(100.0)) == []
    assert notices(rosters.wants(True, 100.0)) == [StoreWanted(1)]


def test_a_leader_whose_training_is_not_up_makes_way_for_a_worker_that_waits():
    rosters = Rosters(A, 1, PROFILE)
    rosters.view((A, B, C), 0.0)
    rosters.leader(A, 1, 0.0)
    assert notices(rosters.receive(C, ready(), 1.0)) == []
    assert notices(rosters.handle_timeout(5.9)) == []
    assert rosters.next_timeout() <= 6.0
    assert notices(rosters.handle_timeout(6.0)) == [HeirFound(C)]
    assert notices(rosters.handle_timeout(6.5)) == []
    assert notices(rosters.handle_timeout(7.0)) == [HeirFound(C)]
    assert notices(rosters.wants(True, 7.5)) == []
    assert notices(rosters.handle_timeout(8.5)) == []


def test_a_leader_whose_training_ends_makes_way_for_the_next_of_the_group():
    rosters = leading(members=(A, C))
    rosters.view((A, B, C), 2.0)
    rosters.receive(B, ready(), 2.0)
    assert notices(rosters.wants(False, 3.0)) == []
    assert notices(rosters.handle_timeout(4.9)) == []
    assert notices(rosters.handle_timeout(5.0)) == [HeirFound(C)]


def test_a_leader_that_yields_to_the_others_of_its_group_makes_way_at_once_and_comes_back_as_any_other():
    """Regression: its mates could not call without it, and missed their round."""
    rosters = leading(members=(A, C))
    rosters.view((A, B, C), 2.0)
    assert notices(rosters.attends("yields", (1, 1), 3.0)) == [HeirFound(C)]
    assert notices(rosters.wants(False, 3.0)) == []
    assert notices(rosters.handle_timeout(3.9)) == []
    assert notices(rosters.handle_timeout(4.0)) == [HeirFound(C)]
    for now, effects, up in ((4.1, rosters.leader(C, 2, 4.1), False), (4.2, rosters.wants(True, 4.2), True)):
        (report,) = (sent.message for sent in sends(effects, RosterReady))
        assert report.ready is up, now


def test_who_yields_to_others_that_are_not_ready_yet_makes_way_once_they_are():
    rosters = leading(members=(A, C))
    rosters.receive(C, ready(9, ready=False), 2.5)
    rosters.attends("yields", (1, 1), 3.0)
    assert notices(rosters.wants(False, 3.0)) == []
    assert notices(rosters.receive(C, ready(10), 3.2)) == [HeirFound(C)]


def test_a_worker_whose_training_ends_as_well_is_no_heir():
    rosters = leading(members=(A, C))
    rosters.wants(False, 3.0)
    assert notices(rosters.receive(C, ready(9, ready=False), 3.5)) == []
    assert notices(rosters.handle_timeout(20.0)) == []


def test_a_worker_that_is_gone_by_then_is_no_heir():
    rosters = leading()
    rosters.wants(False, 3.0)
    rosters.view((A, C), 4.0, frozenset({C}))
    assert notices(rosters.handle_timeout(20.0)) == []
    rosters.view((A, C), 21.0)
    assert notices(rosters.handle_timeout(22.9)) == []
    assert notices(rosters.handle_timeout(23.0)) == [HeirFound(C)]


def test_a_deposed_leader_stops():
    rosters = leading()
    rosters.view((A, C), 2.0)
    rosters.leader(C, 2, 2.0)
    assert notices(rosters.store_opened(STORE, 2, 2.0)) == []
    assert notices(rosters.view((A,), 2.0)) == []
    assert sends(rosters.handle_timeout(50.0)) == []


def test_two_claimants_of_one_term_number_on_above_each_other():
    rosters = Rosters(B, 1, PROFILE)
    rosters.view((A, B, C), 0.0)
    rosters.leader(B, 1, 0.0)
    rosters.wants(True, 0.0)
    rosters.receive(A, ready(), 0.1)
    rosters.receive(C, ready(), 0.1)
    rosters.store_opened(STORE, 1, 0.1)
    assert notices(rosters.receive(C, ready(2, holds=(1, 1, A)), 0.2)) == [StoreWanted(2)]


def test_the_winner_of_a_tie_numbers_on_above_the_roster_that_it_followed():
    rosters = following(B)
    rosters.leader(B, 5, 1.0)
    assert notices(rosters.view((B,), 1.0)) == [StoreWanted(3)]


def test_a_leader_whose_own_training_restarts_makes_a_new_roster_of_the_same_term():
    rosters = leading()
    assert notices(rosters.wants(False, 2.0)) == []
    assert notices(rosters.wants(True, 3.0)) == [StoreWanted(2)]
