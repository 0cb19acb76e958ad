"""The rules of `ictp2p/collectives/running/lane.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

_LONG = (
    "collectives/running/test_exchange.py"
    "::test_who_is_ahead_does_not_wait_for_what_takes_long_to_come_up_and_down_its_way",
)

MUTATIONS: Final = (
    Mutation(
        "waits-for-who-is-far-away",
        "Nobody waits for results for as long as these take to come a long way.",
        "return min(1.0, max(chunks, QUEUED * plan.way / (plan.seconds - plan.way)))",
        "return min(1.0, chunks)",
        _LONG,
    ),
    Mutation(
        "longer-than-all-of-it",
        "Where all of a share is on its way at once it waits for nothing.",
        "    if plan.seconds <= (1 + QUEUED) * plan.way:\n        return 1.0\n",
        "",
        _LONG,
    ),
    Mutation(
        "waits-for-what-is-on-its-way",
        "Nobody waits for what comes a long way for as long as that takes.",
        "MIN_WINDOW / max(1, chunks), lag",
        "MIN_WINDOW / max(1, chunks)",
        ("collectives/running/test_exchange.py::test_who_is_ahead_does_not_wait_for_what_is_on_a_long_way",),
    ),
    Mutation(
        "overtaken-chunk-counted",
        "What has come too early counts once all before it are there.",
        "        if piece.chunk != here:\n",
        "        if piece.chunk < here:\n",
        (
            "collectives/running/test_exchange.py::test_a_chunk_may_overtake_another_but_comes_only_once",
            "collectives/running/test_exchange.py::test_any_interleaving_ends_with_every_contribution_counted_once",
        ),
    ),
)
