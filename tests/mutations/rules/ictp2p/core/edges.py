"""The rules of `ictp2p/core/edges.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "relay-that-others-list",
        "Nothing is planned over the dead, whoever still lists them.",
        " if link.neighbour not in dead}",
        "}",
        ("core/test_edges.py::test_nothing_is_planned_over_the_dead",),
    ),
    Mutation(
        "relays-links-forgotten",
        "What is relayed takes its share of the links of the relay.",
        "    return LinkEstimate(width, delay, card.leader)",
        "    return LinkEstimate(width, delay)",
        ("core/test_edges.py::test_what_is_relayed_takes_its_share_of_the_links_of_the_relay",),
    ),
    Mutation(
        "cores-taken-for-lines",
        "Links inside one machine are no lines that a schedule may spare.",
        "    return replace(link, bandwidth=UNMEASURED)",
        "    return link",
        ("core/test_edges.py::test_on_one_machine_cores_count_and_not_what_its_links_were_measured_at",),
    ),
)
