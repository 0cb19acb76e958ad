"""The rules of `ictp2p/sync/two_level/inner_loop.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "stops-in-a-collective",
        "A rank that cannot go on says so where its siblings listen, and not between the model's collectives.",
        "            if self._meeting.on:  # else",
        "            if True:  # else",
        ("sync/two_level/test_shards.py::test_who_stops_says_so_where_its_siblings_listen_and_nowhere_else",),
    ),
    Mutation(
        "waits-for-who-stopped",
        "A rank that cannot go on tells its siblings.",
        "            self._outer_round.stop()\n",
        "            pass\n",
        ("sync/two_level/test_shards.py::test_a_shard_that_stops_is_no_shard_that_is_waited_for",),
    ),
    Mutation(
        "schedule-without-the-round-aloft",
        "What a schedule of the whole mesh follows does not go backwards while a round is under way.",
        "aloft=at.aloft > 0)",
        "aloft=False)",
        ("sync/test_pace.py::test_a_schedule_does_not_go_backwards_while_a_round_is_under_way",),
    ),
    Mutation(
        "schedule-falls-with-a-round-that-came-to-nothing",
        "What a schedule of the whole mesh follows stays where a round comes to nothing.",
        "        self._progress.scheduled = self.schedule_step\n",
        "",
        (
            "sync/test_pace.py::"
            "test_a_schedule_stays_where_a_round_comes_to_nothing_and_a_newcomer_is_where_the_others_are",
        ),
    ),
    Mutation(
        "scales-mixed",
        "What a cluster averages are gradients of the loss, whatever each worker scaled it by.",
        "            scaling.unscale(self._trainees.inner)\n",
        "",
        ("sync/cluster/test_scaling.py::test_scales_that_differ_do_not_mix",),
    ),
    Mutation(
        "packed-when-it-is-late",
        "What cannot be sent to a newcomer is found when training begins, and not when the first one comes.",
        "        self.replica.take()  #",
        "        #",
        ("sync/two_level/test_policy_deaths.py::test_what_no_newcomer_could_be_given_is_found_before_training",),
    ),
    Mutation(
        "groups-as-they-were",
        "Who joins a cluster is held against what the others train with by now, and not when they began.",
        "        items = [*describe(state.entries, state.settings), *self.replica.describe()]\n",
        "        items = self.__dict__.setdefault(\n"
        '            "_items", [*describe(state.entries, state.settings), *self.replica.describe()]\n'
        "        )\n",
        (
            "sync/two_level/test_replaced.py"
            "::test_groups_of_parameters_may_be_split_in_training_and_a_newcomer_has_them_so",
        ),
    ),
    Mutation(
        "carried-a-turn-behind",
        "Who becomes like a worker in a round has the schedule that all programs have moved by the next step.",
        "            if self._turn.again:\n",
        "            if False:\n",
        ("sync/two_level/test_schedules.py::test_a_newcomer_that_is_let_in_within_a_round_is_no_step_behind",),
    ),
    Mutation(
        "gradient-of-before-the-round",
        "A gradient that was computed before a round landed does not count after it.",
        "        self.gradients.spent = True\n        with following",
        "        with following",
        (
            "sync/two_level/test_policy_rounds.py::test_a_gradient_of_before_an_interrupted_round_does_not_count_after_it",
        ),
    ),
)
