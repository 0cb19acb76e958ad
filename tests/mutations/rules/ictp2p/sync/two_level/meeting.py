"""The rules of `ictp2p/sync/two_level/meeting.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "shards-of-several-weights",
        "A gradient counts what the batches of all ranks count, on every shard.",
        "return mine if self._agreed is None else self._agreed.weight",
        "return mine",
        ("sync/two_level/test_shards.py::test_what_the_ranks_of_a_model_count_is_the_same_for_each_of_its_shards",),
    ),
    Mutation(
        "shards-of-two-times",
        "No model is made of shards of which one is phases older than the other.",
        "        if most - least <= phase:\n",
        "        if True:\n",
        ("sync/two_level/test_shards.py::test_shards_begin_from_one_time_or_not_at_all",),
    ),
    Mutation(
        "rates-of-one-model-apart",
        "A schedule is at the same on all ranks of a model.",
        "self.on, self.scheduled = False, self.siblings.most(scheduled)",
        "self.on, self.scheduled = False, self.siblings.most(scheduled) * 0 + scheduled",
        ("sync/two_level/test_shards.py::test_a_schedule_is_at_the_same_on_all_ranks_whatever_their_rounds_were",),
    ),
)
