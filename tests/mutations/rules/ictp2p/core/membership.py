"""The rules of `ictp2p/core/membership.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "a-goodbye-is-for-ever",
        "Who said goodbye and leads again is dialed: it may be unable to dial us.",
        "            self._meetings.departed.discard(card.leader)\n",
        "            pass\n",
        ("core/test_stack_dialing.py::test_who_said_goodbye_and_is_back_is_dialed_by_one_that_it_cannot_dial",),
    ),
    Mutation(
        "half-that-stays-unanswered",
        "Where one half of a torn cluster left for all of it, the connected leader of the other half is answered.",
        "            self._meetings.recall_claims(cluster, gone=decode_cluster_card(known.record.payload).leader)\n",
        "            pass\n",
        (
            "core/test_stack_goodbyes.py::"
            "test_a_half_of_a_cluster_that_stays_is_met_whatever_the_other_half_said_for_both",
        ),
    ),
)
