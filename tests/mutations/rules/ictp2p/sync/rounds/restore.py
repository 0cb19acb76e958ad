"""The rules of `ictp2p/sync/rounds/restore.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "waits-for-what-nobody-can-bring",
        "A version that all who held it have lost is not waited for.",
        "if due < math.inf and self._is_certain(tip, known):",
        "if False:",
        (
            "sync/rounds/test_restore.py::test_where_all_are_back_without_it_nobody_is_waited_for",
            "sim/test_handover.py::test_the_only_holder_that_is_killed_and_comes_back_halts_nobody_for_long",
        ),
    ),
    Mutation(
        "checkpoint-not-waited-for",
        "Whoever is started again may bring a checkpoint, until its training has begun.",
        "if (self._begun() if p == self._me else self._answers[p][2])}",
        "}",
        ("sync/rounds/test_restore.py::test_where_all_are_back_without_it_nobody_is_waited_for",),
    ),
    Mutation(
        "restarted-mesh-in-a-hurry",
        "Where all have been started again, checkpoints are waited for.",
        "return seen <= tip.state.version and begun",
        "return begun",
        ("sync/rounds/test_restore.py::test_where_all_are_back_without_it_nobody_is_waited_for",),
    ),
    Mutation(
        "restored-by-a-minority",
        "An older state takes the place of the agreed one only once a quorum of the voters said that they lack that.",
        "if not quorum(tip.voters, known):",
        "if not known:",
        (
            "sync/rounds/test_restore.py::test_nothing_is_proposed_before_a_quorum_of_the_voters_has_said_what_it_holds",
            "sync/rounds/test_restore.py::test_an_answer_counts_only_for_a_while",
        ),
    ),
    Mutation(
        "restored-from-no-version",
        "Bytes under the lost version's number are no older state: to go back to them is refused, again and again.",
        "if h[1] and h[0] < lost.version]",
        "if h[1]]",
        ("sync/rounds/test_restore.py::test_other_bytes_under_the_lost_version_are_no_state_to_go_back_to",),
    ),
    Mutation(
        "restored-without-patience",
        "While a holder may come back, the mesh waits for it.",
        "        if now < due:\n",
        "        if now < self._since:\n",
        ("sync/rounds/test_restore.py::test_a_holder_that_returns_begins_the_time_anew",),
    ),
    Mutation(
        "the-dead-hold-states",
        "What a dead worker held when it was asked is not to be had.",
        "if a[0] >= fresh and self._sight.lives(p)}",
        "if a[0] >= fresh}",
        ("sync/rounds/test_restore.py::test_the_word_of_the_dead_does_not_count",),
    ),
)
