"""The rules of `ictp2p/collectives/planning/laying.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "first-trees-take-lines",
        "Trees leave everybody what it has to send and to receive in any case.",
        "        self._load[topology.lines] = 1.0\n",
        "        self._load[topology.lines] = 0.1\n",
        ("collectives/planning/test_laying.py::test_who_can_hardly_send_or_receive_what_it_must_is_spared_the_rest",),
    ),
    Mutation(
        "far-root-chosen",
        "A root reaches everybody, and is reached, within the radius.",
        "np.where(self._able, edges.min(axis=0) + edges.min(axis=1), -1.0)",
        "np.where(self._able | True, edges.min(axis=0) + edges.min(axis=1), -1.0)",
        ("collectives/planning/test_laying.py::test_near_ones_lead_no_further_than_they_may",),
    ),
)
