"""The rules of `ictp2p/routing/table.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "feasibility-ignored",
        "A route that may lead back through us is not used, however short it looks.",
        "            if closer and self._sources.feasible(key, offer):",
        "            if closer:",
        ("routing/test_babel_requests.py::test_the_first_request_asks_few_and_its_repeat_asks_all",),
    ),
)
