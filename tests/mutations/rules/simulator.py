"""The simulator: what is dead stays dead, what waits is woken once."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "blind-while-waiting",
        "What no notice announces is looked at while something is waited for.",
        "sim/world.py",
        "            due = ahead >= swept + SWEEP",
        "            due = self.now >= swept + SWEEP and ahead < swept",
        ("sim/test_world.py::test_what_no_notice_announces_is_looked_at_while_something_is_waited_for",),
    ),
    Mutation(
        "dropped-and-not-closed",
        "A world that was dropped is closed: what runs in it awaits something on its way out.",
        "sim/world.py",
        "        with apart():\n            self.close()",
        "        pass",
        ("sim/test_world.py::test_a_world_that_is_dropped_unclosed_ends_without_a_word",),
    ),
    Mutation(
        "a-group-binds-everybody",
        "The audit of a round in groups takes each group's frames for its members' alone.",
        "sim/invariants/rounds.py",
        "frozenset(PeerId(name) for name in one.participants) & leaders",
        "frozenset(leaders)",
        ("sim/invariants/test_rounds.py::test_e4_frames_of_another_pair_of_the_same_round",),
    ),
    Mutation(
        "stale-timer-ends-a-later-wait",
        "What would have ended an earlier wait of a simulated thread is void once that wait has ended.",
        "sim/threads.py",
        "if self._asleep and self._sleep == sleep and self._alive:",
        "if self._asleep and self._alive:",
        ("sim/test_training.py::test_what_threads_wait_with_waits_in_virtual_time",),
    ),
    Mutation(
        "the-dead-clean-up",
        "A simulated process that was killed does nothing any more: its mates learn of the death as they really would.",
        "sim/group.py",
        "if self._crew.dead:",
        "if False:",
        ("sim/test_training.py::test_a_cluster_survives_the_death_of_its_leader",),
    ),
    Mutation(
        "bursts-are-held-back",
        "What hosts keep holds a flow back once it has sent as much, and not before.",
        "sim/fluid.py",
        "max(0.0, now - max(before, flow.began + flow.far))",
        "now - before",
        ("sim/test_fluid.py::test_the_account_says_whether_hosts_or_the_line_bound_a_flow",),
    ),
    Mutation(
        "caps-before-shares",
        "A flow gets all that it may have only if that is no more than an even part of everything that it passes.",
        "sim/fluid.py",
        "done = active & (limit <= fair)",
        "done = active & (limit < math.inf)",
        ("sim/test_fluid.py::test_shares_fit_and_every_flow_is_held_back_by_something_full",),
    ),
    Mutation(
        "a-fault-may-be-anything",
        "A fault whose numbers cannot be is refused when it is made, not in the middle of a run.",
        "sim/faults.py",
        'limits.objection(value) if limits is not None else ""',
        '""',
        ("sim/test_faults.py::test_a_value_that_cannot_be_is_named_whichever_way_it_comes",),
    ),
    Mutation(
        "a-timer-may-be-early",
        "A timer of a simulated process runs when its clock shows that time, never before.",
        "sim/loop.py",
        "if due > self.now or when > process.local(self.now):",
        "if due > self.now:",
        ("sim/test_loop.py::test_a_timer_is_never_early_by_a_rounding_error",),
    ),
    Mutation(
        "reads-end-where-writes-do",
        "A simulated read ends anywhere in what has arrived, as a kernel's does.",
        "sim/connection.py",
        "if chance >= CUT:",
        "if True:",
        ("sim/test_network.py::test_reads_end_anywhere_and_give_whatever_is_there",),
    ),
    Mutation(
        "a-read-is-a-write",
        "A simulated read gives whatever has arrived, of several writes too.",
        "sim/connection.py",
        "            if not isinstance(more, bytes) or len(item) + len(more) > BULK:\n",
        "            if True:\n",
        ("sim/test_network.py::test_reads_end_anywhere_and_give_whatever_is_there",),
    ),
    Mutation(
        "half-a-frame-is-forgotten",
        "What a read holds of a frame is kept until the rest has come; simulated reads end within frames.",
        "ictp2p/wire.py",
        "            self._buffer += memoryview(data)[start:]\n",
        "            pass\n",
        ("sim/test_network.py::test_reads_end_anywhere_and_give_whatever_is_there",),
    ),
    Mutation(
        "one-frame-a-read",
        "All frames that a read completes are handed on; simulated reads complete several.",
        "ictp2p/wire.py",
        "        return frames\n\n    def _header",
        "        return frames[:1]\n\n    def _header",
        ("sim/test_network.py::test_reads_end_anywhere_and_give_whatever_is_there",),
    ),
)
