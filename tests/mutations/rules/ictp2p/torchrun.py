"""The rules of `ictp2p/torchrun.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "unnamed-job-renamed",
        "A job of torchrun's that nobody named has the name of its folder when it is started again.",
        "self._job.cluster if self._job.named else home(config.data_dir)",
        "self._job.cluster if self._job.named else None",
        ("test_torchrun.py::test_a_run_that_nobody_named_keeps_the_name_that_its_folder_has",),
    ),
    Mutation(
        "dead-rank-0-joined",
        "A worker that torchrun has started again does not go where an earlier rank 0 was.",
        "_listens(Address.parse(told.split()[1])) and self._told() == told:",
        "self._told() == told:",
        ("test_torchrun.py::test_what_an_earlier_rank_0_has_left_in_the_store_leads_nobody_astray",),
    ),
    Mutation(
        "port-of-a-dead-rank-0",
        "Nor does it where somebody else has the earlier one's port by now.",
        "_listens(Address.parse(told.split()[1])) and self._told() == told:",
        "_listens(Address.parse(told.split()[1])):",
        ("test_torchrun.py::test_who_listens_by_now_where_an_earlier_rank_0_did_is_not_taken_for_it",),
    ),
    Mutation(
        "dead-rank-0-left-standing",
        "Before rank 0 listens it takes back where an earlier one was.",
        "            self._opened().delete_key(_KEY)\n",
        "",
        ("test_torchrun.py::test_what_an_earlier_rank_0_has_left_in_the_store_leads_nobody_astray",),
    ),
)
