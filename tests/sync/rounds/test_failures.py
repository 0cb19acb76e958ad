"""What the failed attempts of a round are worth: who stands READY anew, whom plans route around, who sits out."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ictp2p.sync.messages import Failed, Vote
from ictp2p.sync.profile import RoundProfile
from ictp2p.sync.rounds.failures import Failures
from ictp2p.sync.rounds.sight import ClusterView, Sight
from ictp2p.sync.values import Open, Participant, StateRef
from ictp2p.types import ClusterId, PeerId
from tests.sync.rounds.rounds_mesh import A0, B0, C0, FIRST, LINEAGE, SYNC

NAMES = {A0: ClusterId("a"), B0: ClusterId("b"), C0: ClusterId("c")}
PARTS = tuple(Participant(name, leader, 1, 1.0) for leader, name in NAMES.items())
OPENED = Open(LINEAGE, (A0, B0, C0), StateRef(1, FIRST, ()), A0, 3, 1, SYNC, PARTS, b"plan", "", 30.0)
PROFILE = RoundProfile.local()
LAST = replace(OPENED, attempt=PROFILE.tolerance)


def failures() -> Failures:
    """Those that the leader of a notes."""
    sight = Sight(A0, 1.0, 0.0)
    sight.update({name: ClusterView(who, 1, True, False, True, (who,)) for who, name in NAMES.items()}, 0.0)
    return Failures(PROFILE, sight)


def failed(*suspects: PeerId, standing: bool = True) -> Failed:
    return Failed(0, 3, 1, "broken", suspects, standing)


def test_who_was_accused_and_is_silent_has_to_show_that_it_lives() -> None:
    noted = failures()
    assert [part.cluster for part in noted.aborted(OPENED, {A0: failed(B0, C0), B0: failed(A0)})] == ["c"]
    assert noted.edges == ((A0, B0), (A0, C0), (B0, A0))
    assert noted.again == {"a", "b", "c"}
    assert not noted.barred


def test_who_is_silent_and_not_accused_still_stands_and_who_has_withdrawn_does_not() -> None:
    assert [part.cluster for part in failures().aborted(OPENED, {A0: failed(standing=False)})] == ["a"]


def test_an_accusation_of_oneself_or_of_a_stranger_is_none() -> None:
    noted = failures()
    assert not noted.aborted(OPENED, {A0: failed(A0, PeerId("f" * 32))})
    assert noted.edges == ()


def test_two_digests_accuse_each_other() -> None:
    noted = failures()
    noted.aborted(OPENED, {A0: Vote(0, 3, 1, b"this"), B0: Vote(0, 3, 1, b"that")})
    assert noted.edges == ((A0, B0), (B0, A0))


def test_after_too_many_attempts_the_most_accused_sits_out_until_another_round() -> None:
    noted = failures()
    noted.aborted(LAST, {A0: failed(C0), B0: failed(C0), C0: failed(B0)})
    assert noted.barred == {"c"}
    noted.turn()
    assert (noted.edges, noted.again, noted.barred) == ((), None, frozenset())


@pytest.mark.parametrize("opened", [OPENED, LAST])
def test_whose_digest_is_not_that_of_most_sits_out_at_once_be_it_ones_own_cluster(opened: Open) -> None:
    """And nobody else does, though each accuses those who came to another digest: of three, a is accused twice."""
    noted = failures()
    votes = {A0: Vote(0, 3, 1, b"this"), B0: Vote(0, 3, 1, b"that"), C0: Vote(0, 3, 1, b"that")}
    noted.aborted(opened, votes, ((ClusterId("b"), ClusterId("c")), (ClusterId("a"),)))
    assert noted.barred == {"a"}


def test_where_no_digest_is_that_of_most_it_is_as_for_any_failure() -> None:
    votes = {A0: Vote(0, 3, 1, b"this"), B0: Vote(0, 3, 1, b"that")}
    camps = ((ClusterId("a"),), (ClusterId("b"),))
    noted = failures()
    noted.aborted(OPENED, votes, camps)
    assert noted.barred == set()
    noted.aborted(LAST, votes, camps)
    assert noted.barred == {"b"}


def test_after_attempts_that_took_too_long_though_nobody_failed_the_next_may_take_longer() -> None:
    """Regression: over a link that no figure was known of, all attempts ended at one deadline, for ever."""
    noted = failures()
    noted.aborted(OPENED, {}, late=False)
    assert noted.longer == 1.0
    for verdicts, longer in (({}, 2.0), ({A0: failed(C0)}, 2.0), ({B0: Vote(0, 3, 1, b"this")}, 4.0), ({}, 4.0)):
        noted.aborted(OPENED, verdicts)
        assert noted.longer == longer
    noted.aborted(OPENED, {}, ((ClusterId("a"),), (ClusterId("b"),)))
    noted.aborted(OPENED, {}, late=False)
    assert noted.longer == 4.0
    noted.turn()
    assert noted.longer == 1.0


def test_who_alone_accuses_the_coordinator_sits_out_itself() -> None:
    """Regression: nobody did, and one cluster with a line that was too slow kept all others from every round."""
    noted = failures()
    noted.aborted(LAST, {C0: failed(A0), B0: Vote(0, 3, 1, b"this")})
    assert noted.barred == {"c"}
    noted = failures()
    noted.aborted(LAST, {C0: failed(A0), A0: failed(B0)})
    assert noted.barred == {"b"}


def test_nobody_bars_its_own_cluster_for_less_nor_anybody_whom_nobody_accuses() -> None:
    for verdicts in ({B0: failed(A0), C0: failed(A0)}, {}):
        noted = failures()
        noted.aborted(LAST, verdicts)
        assert not noted.barred
