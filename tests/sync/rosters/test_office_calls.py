"""Rosters of workers that make collective calls, beside those that train with a policy."""

from copy import deepcopy

from ictp2p.sync.rosters.machine import Rosters
from ictp2p.sync.rosters.roster import (
    MatesCall,
    RosterPending,
    StoreWanted,
)
from tests.sync.rosters.roster_stage import (
    PROFILE,
    STORE,
    A,
    B,
    C,
    D,
    leading,
    notices,
    ready,
)


def test_a_call_waits_longer_for_those_of_the_last_group():
    """Regression: who came to its first call after a policy seconds after the others was not in their sum."""
    rosters = leading()
    for peer in (B, C):
        rosters.receive(peer, ready(3, ready=False, holds=(1, 1, A)), 2.0)
    rosters.wants(False, 2.0)
    assert notices(rosters.wants(True, 3.0, calls=True)) == []
    assert notices(rosters.receive(B, ready(4, spell=2, holds=(1, 1, A), calls=True), 4.0)) == []
    assert notices(rosters.handle_timeout(3.0 + PROFILE.gather)) == []
    assert notices(rosters.handle_timeout(2.9 + PROFILE.gather_for_calls)) == []
    late, end = deepcopy(rosters), 3.0 + PROFILE.gather_for_calls
    assert notices(rosters.receive(C, ready(4, spell=2, holds=(1, 1, A), calls=True), end - 0.05)) == [StoreWanted(2)]
    assert late.next_timeout() == end
    assert notices(late.handle_timeout(end)) == [StoreWanted(2)], "but not for ever"


def test_who_calls_and_who_trains_with_a_policy_are_never_in_one_roster():
    """Regression: they met in one group, whose operations did not fit each other, and Gloo ended the process."""
    rosters = Rosters(A, 1, PROFILE)
    rosters.view((A, B), 0.0)
    rosters.leader(A, 1, 0.0)
    rosters.wants(True, 0.0)
    assert notices(rosters.receive(B, ready(calls=True), 0.1)) == []
    assert notices(rosters.handle_timeout(PROFILE.gather)) == [StoreWanted(1)]
    rosters.store_opened(STORE, 1, PROFILE.gather)
    assert rosters.roster.members == (A,)
    assert notices(rosters.receive(B, ready(2, calls=True), 6.0)) == [], "training is not disturbed for it"
    assert notices(rosters.receive(B, ready(3, spell=2), 7.0)) == [RosterPending((B,))]


def test_a_call_waits_for_who_left_the_policy_before_its_leader():
    """Regression: the roster that its leaving made was taken for the last group."""
    rosters = leading()
    assert notices(rosters.receive(C, ready(3, ready=False, holds=(1, 1, A)), 2.0)) == [StoreWanted(2)]
    rosters.store_opened(STORE, 2, 2.0)
    assert rosters.roster.members == (A, B)
    rosters.receive(B, ready(3, ready=False, holds=(1, 2, A)), 2.5)
    rosters.wants(False, 2.5)
    rosters.wants(True, 3.0, calls=True)
    assert notices(rosters.receive(B, ready(4, spell=2, holds=(1, 2, A), calls=True), 3.1)) == []
    assert notices(rosters.receive(C, ready(4, spell=2, holds=(1, 1, A), calls=True), 9.0)) == [StoreWanted(3)]


def test_but_not_for_who_is_gone_nor_for_a_stranger():
    rosters = leading()
    for peer in (B, C):
        rosters.receive(peer, ready(3, ready=False, holds=(1, 1, A)), 2.0)
    rosters.wants(False, 2.0)
    rosters.wants(True, 3.0, calls=True)
    rosters.view((A, B, C, D), 3.0)
    rosters.receive(B, ready(4, spell=2, holds=(1, 1, A), calls=True), 4.0)
    assert notices(rosters.view((A, B, D), 20.0)) == [StoreWanted(2)]


def test_a_first_call_waits_as_long_as_a_policy_for_workers_that_may_never_call():
    rosters = Rosters(A, 1, PROFILE)
    rosters.view((A, B), 0.0)
    rosters.leader(A, 1, 0.0)
    rosters.wants(True, 0.0, calls=True)
    assert notices(rosters.handle_timeout(PROFILE.gather)) == [StoreWanted(1)]


def test_a_leader_that_has_not_begun_knows_that_others_are_there_to_call():
    """Regression: it told the mesh that its cluster takes no part, which went on without a worker in its midst."""
    rosters = Rosters(A, 1, PROFILE)
    rosters.view((A, B, C), 0.0)
    rosters.leader(A, 1, 0.0)
    assert MatesCall(True) not in rosters.receive(B, ready(), 0.5), "it trains with a policy"
    assert MatesCall(True) in rosters.receive(C, ready(calls=True), 1.0)
    assert rosters.mates_call
    assert MatesCall(True) not in rosters.receive(C, ready(2, calls=True), 1.5), "it is known already"
    assert MatesCall(False) in rosters.view((A, B), 2.0)
    assert MatesCall(True) in rosters.view((A, B, C), 3.0)
    rosters.leader(C, 2, 4.0)
    assert not rosters.mates_call, "that is for another to say"
