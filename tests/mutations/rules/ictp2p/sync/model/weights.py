"""The rules of `ictp2p/sync/model/weights.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "frozen-names-that-nobody-reads",
        "What is frozen is named in a state that others can read, or refused.",
        "        manifest.check((), words)\n",
        "",
        ("sync/model/test_contents.py::test_a_frozen_parameter_whose_name_nobody_would_read_is_refused",),
    ),
    Mutation(
        "several-count-as-one",
        "A delayed step counts the contributions that its average is of: all at once are a whole step.",
        "return self._pace.phase(self.state.counters), self._contributions, self.rounds",
        "return self._pace.phase(self.state.counters), 1, self.rounds",
        ("sync/policies/test_asynchronous.py::test_clusters_of_equal_speed_are_diloco_to_the_bit",),
    ),
    Mutation(
        "scheduled-by-the-version",
        "An outer schedule goes by the agreed number of rounds, which a checkpoint holds, and not by versions.",
        "return self._pace.phase(self.state.counters), self._contributions, self.rounds",
        "return self._pace.phase(self.state.counters), self._contributions, self.state.version - 1",
        ("sync/optimizers/test_outer_schedule.py::test_it_goes_on_from_a_checkpoint_where_versions_begin_anew",),
    ),
    Mutation(
        "zero-for-whoever-flushes",
        "The next state is computed with subnormal numbers, in a program that takes them for zero as well.",
        "return exactly(partial(self._finish, parts))",
        "return self._finish(parts)",
        ("sync/model/test_weights.py::test_numbers_next_to_zero_count_whatever_a_program_takes_them_for",),
    ),
    Mutation(
        "flushed-in-arriving",
        "What is computed while an average arrives is computed with subnormal numbers as well.",
        "            exactly(partial(self._arrived, start, stop))",
        "            self._arrived(start, stop)",
        ("sync/model/test_weights.py::test_they_count_while_an_average_arrives_as_well",),
    ),
    Mutation(
        "step-of-an-attempt-before",
        "What an attempt that was broken off has stepped is of no use to the next one.",
        "self._parts, self._stepping = parts, None",
        "self._parts = parts",
        ("sync/model/test_stepping.py::test_the_bits_are_those_of_a_step_at_once",),
    ),
    Mutation(
        "written-to-what-is-another-state-by-now",
        "What is told of an attempt that ended writes to no state that was fetched since.",
        "        if self._stepping is not None and self._stepping.stands:\n",
        "        if self._stepping is not None:\n",
        ("sync/model/test_stepping.py::test_what_arrives_late_writes_to_no_state_that_has_become_another_one",),
    ),
    Mutation(
        "finished-what-is-another-state-by-now",
        "A step that was begun in a state that was fetched or forgotten since is taken anew.",
        "if begun is not None and begun.stands and parts == self._parts:",
        "if begun is not None and parts == self._parts:",
        ("sync/model/test_stepping.py::test_what_arrives_late_writes_to_no_state_that_has_become_another_one",),
    ),
    Mutation(
        "stepped-for-whoever-was-announced",
        "A step goes by the participants that it is finished with.",
        "if begun is not None and begun.stands and parts == self._parts:",
        "if begun is not None and begun.stands:",
        ("sync/model/test_stepping.py::test_a_step_goes_by_the_participants_that_it_is_finished_with",),
    ),
    Mutation(
        "onlookers-stepped",
        "A round of nobody but onlookers steps nothing, while it arrives either.",
        "if self.in_parts and self._outer.in_parts and not self._idle(self._parts):",
        "if self.in_parts and self._outer.in_parts:",
        ("sync/model/test_stepping.py::test_the_bits_are_those_of_a_step_at_once",),
    ),
    Mutation(
        "agenda-hashed-before-it-is-decided",
        "What is on the agenda is decided last: its chunks are not final before.",
        "        return self.state.begin([*names, *self._averaged(deltas), *self.agenda.names])",
        "        self.state.begin([*names, *self._averaged(deltas), *self.agenda.names])\n"
        "        return self.state.begin([*names, *self._averaged(deltas)])",
        ("sync/model/test_stepping.py::test_what_is_decided_last_is_in_the_digest",),
    ),
    Mutation(
        "seal-broken-for-an-attempt-that-may-fail",
        "What was voted on is kept until it is stepped anew: another may yet commit it.",
        "if self._stepping is None and not self.state.sealed:",
        "if self._stepping is None:",
        ("sync/model/test_stepping.py::test_what_was_voted_on_is_kept_until_it_is_stepped_anew",),
    ),
)
