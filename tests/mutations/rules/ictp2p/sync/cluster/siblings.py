"""The rules of `ictp2p/sync/cluster/siblings.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "shards-launch-apart",
        "All ranks launch after the same step.",
        "due = min(heads, key=lambda head: head.number).due",
        "pass",
        ("sync/cluster/test_siblings.py::test_all_come_to_mean_the_same",),
    ),
    Mutation(
        "spent-on-one-shard",
        "A gradient that is of no use to one rank counts for none of them.",
        "weight=0.0 if any(head.spent for head in heads) else sum(",
        "weight=sum(",
        ("sync/cluster/test_siblings.py::test_all_come_to_mean_the_same",),
    ),
    Mutation(
        "leaves-alone",
        "All ranks of a cluster leave at the same boundary.",
        "leaves=any(head.leaves for head in heads),",
        "leaves=leaves,",
        ("sync/two_level/test_shards.py::test_all_leave_at_the_same_step_if_one_is_asked_to",),
    ),
)
