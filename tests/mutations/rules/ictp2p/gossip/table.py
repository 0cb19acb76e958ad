"""The rules of `ictp2p/gossip/table.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "suspicion-cleared-by-old-news",
        "Only a greater incarnation clears a suspicion: a new payload may have left before the crash.",
        "elif known is None or record.incarnation > known.record.incarnation:",
        "elif known is None or record.version > known.record.version:",
        ("gossip/test_swim_claims.py::test_new_payload_in_the_accused_incarnation_clears_nothing",),
    ),
    Mutation(
        "digest-names-thousands",
        "However many have died, what one member says of all of them is taken by the others.",
        "        surplus = len(gone) - self._profile.most_absent\n",
        "        surplus = 0\n",
        (
            "gossip/test_table.py::test_of_too_many_absent_the_newest_are_remembered_and_all_who_are_there",
            "gossip/test_swim_crashes.py::test_workers_that_die_by_the_thousand_leave_digests_that_the_others_take",
        ),
    ),
    Mutation(
        "new-payload-clears-a-death",
        "Only a greater incarnation clears a death: a new payload may have been on its way since before the crash.",
        "elif known is None or record.incarnation > known.record.incarnation:",
        "elif known is None or record.version > known.record.version:",
        (
            "properties/test_swim_exhaustive.py::test_nobody_goes_back_and_from_every_state_all_who_are_there_see_each_other",
        ),
    ),
)
