"""The rules of `ictp2p/sync/two_level/policy.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "ends-between-rounds-untold",
        "Who ends between two rounds is told of the steps that are in none.",
        "        if self._inside and kind is None:\n",
        "        if False:\n",
        ("sync/two_level/test_unfinished.py::test_a_loop_that_ends_between_two_rounds_says_what_is_in_none",),
    ),
    Mutation(
        "who-drained-is-told-of-its-end",
        "Who was asked to leave has nothing to be told of when it ends.",
        " and not self._peer.leaves:",
        ":",
        ("sync/two_level/test_unfinished.py::test_who_was_asked_to_leave_or_broke_off_or_looks_on_has_nothing_to_say",),
    ),
    Mutation(
        "entered-and-told-otherwise",
        "Of a policy that was entered nobody is told that it was not.",
        "        self._unentered.remove()\n",
        "",
        ("sync/two_level/test_unfinished.py::test_a_policy_that_is_entered_was_not_forgotten",),
    ),
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
        "refused-without-a-word",
        "A rank that is refused with its file tells its siblings, who wait for it.",
        "            self._stop()  # they are about to compare, and would wait for this one\n",
        "",
        ("sync/two_level/test_shards.py::test_who_is_refused_with_its_file_has_its_siblings_told",),
    ),
    Mutation(
        "schedule-without-the-round-aloft",
        "What a schedule of the whole mesh follows does not go backwards while a round is under way.",
        "aloft=self.progress.aloft > 0)",
        "aloft=False)",
        ("sync/test_pace.py::test_a_schedule_does_not_go_backwards_while_a_round_is_under_way",),
    ),
    Mutation(
        "schedule-falls-with-a-round-that-came-to-nothing",
        "What a schedule of the whole mesh follows stays where a round comes to nothing.",
        "        self.progress.scheduled = self.schedule_step\n",
        "",
        (
            "sync/test_pace.py::"
            "test_a_schedule_stays_where_a_round_comes_to_nothing_and_a_newcomer_is_where_the_others_are",
        ),
    ),
    Mutation(
        "scales-mixed",
        "What a cluster averages are gradients of the loss, whatever each worker scaled it by.",
        "            scaling.unscale(self._inner)\n",
        "",
        ("sync/cluster/test_scaling.py::test_scales_that_differ_do_not_mix",),
    ),
    Mutation(
        "packed-when-it-is-late",
        "What cannot be sent to a newcomer is found when training begins, and not when the first one comes.",
        "        self._replica.take()  #",
        "        #",
        ("sync/two_level/test_policy_deaths.py::test_what_no_newcomer_could_be_given_is_found_before_training",),
    ),
    Mutation(
        "left-in-the-mesh",
        "A policy that cannot begin leaves the mesh again.",
        "            self._leave()\n            raise\n",
        "            raise\n",
        ("sync/two_level/test_policy.py::test_who_cannot_begin_leaves_nothing_behind",),
    ),
    Mutation(
        "groups-as-they-were",
        "Who joins a cluster is held against what the others train with by now, and not when they began.",
        "        items = [*describe(self.state.entries, self.state.settings), *self._replica.describe()]\n",
        "        items = self.__dict__.setdefault(\n"
        '            "_items", [*describe(self.state.entries, self.state.settings), *self._replica.describe()]\n'
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
        "left-twice",
        "A policy that is left again does not take the place away of the one that trains by then.",
        "        if self._inside:\n",
        "        if True:\n",
        ("sync/two_level/test_policy.py::test_a_policy_that_is_left_again_takes_no_place_of_the_next_one",),
    ),
    Mutation(
        "trained-behind-its-back",
        "People are told where another optimizer steps what a policy keeps in step.",
        "            self._hooks.add(Strangers(self._inner, lambda: self.progress.step, self._warn, self._outer))\n",
        "",
        ("sync/model/test_strangers.py::test_an_optimizer_made_anew_is_told_of_once",),
    ),
    Mutation(
        "gradient-of-before-the-round",
        "A gradient that was computed before a round landed does not count after it.",
        "        self._gradients.spent = True\n        with following",
        "        with following",
        (
            "sync/two_level/test_policy_rounds.py::test_a_gradient_of_before_an_interrupted_round_does_not_count_after_it",
        ),
    ),
)
