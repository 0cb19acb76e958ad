"""The life of a peer as tables: what is drawn and documented is what runs (`life.py` runs the top level).

A finite state machine that is written as code (`if state == ... and event == ...`) and drawn by hand has two
truths, and the picture is the one that rots. h11 showed the cure: the automaton is a table, and the diagrams of
its documentation are generated from it. Here a `Table` is a tuple of `Transition`s; `Fsm` runs one, `diagram`
draws one, and `python -m ictp2p.fsm` prints the page `docs/life.md`, which a test compares with the file.

Theory of operation:

1. A table is deterministic: a state answers a trigger in one way. The constructor refuses anything else, and
   refuses states that cannot be reached, so a mistyped name fails at import and not in the tenth hour of a run.
2. A trigger that the present state does not know is a bug of ours, hence `LocalProtocolError`; the machine stays
   where it is, so the caller may report the error and go on.
3. A state may hold streams that run side by side (orthogonal regions, Harel 1987). Each is a table of its own,
   run by an `Fsm` of its own, and leaving the outer state is what joins them. `OUTSIDE` stands for "not in
   here": a sub-table starts there, is entered by any of the triggers that leave it, and ends by coming back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ictp2p.errors import LocalProtocolError

OUTSIDE = "[*]"
"""Where a sub-table begins and ends; also Mermaid's name for it."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One row: in `source`, `trigger` leads to `target`. `note` says when, for the reader of the page."""

    source: str
    trigger: str
    target: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A state machine as data.

    Raises:
        LocalProtocolError: two rows answer the same trigger, a state cannot be reached from `initial`, or
            `streams` names a state that no row names.
    """

    name: str
    about: str
    initial: str
    rows: tuple[Transition, ...]
    streams: Mapping[str, tuple[Table, ...]] = field(default_factory=dict)
    """Tables that run side by side while a state lasts, by the name of that state."""

    def __post_init__(self) -> None:
        seen: set[tuple[str, str]] = set()
        for row in self.rows:
            if (row.source, row.trigger) in seen:
                raise LocalProtocolError(f"table {self.name}: {row.source} answers {row.trigger!r} twice")
            seen.add((row.source, row.trigger))
        if lost := [s for s in (*self.states(), *self.streams) if s not in self._reachable()]:
            raise LocalProtocolError(f"table {self.name}: {', '.join(lost)} cannot be reached from {self.initial}")

    def states(self) -> tuple[str, ...]:
        """Every state, in the order in which the rows first name it."""
        return tuple(dict.fromkeys((self.initial, *(s for row in self.rows for s in (row.source, row.target)))))

    def triggers(self, state: str) -> tuple[str, ...]:
        """What `state` answers to."""
        return tuple(row.trigger for row in self.rows if row.source == state)

    def _reachable(self) -> set[str]:
        reached = {self.initial}
        while grown := {row.target for row in self.rows if row.source in reached} - reached:
            reached |= grown
        return reached


class Fsm:
    """One machine in one state of its table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.state = table.initial
        self._next = {(row.source, row.trigger): row.target for row in table.rows}

    def fire(self, trigger: str) -> str:
        """Follow `trigger` and return the new state.

        Raises:
            LocalProtocolError: the present state does not answer it; nothing has changed.
        """
        step = self.follow(trigger)
        if step is None:
            known = ", ".join(self.table.triggers(self.state)) or "nothing: it is final"
            raise LocalProtocolError(f"{self.table.name}: {self.state} does not answer {trigger!r}, only {known}")
        return step[1]

    def follow(self, trigger: str, unless: str = "") -> tuple[str, str] | None:
        """Follow `trigger` if the present state answers it and is not `unless`, and give where from and where to.

        A signal's handler may come in between and move the machine: it is then asked again, from where that left it.
        """
        while (target := self._next.get((source := self.state, trigger))) is not None and source != unless:
            if self.state is source:  # and so it is in the next line: no handler comes where nothing is called
                self.state = target
                return source, target
        return None

    def __repr__(self) -> str:
        return f"<Fsm {self.table.name} {self.state}>"


def diagram(table: Table) -> str:
    """Draw a table, and the streams inside its states, as a Mermaid state diagram."""
    return "\n".join(["stateDiagram-v2", *_drawn(table, "    ")])


def page() -> str:
    """The documentation page `docs/life.md`."""
    return "\n".join([_HEAD, *(line for table in TABLES for line in _section(table))])


def _drawn(table: Table, indent: str) -> Iterator[str]:
    if table.initial != OUTSIDE:
        yield f"{indent}{OUTSIDE} --> {table.initial}"
    for row in table.rows:
        yield f"{indent}{row.source} --> {row.target} : {row.trigger}"
    for state in table.states():
        if state != OUTSIDE and not table.triggers(state):
            yield f"{indent}{state} --> {OUTSIDE}"
    for state, streams in table.streams.items():
        yield f"{indent}state {state} {{"
        for position, stream in enumerate(streams):
            if position:
                yield f"{indent}    --"
            yield from _drawn(stream, indent + "    ")
        yield f"{indent}}}"


def _section(table: Table) -> Iterator[str]:
    yield from ("", f"## {table.name}", "", table.about, "", "```mermaid", diagram(table), "```", "")
    yield from ("| from | trigger | to | when |", "|---|---|---|---|")
    rows = [*table.rows, *(row for inner in table.streams.values() for stream in inner for row in stream.rows)]
    for row in rows:
        yield f"| {_cell(row.source)} | {row.trigger} | {_cell(row.target)} | {row.note} |"


def _cell(state: str) -> str:
    return "(outside)" if state == OUTSIDE else state


def _rows(*rows: str) -> tuple[Transition, ...]:
    """Read rows written as `SOURCE trigger TARGET`, with the note, if any, after a colon."""
    parsed = []
    for row in rows:
        words, _, note = row.partition(":")
        source, trigger, target = words.split()
        parsed.append(Transition(source, trigger, target, note.strip()))
    return tuple(parsed)


def _ended(states: str) -> tuple[str, ...]:
    """Rows for what ends a table from anywhere: a fault, and the training loop's own end."""
    return (
        *_from_each(states, f"fault {OUTSIDE}: the group broke; ROLLBACK follows"),
        *_from_each(states, f"left {OUTSIDE}: the training loop ended"),
    )


def _from_each(states: str, row: str) -> tuple[str, ...]:
    """The same row for several sources; the first one has the note."""
    return tuple(
        f"{state} {row if number == 0 else row.partition(':')[0]}" for number, state in enumerate(states.split())
    )


LIFE = Table(
    "LIFE",
    "The top level: every peer, leader or follower, is in exactly one of these states.",
    "INIT",
    _rows(
        "INIT first_quorum TRAINING: the first quorum is there and the process group is configured",
        "TRAINING relevant_fault ROLLBACK: a fault that the step in progress depends on",
        "TRAINING drain_self DRAINING: this peer was asked to leave",
        "TRAINING drain_noticed DRAINING: another peer said that it leaves",
        "TRAINING received_join RECEIVED_JOIN: a newcomer wants in",
        "ROLLBACK pg_ready TRAINING: error 1, the fault was another peer's and the group works again",
        "ROLLBACK self_fault IDLE: error 2, the fault was this peer's own",
        "IDLE advertise_join REJOIN: this peer is well and asks to come back",
        "IDLE pre_empted EXIT: its machine was taken away",
        "REJOIN pg_ready TRAINING: the group that has it works",
        "RECEIVED_JOIN pg_ready TRAINING: the group that has the newcomer works",
        "DRAINING drain_self EXIT: this peer has left",
        "DRAINING drain_noticed TRAINING: the other peer has left",
    ),
)
"""The top-level life of a peer."""

TRAINING = Table(
    "TRAINING",
    "One inner step, and the global synchronization after every `sync_every` of them, as the training thread goes "
    "through them. A fault ends the table from anywhere; ROLLBACK follows.",
    OUTSIDE,
    _rows(
        "[*] group_ready COMPUTE: the group works, and the training loop computes",
        "COMPUTE gradients QUORUM_COMPUTE: the loop called the inner optimizer; the workers say who takes part and how",
        "QUORUM_COMPUTE pg_same SYNC_INTRA_CLUSTER_DDP: all of the group take part in this step",
        "QUORUM_COMPUTE pg_diff [*]: everybody leaves the group at this boundary; RECONFIG_PG follows",
        "SYNC_INTRA_CLUSTER_DDP averaged COMMIT: every worker has the mean, and its inner optimizer steps",
        "COMMIT committed COMPUTE: the step is done",
        "SYNC_INTRA_CLUSTER_DDP gradients QUORUM_COMPUTE: an error of the program ended the step; it is called again",
        "QUORUM_COMPUTE gradients QUORUM_COMPUTE: the same",
        "COMMIT gradients QUORUM_COMPUTE: the same, in the inner optimizer",
        "COMPUTE global_due CALC_PSEUDOGRADS: a global synchronization is due",
        "CALC_PSEUDOGRADS calculated COMPUTE: it is captured, and lands at once, or some inner steps later",
        "COMPUTE leads QUORUM_COMPUTE_GLOBAL: it lands; this peer leads its cluster and waits for the round to open",
        "COMPUTE follows WAIT_BCAST_PSEUDOGRADS: another peer leads, and will stream the average",
        "QUORUM_COMPUTE_GLOBAL round_opened ALLREDUCE_PSEUDOGRADS: an attempt begins",
        "QUORUM_COMPUTE_GLOBAL first_state GLOBAL_COMMIT_LEADER: nothing to reduce, only a state to agree on",
        "ALLREDUCE_PSEUDOGRADS first_chunk BCAST_PSEUDOGRADS: the broadcast does not wait for the whole model",
        "BCAST_PSEUDOGRADS complete GLOBAL_COMMIT_LEADER: the next state is computed, and voted for",
        "ALLREDUCE_PSEUDOGRADS round_opened ALLREDUCE_PSEUDOGRADS: the attempt was aborted and the next one begins",
        "BCAST_PSEUDOGRADS round_opened ALLREDUCE_PSEUDOGRADS: the same",
        "GLOBAL_COMMIT_LEADER round_opened ALLREDUCE_PSEUDOGRADS: the same, after the vote",
        "QUORUM_COMPUTE_GLOBAL missed FETCH_CKPT_G: the mesh is at a state that was not computed here",
        "ALLREDUCE_PSEUDOGRADS missed FETCH_CKPT_G: the same",
        "BCAST_PSEUDOGRADS missed FETCH_CKPT_G: the same",
        "GLOBAL_COMMIT_LEADER missed FETCH_CKPT_G: the same",
        "ALLREDUCE_PSEUDOGRADS complete GLOBAL_COMMIT_LEADER: the same, where there was nothing to stream",
        "WAIT_BCAST_PSEUDOGRADS restarted WAIT_BCAST_PSEUDOGRADS: the leader begins an attempt",
        "WAIT_BCAST_PSEUDOGRADS complete GLOBAL_COMMIT_FOLLOWER: all of it arrived, and the next state is computed",
        "GLOBAL_COMMIT_FOLLOWER restarted WAIT_BCAST_PSEUDOGRADS: the same, another one",
        "WAIT_BCAST_PSEUDOGRADS missed FETCH_CKPT_G: the leader has fetched another state and hands it on",
        "GLOBAL_COMMIT_FOLLOWER missed FETCH_CKPT_G: the same",
        "GLOBAL_COMMIT_LEADER decided COMPUTE: COMMIT, and all apply what they computed",
        "GLOBAL_COMMIT_FOLLOWER decided COMPUTE: the same",
        "FETCH_CKPT_G decided COMPUTE: the fetched state is the one that all go on from",
        "QUORUM_COMPUTE_GLOBAL decided COMPUTE: nothing changed: no round, or one that was given up",
        "ALLREDUCE_PSEUDOGRADS decided COMPUTE: the same",
        "BCAST_PSEUDOGRADS decided COMPUTE: the same",
        "WAIT_BCAST_PSEUDOGRADS decided COMPUTE: the same",
        *_from_each(
            "CALC_PSEUDOGRADS QUORUM_COMPUTE_GLOBAL ALLREDUCE_PSEUDOGRADS BCAST_PSEUDOGRADS GLOBAL_COMMIT_LEADER "
            "WAIT_BCAST_PSEUDOGRADS GLOBAL_COMMIT_FOLLOWER FETCH_CKPT_G",
            "given_up COMPUTE: an error goes to the program; the synchronization stays due",
        ),
        *_ended(
            "COMPUTE QUORUM_COMPUTE SYNC_INTRA_CLUSTER_DDP COMMIT CALC_PSEUDOGRADS QUORUM_COMPUTE_GLOBAL "
            "ALLREDUCE_PSEUDOGRADS BCAST_PSEUDOGRADS GLOBAL_COMMIT_LEADER WAIT_BCAST_PSEUDOGRADS "
            "GLOBAL_COMMIT_FOLLOWER FETCH_CKPT_G"
        ),
    ),
)
"""One training step."""

RECONFIG_PG = Table(
    "RECONFIG_PG",
    "How the training thread replaces the process group inside its cluster. Healing is part of it: a group counts only "
    "once its members hold the same.",
    OUTSIDE,
    _rows(
        "[*] first_quorum PG_SHUTDOWN: the training thread came up, and has no group to leave",
        "[*] pg_diff PG_SHUTDOWN: everybody left the group at a step boundary",
        "[*] rolled_back PG_SHUTDOWN: a fault was rolled back",
        "PG_SHUTDOWN quorum PG_RECONFIG: the old group is down, and there is a newer roster with this worker in it",
        "PG_RECONFIG group_up COMPARE_CKPT: every member of the new group is there",
        "COMPARE_CKPT same [*]: all hold the same",
        "COMPARE_CKPT peer_needs_state SEND_CKPT: this worker is furthest, and another lacks something",
        "COMPARE_CKPT self_needs_state FETCH_CKPT: another worker is further, or also furthest and the one who sends",
        "SEND_CKPT sent [*]",
        "FETCH_CKPT fetched [*]",
        *_ended("PG_SHUTDOWN PG_RECONFIG COMPARE_CKPT SEND_CKPT FETCH_CKPT"),
    ),
)
"""Replacing the process group."""

ROLLBACK = Table(
    "ROLLBACK",
    "What a relevant fault sets off: tell the others, end whatever waits on what cannot come, and leave the group. "
    "Gradients and parameters are written after success only, so there is nothing to undo.",
    OUTSIDE,
    _rows(
        "[*] relevant_fault BCAST_ROLLBACK",
        "BCAST_ROLLBACK told CANCEL_RELEVANT_FUTURES: the leader knows, and has all leave by a new roster",
        "CANCEL_RELEVANT_FUTURES cancelled PG_SHUTDOWN: nothing waits in the group any more",
        "PG_SHUTDOWN group_down [*]: RECONFIG_PG follows",
    ),
)
"""Rolling back a step."""

DRAINING = Table(
    "DRAINING",
    "Leaving without losing a step. Those who stay notice a drain as a roster without the leaver: they have nothing to "
    "run to, since a step that it breaks is repeated without it.",
    OUTSIDE,
    _rows(
        "[*] drain_self D_START: this peer was asked to leave",
        "[*] drain_noticed D_NOTICED: another worker of its cluster leaves",
        "D_START runs D_RUN_UNTIL_COMMIT: the training loop goes on, up to the next round",
        "D_RUN_UNTIL_COMMIT committed D_COMMIT: it is in, and the training loop ends",
        "D_COMMIT closed D_NOTICE_OTHERS: the vote is given up and goodbye said",
        "D_START closed D_NOTICE_OTHERS: the program did not wait for the round",
        "D_RUN_UNTIL_COMMIT closed D_NOTICE_OTHERS: the same",
        "D_NOTICE_OTHERS told D_EXIT: every connection is closed",
        "D_NOTICED drain_self D_START: and now this one too",
        "D_NOTICED survived [*]: the group works without it",
    ),
)
"""Leaving gracefully."""

REJOIN = Table(
    "REJOIN",
    "Coming back after the group went on without this worker.",
    OUTSIDE,
    _rows(
        "[*] advertise_join ADVERTISE_JOIN",
        "ADVERTISE_JOIN advertised WAIT_CURRENT_STEP: the leader knows; the others finish the step that they are in",
        "WAIT_CURRENT_STEP commits_seen PG_SHUTDOWN: all of them stand at a boundary, and the roster has this worker",
        "PG_SHUTDOWN group_down [*]: RECONFIG_PG follows",
        "WAIT_CURRENT_STEP advertise_join ADVERTISE_JOIN: another roster without it",
        "PG_SHUTDOWN advertise_join ADVERTISE_JOIN: the same",
    ),
)
"""Coming back."""

RECEIVED_JOIN = Table(
    "RECEIVED_JOIN",
    "At the leader: letting a newcomer in at a step's boundary. Followers learn of it there, as `pg_diff`.",
    OUTSIDE,
    _rows(
        "[*] received_join RUN_UNTIL_COMMIT",
        "RUN_UNTIL_COMMIT committed ADVERTISE_COMMIT: everybody stands at the boundary",
        "ADVERTISE_COMMIT advertised PG_SHUTDOWN: the roster that has the newcomer is out",
        "PG_SHUTDOWN group_down [*]: RECONFIG_PG follows",
        "RUN_UNTIL_COMMIT advertised PG_SHUTDOWN: a fault made the roster before the boundary came",
    ),
)
"""Letting a newcomer in."""

TABLES = (LIFE, TRAINING, RECONFIG_PG, ROLLBACK, DRAINING, REJOIN, RECEIVED_JOIN)
"""Every table, in the order of the page."""

_HEAD = """# The life of a peer

This page is generated from the tables in `ictp2p/fsm.py`: `python -m ictp2p.fsm > docs/life.md`. The first table is
the top level; every peer runs it (`ictp2p/runtime/life.py`), and `Peer.state` and its `life` events are what it says.
The other tables are what happens inside its states. `[*]` is the outside of a table: where it is entered, and where it
ends."""


if __name__ == "__main__":
    sys.stdout.write(page() + "\n")
