"""Models whose shards are averaged each by a mesh of its own."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

_SHARDS = "sync/two_level/test_shards.py::"
_COMPANY = "sync/two_level/test_company.py::"
_WORKER = ("sync/model/test_sharding.py::test_shards_are_trained_saved_and_healed_as_whole_models_are",)

MUTATIONS: Final = (
    Mutation(
        "clusters-in-turns",
        "A shard that is much earlier than shard 0 attends the next round of its mesh.",
        "ictp2p/sync/two_level/company.py",
        "        if self._apart and attend is not None:\n",
        "        if False:\n",
        ("sync/two_level/test_in_turns.py::test_no_clusters_train_in_turns",),
    ),
    Mutation(
        "both-give-way",
        "Of two clusters that wait for each other with one shard each, one attends.",
        "ictp2p/sync/two_level/company.py",
        "return self._leave(found[0][1])",
        "return self._leave(max(waited for _, waited in found))",
        ("sync/two_level/test_in_turns.py::test_no_clusters_train_in_turns",),
    ),
    Mutation(
        "others-wait-for-who-waits",
        "A shard that has landed attends the rounds of its mesh while a sibling waits.",
        "ictp2p/sync/two_level/company.py",
        "if attend is not None and",
        "if False and",
        (f"{_COMPANY}test_who_has_landed_attends_the_next_round_while_a_sibling_waits",),
    ),
    Mutation(
        "rounds-of-nothing",
        "Who only attends begins no round.",
        "ictp2p/sync/rounds/coordinator.py",
        "if all(ready.weight <= ATTENDS for _, ready in roll.standing.values()):",
        "if False:",
        ("sync/rounds/test_round_waits.py::test_who_only_attends_begins_no_round_and_is_in_one_that_others_begin",),
    ),
    Mutation(
        "attended-for-good",
        "A round that was only attended is given up when no sibling waits any more.",
        "ictp2p/sync/two_level/company.py",
        "            raise Abandoned\n",
        "            pass\n",
        (f"{_COMPANY}test_a_round_that_was_only_attended_is_given_up_when_nobody_waits_any_more",),
    ),
    Mutation(
        "given-up-though-begun",
        "A round that has begun is seen to its end.",
        "ictp2p/sync/two_level/company.py",
        "Standing.MOVES if self._moves else waits",
        "waits",
        (f"{_COMPANY}test_but_not_once_it_has_begun",),
    ),
    Mutation(
        "given-up-while-it-begins",
        "Whether a round has begun is asked where that is known, when it is given up.",
        "ictp2p/sync/two_level/flight.py",
        "(self._needless and not self._begun)",
        "self._needless",
        ("sync/two_level/test_flight.py::test_a_round_that_has_begun_is_not_given_up",),
    ),
    Mutation(
        "attended-and-made-up-for",
        "A round that was attended and missed leaves nothing due in the middle of the siblings' phase.",
        "ictp2p/sync/two_level/outer_round.py",
        "self._contribution.attends_only = progress.due = False",
        "self._contribution.attends_only = False",
        (f"{_SHARDS}test_a_round_that_was_attended_and_missed_is_not_made_up_for_before_the_next_boundary",),
    ),
    Mutation(
        "shards-step-apart",
        "Of a sharded model all parts are stepped, or none is.",
        "ictp2p/sync/two_level/gradients.py",
        ", shards=self._sharded)",
        ")",
        ("sync/cluster/test_scaling.py::test_of_a_sharded_model_no_shard_is_stepped_if_one_overflowed",),
    ),
    Mutation(
        "stops-in-a-collective",
        "A rank that cannot go on says so where its siblings listen, and not between the model's collectives.",
        "ictp2p/sync/two_level/policy.py",
        "            if self._meeting.on:  # else",
        "            if True:  # else",
        (f"{_SHARDS}test_who_stops_says_so_where_its_siblings_listen_and_nowhere_else",),
    ),
    Mutation(
        "ranks-left-out",
        "All who hold a part of a parameter are among the ranks that keep step.",
        "ictp2p/sync/model/sharding.py",
        "        if lacking:\n",
        "        if False:\n",
        _WORKER,
    ),
    Mutation(
        "shards-launch-apart",
        "All ranks launch after the same step.",
        "ictp2p/sync/cluster/siblings.py",
        "due = min(heads, key=lambda head: head.number).due",
        "pass",
        ("sync/cluster/test_siblings.py::test_all_come_to_mean_the_same",),
    ),
    Mutation(
        "shards-of-several-weights",
        "A gradient counts what the batches of all ranks count, on every shard.",
        "ictp2p/sync/two_level/meeting.py",
        "return mine if self._agreed is None else self._agreed.weight",
        "return mine",
        (f"{_SHARDS}test_what_the_ranks_of_a_model_count_is_the_same_for_each_of_its_shards",),
    ),
    Mutation(
        "spent-on-one-shard",
        "A gradient that is of no use to one rank counts for none of them.",
        "ictp2p/sync/cluster/siblings.py",
        "weight=0.0 if any(head.spent for head in heads) else sum(",
        "weight=sum(",
        ("sync/cluster/test_siblings.py::test_all_come_to_mean_the_same",),
    ),
    Mutation(
        "waits-for-who-stopped",
        "A rank that cannot go on tells its siblings.",
        "ictp2p/sync/two_level/policy.py",
        "            self._outer_round.stop()\n",
        "            pass\n",
        (f"{_SHARDS}test_a_shard_that_stops_is_no_shard_that_is_waited_for",),
    ),
    Mutation(
        "leaves-alone",
        "All ranks of a cluster leave at the same boundary.",
        "ictp2p/sync/cluster/siblings.py",
        "leaves=any(head.leaves for head in heads),",
        "leaves=leaves,",
        (f"{_SHARDS}test_all_leave_at_the_same_step_if_one_is_asked_to",),
    ),
    Mutation(
        "shard-state-as-a-whole",
        "A newcomer's optimizer holds parts of distributed tensors where its parameters are such.",
        "ictp2p/sync/optimizers/reload.py",
        "    saved = _distributed(optimizer, saved)\n",
        "",
        _WORKER,
    ),
    Mutation(
        "gathered-for-a-shard",
        "What FSDP has gathered for an evaluation is no shard.",
        "ictp2p/sync/model/sharding.py",
        "            module.reshard()\n",
        "            pass\n",
        _WORKER,
    ),
    Mutation(
        "copies-come-apart",
        "What several ranks hold as a whole is not averaged by each apart.",
        "ictp2p/sync/model/sharding.py",
        "if not is_distributed(parameter) or _is_copied(parameter):",
        "if False:",
        _WORKER,
    ),
    Mutation(
        "rates-of-one-model-apart",
        "A schedule is at the same on all ranks of a model.",
        "ictp2p/sync/two_level/meeting.py",
        "self.on, self.scheduled = False, self.siblings.most(scheduled)",
        "self.on, self.scheduled = False, self.siblings.most(scheduled) * 0 + scheduled",
        (f"{_SHARDS}test_a_schedule_is_at_the_same_on_all_ranks_whatever_their_rounds_were",),
    ),
)
