"""Passive copies of a leader's view, and the machines that begin from one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.gossip.messages import (
    Dead,
    Gossip,
    MemberCleared,
    MemberFailed,
    MemberJoined,
    MemberSuspected,
    MemberUpdated,
    Ping,
    Sight,
    Status,
    SwimState,
)
from ictp2p.gossip.suspicion import limits
from ictp2p.machine import Notice
from tests.gossip.swim_group import LAN, machine, notices, record, started


def test_passive_copy_mirrors_and_answers_nobody() -> None:
    leader = started("a", "b", "c", "d")
    leader.broken("b", False, 1.0)
    leader.receive("d", Gossip((Dead("c", 1, "d"),)), 1.0)
    copy = machine("a", seed=1)
    effects = copy.absorb(leader.state(), 2.0)
    assert [type(n) for n in notices(effects)] == [MemberJoined, MemberSuspected, MemberJoined]
    assert copy.alive() == ("b", "d")
    assert copy.suspects() == {"b"}
    assert copy.members["c"].status is Status.DEAD
    assert copy.absorb(leader.state(), 3.0) == [], "nothing new, no notices"
    assert copy.receive("b", Ping(1), 3.0) == copy.handle_timeout(1e9) == copy.meet("b", 3.0) == []
    assert copy.broken("b", True, 3.0) == copy.heard("b", 3.0) == []
    assert copy.next_timeout() is None
    leader.receive("b", Gossip((record("b", 2),)), 4.0)
    leader.receive("d", Gossip((Dead("d", 1, "b"),)), 4.0)
    effects = copy.absorb(leader.state(), 4.0)
    assert notices(effects) == [MemberCleared("b"), MemberUpdated("b", record("b", 2)), MemberFailed("d")]


def test_passive_copy_keeps_what_is_newer() -> None:
    copy = machine("x")
    copy.absorb(SwimState((Sight(record("b", 2), Status.ALIVE),)), 1.0)
    assert copy.absorb(SwimState((Sight(record("b", 1), Status.DEAD),)), 2.0) == []
    assert copy.members["b"].status is Status.ALIVE


def test_copy_that_starts_speaks_in_a_greater_incarnation_and_chases_inherited_suspicions() -> None:
    leader = started("a", "b", "c")
    leader.broken("b", False, 1.0)
    heir = machine("a", key=b"a-heir")
    heir.absorb(leader.state(), 2.0)
    heir.start(b"mine", 1, 3.0)
    assert heir.record is not None
    assert heir.record.incarnation == 2
    assert "a" in heir.members
    assert heir.alive() == ("a", "b", "c")
    seen: list[Notice] = []
    while (due := heir.next_timeout()) is not None and due < 3.0 + limits(3, LAN)[1] + 1:
        seen += notices(heir.handle_timeout(due))
    assert MemberFailed("b") in seen


def test_stop_and_start_again_raises_the_incarnation() -> None:
    swim = started("a", "b")
    swim.stop()
    assert swim.alive() == ("b",)
    assert "a" not in swim.members
    assert swim.record is None
    swim.start(b"", 1, 5.0)
    assert swim.record is not None
    assert swim.record.incarnation == 2
    swim.start(b"", 1, 6.0)
    assert swim.record.incarnation == 3


def test_active_machine_takes_a_state_as_evidence() -> None:
    swim = started("a", "b")
    sights = (Sight(record("b"), Status.DEAD), Sight(record("c"), Status.ALIVE), Sight(record("a"), Status.DEAD))
    effects = swim.absorb(SwimState(sights), 1.0)
    assert notices(effects) == [MemberSuspected("b"), MemberJoined("c", record("c"))]
    assert swim.record is not None
    assert swim.record.incarnation == 2


def test_who_is_shown_among_the_living_is_not_accused() -> None:
    """Regression: whoever met another leader, and was shown its view, took itself for sick and probed more rarely."""
    swim = started("a", "b")
    assert swim.absorb(SwimState((Sight(record("a"), Status.ALIVE),)), 1.0) == []
    assert swim.health == 0
    assert swim.record is not None
    assert swim.record.incarnation == 1


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from((Status.DEAD, Status.LEFT)), min_size=1))
def test_active_machine_meets_nobody_only_to_bury_him(told: dict[str, Status]) -> None:
    """Whom it has forgotten, another may remember for a while: who died an hour ago does not come back to life."""
    swim = started("a", "b")
    swim.absorb(SwimState(tuple(Sight(record(name), status) for name, status in told.items())), 1.0)
    assert swim.members.keys() == {"a", "b"}
    assert swim.suspects() == {"b"} & {name for name, status in told.items() if status is Status.DEAD}
