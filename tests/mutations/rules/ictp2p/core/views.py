"""The rules of `ictp2p/core/views.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "foreigners-counted-on",
        "Clusters of a mesh that was founded apart do not vote here, and no round waits for them.",
        "return bool(card.lineage and lineage) and card.lineage != lineage",
        "return False",
        (
            "core/test_views.py::test_rounds_are_told_of_no_cluster_whose_mesh_was_founded_apart",
            "sim/test_resume.py::test_a_founder_that_founds_again_on_another_disk_does_not_halt_the_mesh_that_it_meets",
        ),
    ),
    Mutation(
        "ways-as-long-as-their-queues",
        "Plans reckon with a way's least round trip: amid a round others are as long as the round makes them.",
        "    figures = (out, into, measured.min_rtt or 0.0, measured.loss, *bounds)",
        "    figures = (out, into, measured.srtt or 0.0, measured.loss, *bounds)",
        ("core/test_views.py::test_a_link_is_as_long_as_its_least_round_trip_whatever_waits_in_its_queues",),
    ),
)
