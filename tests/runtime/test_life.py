"""The life of a peer follows its tables, and tells each step once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ictp2p.runtime.life
from ictp2p import fsm
from ictp2p.fsm import DRAINING, LIFE, OUTSIDE, RECEIVED_JOIN, RECONFIG_PG, REJOIN, ROLLBACK, TABLES, TRAINING
from ictp2p.runtime.life import EVERY_STEP, Life
from tests.interrupts import interrupted, places


class Told:
    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, kind: str, **fields: Any) -> None:
        self.all.append((kind, fields))

    def of(self, kind: str) -> list[tuple[str, str]]:
        return [(f["source"], f["target"]) for k, f in self.all if k == kind]


def lived(*happenings: tuple[str, ...]) -> tuple[str, list[tuple[str, str]]]:
    told = Told()
    life = Life(told)
    for triggers in happenings:
        life.happened(*triggers)
    return life.state, told.of("life")


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


def test_what_the_training_thread_did_against_its_table_is_told_and_changes_nothing() -> None:
    told = Told()
    life = Life(told)
    life.did(TRAINING, "averaged")
    assert life.inside == {}
    ((kind, fields),) = told.all
    assert kind == "illegal_transition"
    assert (fields["table"], fields["trigger"]) == ("TRAINING", "averaged")
    assert "does not answer 'averaged'" in fields["text"]


def test_an_inner_step_is_seen_and_not_told() -> None:
    told = Told()
    life = Life(told)
    seen = []
    for trigger in ("group_ready", "gradients", "pg_same", "averaged", "committed"):
        life.did(TRAINING, trigger)
        seen.append(life.inside["TRAINING"])
    assert seen == ["COMPUTE", "QUORUM_COMPUTE", "SYNC_INTRA_CLUSTER_DDP", "COMMIT", "COMPUTE"]
    assert told.of("phase") == [(OUTSIDE, "COMPUTE")]
    assert {row.trigger for row in TRAINING.rows} >= EVERY_STEP


def test_the_tables_run_side_by_side() -> None:
    life = Life(Told())
    life.happened("first_quorum")
    life.did(TRAINING, "group_ready")
    life.happened("received_join")
    life.heard(RECEIVED_JOIN, "received_join")
    assert life.state == "RECEIVED_JOIN"
    assert life.inside == {"TRAINING": "COMPUTE", "RECEIVED_JOIN": "RUN_UNTIL_COMMIT"}
    assert repr(life) == "<Life RECEIVED_JOIN TRAINING/COMPUTE RECEIVED_JOIN/RUN_UNTIL_COMMIT>"


def test_who_is_asked_to_leave_while_it_notices_that_another_leaves_does_both() -> None:
    life = Life(Told())
    life.happened("first_quorum")
    life.noticed()
    life.draining()
    assert (life.state, life.inside) == ("DRAINING", {"DRAINING": "D_START"}), "not yet EXIT"
    assert not life.heard(DRAINING, "survived")
    life.closing()
    assert life.inside == {"DRAINING": "D_NOTICE_OTHERS"}
    life.closed()
    assert (life.state, life.inside) == ("EXIT", {"DRAINING": "D_EXIT"})


@given(st.lists(st.sampled_from(["noticed", "grouped", "received_join", "relevant_fault"]), max_size=12))
def test_once_the_group_works_nobody_drains_but_who_was_asked_to(news) -> None:
    """Regression: two that left before the group was open again left DRAINING on; and one, while draining, ended it."""
    stays, leaves = Life(Told()), Life(Told())
    for life in (stays, leaves):
        life.happened("first_quorum")
    leaves.draining()
    for what in (*news, "grouped"):
        for life in (stays, leaves):
            if what == "noticed":
                life.noticed()
            elif what == "grouped":
                life.grouped()
            else:
                life.happened(what)
        assert leaves.state == "DRAINING"
        assert what != "grouped" or stays.state != "DRAINING"


def trained() -> Life:
    life = Life(Told())
    life.happened("first_quorum")
    life.noticed()
    return life


@pytest.mark.timeout(20)  # else it waits for itself
@pytest.mark.parametrize(("leave", "end"), [("draining", "DRAINING"), ("closing", "DRAINING"), ("closed", "EXIT")])
def test_a_signals_handler_may_drain_or_close_wherever_it_comes_into_a_step(leave: str, end: str) -> None:
    """Regression: it waited for ever for the lock that its own thread held.

    And who was asked to leave just when another one had left was shown as training on.
    """
    other = trained()
    for at in places(other.grouped, ictp2p.runtime.life, fsm):
        mine, where = trained(), list[str]()

        def handler(mine: Life = mine, where: list[str] = where) -> None:
            if leave == "closed":
                mine.closing()
            getattr(mine, leave)()
            where.append(mine.state)

        with interrupted(at, handler, ictp2p.runtime.life, fsm):
            mine.grouped()
        assert (where, mine.state) == ([end], end), at


def test_closing_a_peer_that_was_left_out_ends_its_life_too() -> None:
    life = Life(Told())
    for trigger in ("first_quorum", "relevant_fault", "self_fault"):
        life.happened(trigger)
    life.closing()
    life.closed()
    assert life.state == "EXIT"


@given(st.lists(st.sampled_from([(t, r.trigger) for t in TABLES for r in t.rows]), max_size=40))
def test_whatever_is_fed_each_machine_only_ever_follows_its_rows(fed) -> None:
    told = Told()
    life = Life(told)
    rows = {t.name: {(r.source, r.trigger): r.target for r in t.rows} for t in TABLES}
    where = {t.name: t.initial for t in TABLES}
    for table, trigger in fed:
        if table in (TRAINING, RECONFIG_PG, ROLLBACK):
            life.did(table, trigger)
        elif table is LIFE:
            life.happened(trigger)
        else:
            assert table in (DRAINING, REJOIN, RECEIVED_JOIN)
            assert life.heard(table, trigger) == ((where[table.name], trigger) in rows[table.name])
        where[table.name] = rows[table.name].get((where[table.name], trigger), where[table.name])
        assert {LIFE.name: life.state, **{n: s for n, s in where.items() if s != OUTSIDE and n != "LIFE"}} == {
            LIFE.name: where["LIFE"],
            **life.inside,
        }


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_is_run(table) -> None:
    assert Life(Told())._machines[table.name].table is table
