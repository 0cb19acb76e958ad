"""A leader makes a roster when there is reason to, of those who are there, and sees that all concerned hear of it."""

import pytest

from ictp2p.errors import ConfigError
from ictp2p.machine import Send
from ictp2p.sync.rosters.machine import Rosters
from ictp2p.sync.rosters.roster import (
    RosterChanged,
    RosterFailed,
    RosterPending,
    RosterProposal,
    StoreWanted,
)
from ictp2p.types import PeerId
from tests.sync.rosters.roster_stage import (
    PROFILE,
    STORE,
    A,
    B,
    C,
    D,
    a_roster,
    leading,
    notices,
    ready,
    sends,
)


def test_the_first_roster_waits_for_everyone_alive():
    rosters = Rosters(A, 1, PROFILE)
    rosters.view((A, B, C), 0.0)
    rosters.leader(A, 1, 0.0)
    assert notices(rosters.wants(True, 1.0)) == []
    assert notices(rosters.receive(B, ready(), 2.0)) == []
    assert notices(rosters.receive(C, ready(), 3.0)) == [StoreWanted(1)]
    roster = a_roster(1, 1, (A, B, C))
    effects = rosters.store_opened(STORE, 1, 3.1)
    assert notices(effects) == [RosterChanged(roster)]
    assert sends(effects) == [Send(B, RosterProposal(roster)), Send(C, RosterProposal(roster))]


def test_who_was_told_that_it_leads_waits_to_see_who_said_so():
    """Regression: a leader that had just been started again trained alone, from the beginning, beside its mates."""
    rosters = Rosters(A, 1, PROFILE)
    rosters.wants(True, 0.0)
    assert notices(rosters.leader(A, 2, 0.0, told=True)) == []
    assert notices(rosters.view((A,), 0.0)) == []
    assert notices(rosters.view((A, B), 0.1)) == [], "it is expected by now"
    assert notices(rosters.receive(B, ready(), 0.2)) == [StoreWanted(1)]


def test_who_was_told_that_it_leads_does_not_wait_for_ever_for_whom():
    rosters = Rosters(A, 1, PROFILE)
    rosters.wants(True, 0.0)
    rosters.view((A,), 0.0)
    assert notices(rosters.leader(A, 2, 0.0, told=True)) == []
    assert notices(rosters.handle_timeout(4.9)) == []
    assert notices(rosters.handle_timeout(5.0)) == [StoreWanted(1)]
    alone = Rosters(A, 1, PROFILE)
    alone.wants(True, 0.0)
    alone.view((A,), 0.0)
    assert notices(alone.leader(A, 2, 0.0)) == [StoreWanted(1)], "nobody says that there is another"


def test_but_not_forever():
    rosters = Rosters(A, 1, PROFILE)
    rosters.view((A, B, C), 0.0)
    rosters.leader(A, 1, 0.0)
    rosters.wants(True, 1.0)
    rosters.receive(B, ready(), 2.0)
    assert notices(rosters.handle_timeout(5.9)) == []
    assert notices(rosters.handle_timeout(6.0)) == [StoreWanted(1)]
    assert notices(rosters.store_opened(STORE, 1, 6.0)) == [RosterChanged(a_roster(1, 1, (A, B)))]


def test_workers_that_are_somebody_else_after_each_start_crowd_nobody_out():
    rosters = leading((A, B))
    for life in range(200):
        worker = PeerId(f"{life:032x}")
        rosters.view((A, B, worker), 2.0 + life)
        rosters.receive(worker, ready(), 2.1 + life)
    rosters.boundary(7, 300.0)
    (changed,) = notices(rosters.store_opened(STORE, 2, 300.0))
    assert changed.roster.members == (A, worker, B)


def test_who_leads_nobody_has_nothing_to_repeat_until_somebody_comes():
    rosters = leading((A,))
    assert rosters.next_timeout() is None
    rosters.view((A, B), 50.0)
    assert rosters.next_timeout() is not None
    alone = leading((A, B))
    alone.view((A,), 50.0)
    assert alone.next_timeout() is not None, "its group still has another member"
    idle = Rosters(A, 1, PROFILE)
    idle.view((A, B), 0.0)
    idle.leader(A, 1, 0.0)
    assert idle.next_timeout() is None, "it does not train, and nobody does who could lead in its place"
    idle.receive(B, ready(), 1.0)
    assert idle.next_timeout() is not None


def test_a_death_makes_a_new_roster_at_once():
    rosters = leading()
    assert notices(rosters.view((A, C), 2.0)) == [StoreWanted(2)]
    assert notices(rosters.store_opened(STORE, 2, 2.0)) == [RosterChanged(a_roster(1, 2, (A, C)))]


def test_a_newcomer_waits_for_the_boundary():
    rosters = leading((A, B))
    rosters.view((A, B, C), 2.0)
    assert notices(rosters.receive(C, ready(), 2.0)) == [RosterPending((C,))]
    assert notices(rosters.receive(C, ready(2), 3.0)) == [], "told once"
    assert notices(rosters.boundary(17, 4.0)) == [StoreWanted(2)]
    assert notices(rosters.boundary(17, 4.0)) == [], "wanted once"
    assert notices(rosters.store_opened(STORE, 2, 4.0)) == [RosterChanged(a_roster(1, 2, (A, B, C), step=17))]
    assert notices(rosters.boundary(18, 5.0)) == []


def test_whoever_stopped_for_a_newcomer_gets_a_roster_even_if_it_has_gone():
    rosters = leading((A, B))
    rosters.view((A, B, C), 2.0)
    rosters.receive(C, ready(), 2.0)
    assert notices(rosters.view((A, B), 3.0)) == []
    assert notices(rosters.boundary(17, 4.0)) == [StoreWanted(2)]


def test_a_member_that_restarted_unnoticed_makes_a_new_roster():
    assert notices(leading().receive(B, ready(1, life=2), 2.0)) == [StoreWanted(2)]


def test_a_training_thread_that_restarted_unnoticed_makes_a_new_roster():
    assert notices(leading().receive(B, ready(4, spell=2, holds=(1, 1, A), calls=True), 2.0)) == [StoreWanted(2)]


def test_a_late_report_of_an_earlier_life_is_nothing():
    rosters = leading()
    rosters.receive(B, ready(1, life=2), 2.0)
    rosters.store_opened(STORE, 2, 2.0)
    assert rosters.receive(B, ready(9, life=1, ready=False), 2.1) == []
    assert rosters.receive(B, ready(1, life=2, ready=False), 2.1) == []


def test_an_unwilling_member_is_left_out_and_told():
    rosters = leading()
    assert notices(rosters.receive(C, ready(3, ready=False, holds=(1, 1, A)), 2.0)) == [StoreWanted(2)]
    roster = a_roster(1, 2, (A, B))
    proposal = RosterProposal(roster)
    assert sends(rosters.store_opened(STORE, 2, 2.0)) == [Send(B, proposal), Send(C, proposal)]


def test_suspicion_alone_costs_no_membership():
    assert notices(leading().view((A, B, C), 2.0, frozenset([C]))) == []


def test_suspicion_and_silence_do():
    rosters = leading()
    rosters.failed((1, 1), 2.0)
    rosters.store_opened(STORE, 2, 2.0)
    rosters.receive(B, ready(3, holds=(1, 2, A)), 2.1)
    assert notices(rosters.view((A, B, C), 2.2, frozenset([C]))) == [StoreWanted(3)]
    assert notices(rosters.store_opened(STORE, 3, 2.2)) == [RosterChanged(a_roster(1, 3, (A, B)))]


def test_a_broken_collective_makes_a_new_roster_once():
    rosters = leading()
    assert notices(rosters.receive(B, RosterFailed(1, 1), 2.0)) == [StoreWanted(2)]
    assert notices(rosters.receive(C, RosterFailed(1, 1), 2.0)) == []
    rosters.store_opened(STORE, 2, 2.0)
    assert notices(rosters.failed((1, 1), 2.0)) == []
    assert notices(rosters.receive(C, RosterFailed(1, 1), 2.0)) == []
    assert notices(rosters.handle_timeout(50.0)) == [], "not later either"


def test_who_is_no_member_breaks_nothing():
    assert leading().receive(D, RosterFailed(1, 1), 2.0) == []


def test_a_group_that_breaks_again_waits_longer_each_time_unless_a_member_went():
    rosters, now = leading(), 2.0
    for number, wait in ((2, 0.0), (3, 0.5), (4, 1.0), (5, 2.0), (6, 4.0), (7, 4.0)):
        effects = notices(rosters.failed((1, number - 1), now))
        if wait:
            assert effects == []
            assert rosters.next_timeout() <= now + wait
            assert notices(rosters.handle_timeout(now + wait - 0.01)) == []
            now += wait
            effects = notices(rosters.handle_timeout(now))
        assert effects == [StoreWanted(number)]
        rosters.store_opened(STORE, number, now)
    assert notices(rosters.failed((1, 7), now)) == []
    assert notices(rosters.view((A, B), now + 0.1)) == [StoreWanted(8)], "the death explains the failure"


def test_a_step_between_two_failures_forgets_the_first():
    rosters = leading()
    rosters.failed((1, 1), 2.0)
    rosters.store_opened(STORE, 2, 2.0)
    rosters.boundary(3, 3.0)
    assert notices(rosters.failed((1, 2), 4.0)) == [StoreWanted(3)]


def test_a_death_between_two_failures_forgets_the_first():
    rosters = leading()
    rosters.failed((1, 1), 2.0)
    rosters.store_opened(STORE, 2, 2.0)
    rosters.view((A, B), 3.0)
    rosters.store_opened(STORE, 3, 3.0)
    assert notices(rosters.failed((1, 3), 4.0)) == [StoreWanted(4)]


def test_a_leader_whose_training_went_down_founds_nothing_with_a_late_store():
    rosters = leading()
    rosters.view((A, B), 2.0)
    rosters.wants(False, 2.1)
    assert rosters.store_opened(STORE, 2, 2.2) == []


def test_a_store_that_does_not_open_is_asked_for_again():
    rosters = leading()
    rosters.view((A, B), 2.0)
    assert notices(rosters.handle_timeout(6.9)) == []
    assert notices(rosters.handle_timeout(7.0)) == [StoreWanted(2)]
    assert rosters.store_opened(STORE, 1, 7.0) == [], "of another number"


def test_an_address_that_is_none_is_refused_and_changes_nothing():
    rosters = leading()
    rosters.view((A, B), 2.0)
    with pytest.raises(ConfigError, match="nowhere"):
        rosters.store_opened("nowhere", 2, 2.0)
    assert rosters.roster.number == 1
    assert notices(rosters.store_opened(STORE, 2, 2.0))


def test_a_proposal_is_repeated_until_it_is_acknowledged():
    rosters = leading()
    rosters.view((A, B, C, D), 1.0)
    rosters.receive(D, ready(), 1.0)
    rosters.boundary(1, 1.0)
    rosters.store_opened(STORE, 2, 1.0)
    rosters.receive(B, ready(3, holds=(1, 2, A)), 1.1)
    again = RosterProposal(a_roster(1, 2, (A, B, C, D), step=1))
    assert sends(rosters.handle_timeout(2.0)) == [Send(C, again), Send(D, again)]
    assert sends(rosters.receive(C, ready(3, holds=(1, 1, A)), 2.5)) == [Send(C, again)], "at once, when it shows"


def test_an_office_shows_what_it_waits_for():
    rosters = leading()
    rosters.failed((1, 1), 2.0)
    assert repr(rosters._office) == "<Office term=1 number=1 founded=True wanted=2 pending=False failed=1>"
