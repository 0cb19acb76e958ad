"""The rules of `ictp2p/runtime/driver.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "both-end-a-surplus",
        "Of two connections that one side dialed that side alone ends one: each may take the other one for the newer.",
        "theirs = not (surplus.dialed or kept.dialed)",
        "theirs = False",
        ("runtime/test_driver_connections.py::test_of_two_that_the_other_side_dialed_it_ends_one_and_the_other_stays",),
    ),
    Mutation(
        "time-stops-after-a-fault",
        "After an exception that nobody expects, what is due does not wait for the next input.",
        "        self._arm(earliest=self.clock() + _AFTER_A_FAULT)\n",
        "",
        ("runtime/test_driver.py::test_time_goes_on_after_an_exception_that_nobody_expects",),
    ),
    Mutation(
        "redialed-and-not-looked-at",
        "Each connection shows where a peer's host is, also those that are dialed again after the host has moved.",
        "            self._on_shown(connection.local.host)\n",
        "",
        (
            "runtime/test_driver_connections.py::test_a_connection_that_the_stack_asked_for_shows_where_this_host_is_as_every_other",
        ),
    ),
    Mutation(
        "said-though-not-kept",
        "Once a disk has refused what was to be kept, nothing leaves any more that relied on it.",
        "            self.stop()\n            self._on_failure(error)\n",
        "            self._on_failure(error)\n",
        ("runtime/test_driver.py::test_nothing_leaves_any_more_once_the_disk_has_refused_what_it_relied_on",),
    ),
    Mutation(
        "said-though-not-kept-for-whatever-reason",
        "The same holds when keeping it ended in an exception that nobody expects.",
        "                self._keep(key, value)\n",
        "                self._disk.save(key, value)\n",
        ("runtime/test_driver.py::test_nothing_leaves_any_more_once_keeping_it_ended_in_what_nobody_expects",),
    ),
    Mutation(
        "send-overtakes-persist",
        "Commands are carried out strictly in order: no `Send` leaves before the `Persist` that it relies on.",
        "        if self._executing:\n            return\n",
        "        if self._executing:\n"
        "            for _ in commands:\n"
        "                self._carry_out(self._pending.pop())\n"
        "            return\n",
        ("runtime/test_driver.py::test_what_a_listener_asks_for_never_overtakes_a_persist",),
    ),
    Mutation(
        "too-long-for-all",
        "A message of ours that is too long for its connection is lost, and nothing of what was asked for behind it.",
        'self._on_fault(LocalProtocolError(f"{described(frame)} was not sent: {error}"))',
        "raise",
        ("runtime/test_driver.py::test_a_message_of_ours_that_is_too_long_is_lost_and_said_and_nothing_else",),
    ),
    Mutation(
        "written-again",
        "What is on disk already is not written again: on a slow disk repetitions would outgrow the answers.",
        "        if self._kept.get(key) == value:\n            return\n",
        "",
        (
            "runtime/test_driver.py::test_what_is_on_disk_already_is_not_written_again_and_what_is_not_is",
            "sim/test_slow_disks.py::test_a_mesh_goes_on_though_most_disks_take_longer_than_the_pause_between_repetitions",
        ),
    ),
    Mutation(
        "kept-whatever-it-says",
        "What is on disk under a key is this value, or it is written.",
        "self._kept.get(key) == value",
        "key in self._kept",
        ("runtime/test_driver.py::test_what_is_on_disk_already_is_not_written_again_and_what_is_not_is",),
    ),
    Mutation(
        "kept-at-some-time",
        "What was written under a key and overwritten since is not on disk.",
        "        self._kept[key] = value\n",
        "        self._kept.setdefault(key, value)\n",
        ("runtime/test_driver.py::test_what_is_on_disk_already_is_not_written_again_and_what_is_not_is",),
    ),
    Mutation(
        "each-keeps-its-own-connection",
        "Of two connections both sides keep the same one: that of the lower id.",
        "return new.dialed == (self.core.card.peer < new.peer_id)",
        "return new.dialed",
        (
            "runtime/test_driver_connections.py::test_of_two_connections_both_sides_keep_the_one_that_the_lower_id_dialed",
        ),
    ),
    Mutation(
        "surplus-end-is-death",
        "The end of a connection that was replaced says nothing about the peer.",
        "if self._connections.get(peer) is not connection:",
        "if peer not in self._connections:",
        ("runtime/test_driver_connections.py::test_a_newer_connection_by_the_same_side_replaces_a_dead_one",),
    ),
    Mutation(
        "heir-of-another-peer",
        "What takes the place of a connection that has ended leads to the same peer.",
        "if c.peer_id == peer and c.is_open), None)",
        "if c.is_open), None)",
        ("runtime/test_driver_connections.py::test_the_heir_of_a_connection_is_the_newest_open_one_to_the_same_peer",),
    ),
    Mutation(
        "heir-that-has-ended",
        "What takes the place of a connection that has ended has not ended as well.",
        "if c.peer_id == peer and c.is_open), None)",
        "if c.peer_id == peer), None)",
        ("runtime/test_driver_connections.py::test_the_heir_of_a_connection_is_the_newest_open_one_to_the_same_peer",),
    ),
    Mutation(
        "heir-ended-as-a-surplus",
        "A surplus connection that is needed after all is not ended any more.",
        "        if connection in self._retired:\n            connection.close()\n",
        "        connection.close()\n",
        ("runtime/test_driver_connections.py::test_the_heir_of_a_connection_is_the_newest_open_one_to_the_same_peer",),
    ),
    Mutation(
        "former-life-kept",
        "A peer that was started again has promised nothing yet: what led through its former life ends first.",
        "            follows += self.core.lost(peer, self.clock())\n",
        "            pass\n",
        (
            "sim/test_world.py::test_a_machine_that_reboots_is_met_as_one_that_knows_nothing",
            "runtime/test_driver_connections.py::test_a_restarted_peer_is_not_taken_for_its_former_life",
        ),
    ),
    Mutation(
        "former-life-speaks",
        "What a peer's former life still brings is not taken for the word of its present one.",
        "            retired.abort()\n",
        "            pass\n",
        ("runtime/test_driver_connections.py::test_a_restarted_peer_is_not_taken_for_its_former_life",),
    ),
    Mutation(
        "restart-unseen-after-a-loss",
        "That a peer is another process now is told though its former connection had ended before.",
        "if self._processes.pop(peer, process) != process else",
        "if self._connections.get(peer) and self._connections[peer].process != process else",
        ("runtime/test_driver_connections.py::test_that_a_peer_restarted_is_told_though_its_connection_had_ended",),
    ),
    Mutation(
        "restart-not-told",
        "That a peer is another process now is told.",
        "[Restarted(peer)] if self._processes.pop(peer, process) != process else []",
        "[]",
        ("runtime/test_driver_connections.py::test_a_restarted_peer_is_not_taken_for_its_former_life",),
    ),
)
