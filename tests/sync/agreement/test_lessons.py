"""What a peer that is behind is taught: everything that it lacks, and not the same twice at once."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ictp2p.machine import Effects, Send
from ictp2p.sync.messages import Decision, Greet
from tests.sync.agreement.agreeing import LINEAGE, PROFILE, A, B, C, Net, change, net


def taught(effects: Effects) -> list[int]:
    return [e.message.slot for e in effects if isinstance(e, Send) and isinstance(e.message, Decision) and e.to == B]


def ahead(slots: int) -> Net:
    """A and C have decided so many slots of which B has heard nothing."""
    n = net(A, B, C)
    n.go_on_without(B, slots)
    n.now = PROFILE.retry
    return n


@example(slots=1, hints=[(1, 0.0, False), (0, 0.0, True), (1, 0.0, True), (2, 0.0, False)])
@given(
    slots=st.integers(1, 6),
    hints=st.lists(st.tuples(st.integers(0, 6), st.floats(0.0, 1.5 * PROFILE.retry), st.booleans()), max_size=8),
)
def test_a_lesson_is_whole_and_is_not_given_again_while_it_is_under_way(
    slots: int, hints: list[tuple[int, float, bool]]
) -> None:
    """Regression: each hint of a peer 31 slots behind was answered with all of them, 1.5 MB with large plans."""
    n = ahead(slots)
    a, b, due, sent = n.machines[A], n.machines[B], 0.0, set[int]()
    knew = a.slot
    for back, pause, more in hints:
        n.now += pause
        if more:
            n.go_on_without(B, 1)
        slot = max(b.slot, a.slot - back)  # what B says that it knows: less and less, if it was started again
        lesson = taught(a.receive(B, Greet(slot, LINEAGE), n.now))
        lacks = set(range(slot + 1, a.slot + 1))
        if not lacks:
            continue
        if n.now >= due or slot < knew or slot >= max(sent):
            due, knew, sent = n.now + PROFILE.retry, slot, set()
        assert lesson == sorted(lacks - sent)
        sent |= lacks


def test_a_lesson_is_given_again_once_it_was_time_to_read_it() -> None:
    n = ahead(3)
    a, hint = n.machines[A], Greet(n.machines[B].slot, LINEAGE)
    assert taught(a.receive(B, hint, n.now)) == [2, 3, 4]
    assert taught(a.receive(B, hint, 1.5 * PROFILE.retry)) == []
    assert taught(a.receive(B, hint, 2.0 * PROFILE.retry)) == [2, 3, 4]


def test_on_a_new_connection_nothing_is_under_way() -> None:
    n = ahead(3)
    a, hint = n.machines[A], Greet(n.machines[B].slot, LINEAGE)
    assert taught(a.receive(B, hint, n.now)) == [2, 3, 4]
    a.greet(B, n.now)
    assert taught(a.receive(B, hint, n.now)) == [2, 3, 4]


def test_what_was_decided_since_is_taught_at_once() -> None:
    n = ahead(2)
    a, hint = n.machines[A], Greet(n.machines[B].slot, LINEAGE)
    assert taught(a.receive(B, hint, n.now)) == [2, 3]
    n.cut = {B}
    n.propose(A, change(n.tip(A), A))
    n.settle()
    n.cut = set()
    assert taught(a.receive(B, hint, n.now)) == [4]
