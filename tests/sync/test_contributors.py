"""Who is inside which version: known, known not to be, or unknown after an absence."""

from typing import Any

from ictp2p.sync.contributors import Contributors
from ictp2p.sync.values import Close, Open, Participant, Restore, Spec, StateRef, Value
from ictp2p.types import ClusterId, PeerId

ME = PeerId("1" * 32)
A, B = ClusterId("a"), ClusterId("b")


def opened(round_: int, attempt: int, *clusters: ClusterId, kind: Any = "sync") -> Open:
    parts = tuple(Participant(c, PeerId(f"{n}" * 32), 1, 1.0) for n, c in enumerate(clusters))
    spec = Spec(kind, "test", "float32", 1, "avg", "none")
    return Open(bytes(8), (ME,), state(round_ - 1), ME, round_, attempt, spec, parts, b"", "", 1.0)


def closed(round_: int, attempt: int, *, committed: bool = True) -> Close:
    after = state(round_ if committed else round_ - 1)
    return Close(bytes(8), (ME,), after, ME, round_, attempt, committed, b"x", "", (ME,) if committed else ())


def state(version: int) -> StateRef:
    return StateRef(version, b"x" if version else b"", ())


def after(*values: Value) -> Contributors:
    seen = Contributors()
    for value in values:
        seen.decided(value)
    return seen


def test_a_committed_attempt_says_who_is_inside() -> None:
    seen = after(opened(1, 1, A), closed(1, 1))
    assert seen.holds(1, A) is True
    assert seen.holds(1, B) is False
    assert (seen.count(1), seen.count(99)) == (1, 1)


def test_only_the_attempt_that_committed_counts() -> None:
    seen = after(opened(1, 1, A, B), closed(1, 1, committed=False), opened(1, 2, A), closed(1, 2))
    assert seen.holds(1, B) is False


def test_what_was_decided_in_our_absence_is_unknown() -> None:
    assert after().holds(1, A) is None
    assert after(closed(1, 1)).holds(1, A) is None
    assert after(opened(1, 1, A), closed(7, 1)).holds(7, A) is None


def test_rounds_that_leave_the_state_alone_say_nothing_about_it() -> None:
    seen = after(opened(1, 1, A), closed(1, 1), opened(2, 1, B, kind="reduce"), closed(2, 1))
    assert seen.holds(2, B) is None


def test_old_versions_are_forgotten() -> None:
    values = [v for n in range(1, 100) for v in (opened(n, 1, A), closed(n, 1))]
    seen = after(*values)
    assert seen.holds(99, A) is True
    assert seen.holds(1, A) is None


def test_what_was_in_a_version_that_died_is_in_none() -> None:
    back = Restore(bytes(8), (ME,), state(4), ME, 4, 1, 1, "2 and 3 are lost")
    seen = after(opened(1, 1, A), closed(1, 1), opened(2, 1, A), closed(2, 1), opened(3, 1, A, B), closed(3, 1), back)
    assert [seen.holds(version, A) for version in (1, 2, 3, 4)] == [True, False, False, False]
    assert [seen.holds(version, B) for version in (1, 2, 3, 4)] == [False, False, False, False]
    assert seen.holds(5, A) is None


def test_a_peer_that_saw_only_the_restore_knows_what_is_lost() -> None:
    seen = after(Restore(bytes(8), (ME,), state(9), ME, 4, 1, 7, "8 is lost"))
    assert [seen.holds(version, A) for version in (7, 8, 9)] == [None, False, False]
