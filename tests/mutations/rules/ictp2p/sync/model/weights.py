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
        "self._outer.step(tentative, stepped, self._pace.phase(self.state.counters), self._contributions, self.rounds)",
        "self._outer.step(tentative, stepped, self._pace.phase(self.state.counters), rounds=self.rounds)",
        ("sync/policies/test_asynchronous.py::test_clusters_of_equal_speed_are_diloco_to_the_bit",),
    ),
    Mutation(
        "divergence-shared",
        "Parameters that hold NaN or infinity are brought to nobody.",
        "if not math.isfinite(sum(view.sum().item() for view in views.values())):",
        "if not views:",
        ("sync/state/test_hostile_models.py::test_a_cluster_that_diverged_brings_nothing_to_the_others",),
    ),
    Mutation(
        "negative-variance",
        "A variance stays one, whatever a lossy codec made of its mean.",
        "            agreed.clamp_(min=0.0)\n",
        "            pass\n",
        ("sync/state/test_hostile_models.py::test_a_variance_stays_one_whatever_a_codec_made_of_its_mean",),
    ),
    Mutation(
        "infinity-minus-itself",
        "A buffer that holds infinity and is as it was brings no difference.",
        "same = base == view if masks else None",
        "same = None",
        ("sync/state/test_hostile_models.py::test_a_cluster_that_missed_a_round_keeps_what_is_infinite",),
    ),
    Mutation(
        "scheduled-by-the-version",
        "An outer schedule goes by the agreed number of rounds, which a checkpoint holds, and not by versions.",
        "self._contributions, self.rounds)",
        "self._contributions, self.state.version - 1)",
        ("sync/optimizers/test_outer_schedule.py::test_it_goes_on_from_a_checkpoint_where_versions_begin_anew",),
    ),
    Mutation(
        "zero-for-whoever-flushes",
        "The next state is computed with subnormal numbers, in a program that takes them for zero as well.",
        "return exactly(partial(self._finish, parts))",
        "return self._finish(parts)",
        ("sync/model/test_weights.py::test_numbers_next_to_zero_count_whatever_a_program_takes_them_for",),
    ),
)
