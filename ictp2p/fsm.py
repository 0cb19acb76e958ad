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

    def can(self, trigger: str) -> bool:
        """Whether the present state answers `trigger`."""
        return (self.state, trigger) in self._next

    def fire(self, trigger: str) -> str:
        """Follow `trigger` and return the new state.

        Raises:
            LocalProtocolError: the present state does not answer it; nothing has changed.
        """
        if not self.can(trigger):
            known = ", ".join(self.table.triggers(self.state)) or "nothing: it is final"
            raise LocalProtocolError(f"{self.table.name}: {self.state} does not answer {trigger!r}, only {known}")
        self.state = self._next[self.state, trigger]
        return self.state

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

RECONFIG_PG = Table(
    "RECONFIG_PG",
    "How the process group inside a cluster is replaced. Every way in is a way in which the members changed.",
    OUTSIDE,
    _rows(
        "[*] pg_diff PG_SHUTDOWN: the quorum changed",
        "[*] rolled_back PG_SHUTDOWN: a rollback finished",
        "[*] commit_seen PG_SHUTDOWN: a joiner saw every commit",
        "[*] drain_survived PG_SHUTDOWN: another peer left and this one stays",
        "[*] collective_timeout PG_SHUTDOWN: this peer survived a collective that timed out",
        "PG_SHUTDOWN group_down PG_RECONFIG: the group is down and the fault is another's",
        "PG_SHUTDOWN self_fault [*]: the group is down and the fault is this peer's own",
        "PG_RECONFIG pg_diff PG_SHUTDOWN: the members changed again while the group was being built",
        "PG_RECONFIG pg_ready [*]: every member of the new group is there",
    ),
)
"""Replacing the process group."""

ROLLBACK = Table(
    "ROLLBACK",
    "What a relevant fault sets off: tell the others, stop waiting for what cannot come, and leave the group.",
    OUTSIDE,
    _rows(
        "[*] relevant_fault BCAST_ROLLBACK",
        "BCAST_ROLLBACK told CANCEL_RELEVANT_FUTURES: every member that is left knows",
        "CANCEL_RELEVANT_FUTURES cancelled PG_SHUTDOWN: nothing waits on the dead any more",
        "PG_SHUTDOWN group_down [*]: RECONFIG_PG follows, or IDLE after an own fault",
    ),
)
"""Rolling back a step."""

_COMPUTE = Table(
    "compute",
    "One inner step's arithmetic.",
    OUTSIDE,
    _rows("[*] step FORWARD", "FORWARD loss BACKWARD", "BACKWARD gradients [*]"),
)
_LOCAL_QUORUM = Table(
    "local quorum",
    "Who takes part in this step, agreed while the arithmetic runs.",
    OUTSIDE,
    _rows("[*] step QUORUM_COMPUTE", "QUORUM_COMPUTE pg_same [*]: a changed quorum is pg_diff, and leaves TRAINING"),
)
_LOCAL_HEALING = Table(
    "local healing",
    "A member that lacks the state gets it beside the step, when the group is the same.",
    OUTSIDE,
    _rows(
        "[*] peer_needs_state SEND_CKPT: another member lacks the state",
        "[*] self_needs_state FETCH_CKPT: this one does",
        "SEND_CKPT sent [*]",
        "FETCH_CKPT fetched [*]",
    ),
)
_GLOBAL_QUORUM = Table(
    "global quorum",
    "Which clusters take part in the round.",
    OUTSIDE,
    _rows("[*] round QUORUM_COMPUTE_GLOBAL", "QUORUM_COMPUTE_GLOBAL round_opened [*]"),
)
_PSEUDOGRADS = Table(
    "pseudo-gradients",
    "Reduced between the leaders, and streamed to the followers while they arrive.",
    OUTSIDE,
    _rows(
        "[*] round CALC_PSEUDOGRADS",
        "CALC_PSEUDOGRADS calculated ALLREDUCE_PSEUDOGRADS",
        "ALLREDUCE_PSEUDOGRADS first_chunk BCAST_PSEUDOGRADS: the broadcast does not wait for the whole model",
        "BCAST_PSEUDOGRADS restarted ALLREDUCE_PSEUDOGRADS: the attempt was aborted and the next one begins",
        "BCAST_PSEUDOGRADS broadcast [*]",
    ),
)
_GLOBAL_HEALING = Table(
    "global healing",
    "A cluster that joins or fell behind gets the committed state from the others.",
    OUTSIDE,
    _rows(
        "[*] cluster_needs_state SEND_CKPT_G: another cluster lacks the committed state",
        "[*] self_needs_state FETCH_CKPT_G: this one does",
        "SEND_CKPT_G sent [*]",
        "FETCH_CKPT_G fetched [*]",
    ),
)
_GLOBAL_WAIT = Table(
    "pseudo-gradients, followed",
    "A follower takes what its leader streams.",
    OUTSIDE,
    _rows("[*] round WAIT_BCAST_PSEUDOGRADS", "WAIT_BCAST_PSEUDOGRADS broadcast [*]"),
)
_CHECKPOINT_ASSIST = Table(
    "checkpoint assistance",
    "A follower holds the same state as its leader and helps to serve it.",
    OUTSIDE,
    _rows("[*] round LISTEN_CKPT_ASSIST", "LISTEN_CKPT_ASSIST round_closed [*]"),
)

TRAINING = Table(
    "TRAINING",
    "One inner step, and the global synchronization after every `sync_every` of them. The streams inside a state run "
    "side by side, and the state is left when all have ended.",
    OUTSIDE,
    _rows(
        "[*] step STEP",
        "STEP streams_done SYNC_INTRA_CLUSTER_DDP: gradients and quorum are there",
        "SYNC_INTRA_CLUSTER_DDP averaged SYNC_INTRA_REPLICA_GROUP",
        "SYNC_INTRA_REPLICA_GROUP synced COMMIT",
        "COMMIT committed [*]: no global synchronization is due",
        "COMMIT global_due_leader GLOBAL_LEADER: it is due, and this peer leads its cluster",
        "COMMIT global_due_follower GLOBAL_FOLLOWER: it is due, and another peer leads",
        "GLOBAL_LEADER streams_done SYNC_INTRA_REPLICA_GROUP_G",
        "SYNC_INTRA_REPLICA_GROUP_G synced GLOBAL_COMMIT_LEADER",
        "GLOBAL_COMMIT_LEADER committed [*]: the mesh decided COMMIT",
        "GLOBAL_COMMIT_LEADER aborted GLOBAL_LEADER: the mesh decided ABORT; the same pseudo-gradients go again",
        "GLOBAL_FOLLOWER streams_done GLOBAL_COMMIT_FOLLOWER",
        "GLOBAL_FOLLOWER elected GLOBAL_LEADER: the leader died in the round and this peer takes over",
        "GLOBAL_COMMIT_FOLLOWER committed [*]",
        "GLOBAL_COMMIT_FOLLOWER aborted GLOBAL_FOLLOWER",
    ),
    {
        "STEP": (_COMPUTE, _LOCAL_QUORUM, _LOCAL_HEALING),
        "GLOBAL_LEADER": (_GLOBAL_QUORUM, _PSEUDOGRADS, _GLOBAL_HEALING),
        "GLOBAL_FOLLOWER": (_GLOBAL_WAIT, _CHECKPOINT_ASSIST),
    },
)
"""One training step."""

DRAINING = Table(
    "DRAINING",
    "Leaving without losing a step: the one who leaves says so, and all go on to the next commit.",
    OUTSIDE,
    _rows(
        "[*] drain D_START",
        "D_START drain_self D_NOTICE_OTHERS: this peer leaves",
        "D_START drain_noticed D_RUN_UNTIL_COMMIT: another peer leaves",
        "D_NOTICE_OTHERS told D_RUN_UNTIL_COMMIT",
        "D_RUN_UNTIL_COMMIT committed D_COMMIT",
        "D_COMMIT drain_self D_EXIT: this peer is the one that leaves",
        "D_COMMIT drain_noticed [*]: the survivors reconfigure their group",
    ),
)
"""Leaving gracefully."""

REJOIN = Table(
    "REJOIN",
    "Coming back after a fault of one's own.",
    OUTSIDE,
    _rows(
        "[*] advertise_join ADVERTISE_JOIN",
        "ADVERTISE_JOIN advertised WAIT_CURRENT_STEP: the others finish the step that they are in",
        "WAIT_CURRENT_STEP commits_seen PG_SHUTDOWN: all of them have committed it",
        "PG_SHUTDOWN group_down [*]: RECONFIG_PG follows",
    ),
)
"""Coming back."""

RECEIVED_JOIN = Table(
    "RECEIVED_JOIN",
    "Letting a newcomer in at a step's boundary.",
    OUTSIDE,
    _rows(
        "[*] received_join RUN_UNTIL_COMMIT",
        "RUN_UNTIL_COMMIT committed ADVERTISE_COMMIT",
        "ADVERTISE_COMMIT advertised PG_SHUTDOWN: the newcomer knows that the step is over",
        "PG_SHUTDOWN group_down [*]: RECONFIG_PG follows",
    ),
)
"""Letting a newcomer in."""

TABLES = (LIFE, TRAINING, RECONFIG_PG, ROLLBACK, DRAINING, REJOIN, RECEIVED_JOIN)
"""Every table, in the order of the page."""

_HEAD = """# The life of a peer

This page is generated from the tables in `ictp2p/fsm.py`: `python -m ictp2p.fsm > docs/life.md`. The first table is
the top level; every peer runs it (`ictp2p/life.py`), and `Peer.state` and its `life` events are what it says. The other
tables are what happens inside its states. `[*]` is the outside of a table: where it is entered, and where it ends."""


if __name__ == "__main__":
    sys.stdout.write(page() + "\n")
