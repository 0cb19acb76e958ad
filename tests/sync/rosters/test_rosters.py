"""A worker tells whoever leads where it stands, follows the newest leader, and only ever moves to a later roster."""

import pytest

from ictp2p.errors import RemoteProtocolError
from ictp2p.machine import Message, Send
from ictp2p.sync.rosters.machine import Rosters
from ictp2p.sync.rosters.roster import (
    Roster,
    RosterChanged,
    RosterFailed,
    RosterMissed,
    RosterProposal,
    RosterReady,
)
from tests.sync.rosters.roster_stage import (
    PROFILE,
    A,
    B,
    C,
    a_roster,
    following,
    notices,
    sends,
)


def test_it_reports_on_every_occasion_and_again():
    rosters = Rosters(B, 7, PROFILE)
    assert rosters.next_timeout() is None
    assert rosters.wants(True, 0.0) == []
    assert rosters.leader(A, 5, 0.0) == [Send(A, RosterReady(True, 7, 1, 1, 0, 0, ""))]
    assert rosters.next_timeout() == 1.0
    assert rosters.handle_timeout(1.0) == [Send(A, RosterReady(True, 7, 1, 2, 0, 0, ""))]
    assert rosters.wants(True, 1.5) == []
    assert rosters.wants(False, 1.5) == [Send(A, RosterReady(False, 7, 1, 3, 0, 0, ""))]


def test_it_acknowledges_each_copy_and_changes_once():
    rosters = following()
    proposal = RosterProposal(rosters.roster)
    assert rosters.receive(A, proposal, 1.0) == [Send(A, RosterReady(True, 1, 1, 4, 5, 2, A))]


def test_a_deposed_leaders_proposal_is_ignored():
    rosters = following()
    rosters.leader(C, 6, 1.0)
    assert rosters.receive(A, RosterProposal(a_roster(5, 3, (A, B))), 2.0) == []
    assert rosters.roster.generation == (5, 2)


def test_an_earlier_number_is_only_answered():
    rosters = following()
    assert notices(rosters.receive(A, RosterProposal(a_roster(5, 1, (A, B))), 2.0)) == []
    assert rosters.roster.generation == (5, 2)


def test_a_proposal_may_come_before_the_elections_news():
    rosters = following()
    roster = a_roster(6, 1, (C, B))
    effects = rosters.receive(C, RosterProposal(roster), 2.0)
    assert notices(effects) == [RosterChanged(roster)]
    assert rosters.leader(C, 6, 2.1) == []
    assert rosters.leader(A, 5, 2.1) == []


def test_who_is_left_out_is_told():
    rosters, roster = following(), a_roster(5, 3, (A, C))
    assert notices(rosters.receive(A, RosterProposal(roster), 2.0)) == [RosterMissed(roster)]


def test_a_failure_is_repeated_until_the_next_roster():
    rosters = following()
    assert sends(rosters.failed((5, 2), 1.0), RosterFailed) == [Send(A, RosterFailed(5, 2))]
    assert rosters.failed((5, 2), 1.0) == []
    assert sends(rosters.handle_timeout(2.0), RosterFailed) == [Send(A, RosterFailed(5, 2))]
    rosters.receive(A, RosterProposal(a_roster(5, 3, (A, B))), 2.5)
    assert sends(rosters.handle_timeout(9.0), RosterFailed) == []
    assert rosters.failed((5, 2), 9.0) == []


@pytest.mark.parametrize(
    ("roster", "complaint"),
    [
        (a_roster(6, 1, (C, B)), f"that {C} leads"),
        (a_roster(6, 1, (A, B, B)), "names a member twice"),
        (Roster(6, 1, (A, B), "nowhere", 0), "without a store.*nowhere"),
    ],
)
def test_a_proposal_that_cannot_be_is_refused(roster, complaint):
    with pytest.raises(RemoteProtocolError, match=complaint):
        following().receive(A, RosterProposal(roster), 2.0)


def test_foreign_messages_are_refused():
    with pytest.raises(RemoteProtocolError, match="sent Message to a roster"):
        following().receive(A, Message(), 2.0)
