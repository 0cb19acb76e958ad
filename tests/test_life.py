"""The life of a peer follows its table, and tells each step once."""

from ictp2p.life import Life
from ictp2p.telemetry import Telemetry


def lived(*happenings: tuple[str, ...]) -> tuple[str, list[tuple[str, str]]]:
    telemetry = Telemetry(lambda: 0.0)
    life = Life(telemetry)
    for triggers in happenings:
        life.happened(*triggers)
    return life.state, [(e.fields["source"], e.fields["target"]) for e in telemetry.events("life")]


def test_a_fault_of_another_peer_is_rolled_back_and_survived() -> None:
    state, steps = lived(("first_quorum", "pg_ready"), ("relevant_fault",), ("first_quorum", "pg_ready"))
    assert state == "TRAINING"
    assert steps == [("INIT", "TRAINING"), ("TRAINING", "ROLLBACK"), ("ROLLBACK", "TRAINING")]


def test_what_the_present_state_does_not_answer_changes_nothing() -> None:
    assert lived(("relevant_fault",), ("pg_ready",)) == ("INIT", [])
    assert lived(("first_quorum",), ("relevant_fault",), ("relevant_fault",))[0] == "ROLLBACK"


def test_the_first_trigger_that_is_answered_counts() -> None:
    assert lived(("pg_ready", "first_quorum"))[1] == [("INIT", "TRAINING")]


def test_leaving_ends_it() -> None:
    assert lived(("first_quorum",), ("drain_self",), ("drain_self",), ("relevant_fault",))[0] == "EXIT"
