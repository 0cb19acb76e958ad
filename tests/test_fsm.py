"""The tables run, are drawn, and are documented; and they are the ones that were agreed."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ictp2p import fsm
from ictp2p.errors import LocalProtocolError
from ictp2p.fsm import LIFE, OUTSIDE, TABLES, Fsm, Table, Transition, diagram, page

ROOT = Path(__file__).parent.parent


def every_table():
    for table in TABLES:
        yield table
        for streams in table.streams.values():
            yield from streams


AGREED = {
    ("INIT", "first_quorum"): "TRAINING",
    ("TRAINING", "relevant_fault"): "ROLLBACK",
    ("TRAINING", "drain_self"): "DRAINING",
    ("TRAINING", "drain_noticed"): "DRAINING",
    ("TRAINING", "received_join"): "RECEIVED_JOIN",
    ("ROLLBACK", "pg_ready"): "TRAINING",
    ("ROLLBACK", "self_fault"): "IDLE",
    ("IDLE", "advertise_join"): "REJOIN",
    ("IDLE", "pre_empted"): "EXIT",
    ("REJOIN", "pg_ready"): "TRAINING",
    ("RECEIVED_JOIN", "pg_ready"): "TRAINING",
    ("DRAINING", "drain_self"): "EXIT",
    ("DRAINING", "drain_noticed"): "TRAINING",
}


def test_the_life_of_a_peer_is_the_agreed_one():
    assert {(row.source, row.trigger): row.target for row in LIFE.rows} == AGREED
    assert LIFE.initial == "INIT"


@given(st.lists(st.sampled_from(sorted({trigger for _, trigger in AGREED})), max_size=30))
def test_every_walk_follows_the_table_and_a_refused_trigger_changes_nothing(walk):
    machine = Fsm(LIFE)
    state = "INIT"
    for trigger in walk:
        if (state, trigger) in AGREED:
            state = AGREED[state, trigger]
            assert machine.fire(trigger) == state
        else:
            with pytest.raises(LocalProtocolError, match=f"{state}.*{trigger}"):
                machine.fire(trigger)
        assert machine.state == state


def test_a_final_state_says_that_it_is_final():
    machine = Fsm(LIFE)
    for trigger in ("first_quorum", "drain_self", "drain_self"):
        machine.fire(trigger)
    assert repr(machine) == "<Fsm LIFE EXIT>"
    with pytest.raises(LocalProtocolError, match="LIFE: EXIT does not answer 'pg_ready', only nothing: it is final"):
        machine.fire("pg_ready")


@pytest.mark.parametrize("table", list(every_table()), ids=lambda table: table.name)
def test_no_state_is_a_trap(table):
    """From everywhere the machine can get back outside, or end where a peer ends."""
    safe = {OUTSIDE, "EXIT", "D_EXIT"}
    for _ in table.rows:
        safe |= {row.source for row in table.rows if row.target in safe}
    assert safe >= set(table.states())


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_diagram_draws_every_row(table):
    lines = {line.strip() for line in diagram(table).splitlines()}
    tables = [table, *(stream for streams in table.streams.values() for stream in streams)]
    assert all(f"{r.source} --> {r.target} : {r.trigger}" in lines for t in tables for r in t.rows)


def test_streams_are_drawn_side_by_side():
    streams = [Table(name, "", OUTSIDE, (Transition(OUTSIDE, "go", name),)) for name in ("X", "Y")]
    outer = Table("T", "", "A", (Transition("A", "go", "B"),), {"A": tuple(streams)})
    assert diagram(outer).splitlines() == [
        "stateDiagram-v2",
        "    [*] --> A",
        "    A --> B : go",
        "    B --> [*]",
        "    state A {",
        "        [*] --> X : go",
        "        X --> [*]",
        "        --",
        "        [*] --> Y : go",
        "        Y --> [*]",
        "    }",
    ]


def test_a_trigger_answered_twice_is_refused():
    with pytest.raises(LocalProtocolError, match="A answers 'go' twice"):
        Table("T", "", "A", (Transition("A", "go", "B"), Transition("A", "go", "C")))


def test_a_state_that_cannot_be_reached_is_refused():
    with pytest.raises(LocalProtocolError, match="T: C, D cannot be reached from A"):
        Table("T", "", "A", (Transition("A", "go", "B"), Transition("C", "go", "D")))
    with pytest.raises(LocalProtocolError, match="T: X cannot be reached"):
        Table("T", "", "A", (Transition("A", "go", "B"),), {"X": (LIFE,)})


def test_the_documentation_is_what_the_tables_say():
    printed = subprocess.run(
        [sys.executable, "-m", "ictp2p.fsm"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    assert printed.stdout == page() + "\n"
    assert (ROOT / "docs" / "life.md").read_text(encoding="utf-8") == printed.stdout, (
        "docs/life.md is out of date: run `python -m ictp2p.fsm > docs/life.md`"
    )


def test_every_public_table_is_on_the_page():
    public = [value for name, value in vars(fsm).items() if isinstance(value, Table) and not name.startswith("_")]
    assert set(map(id, public)) == set(map(id, TABLES))
