"""The rules of `ictp2p/runtime/errands.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "store-refused-in-silence",
        "A leader that can open no store for its cluster's group says so, whatever kept it, and makes way.",
        "        except Exception as error:\n            why = ",
        "        except OSError as error:\n            why = ",
        ("runtime/test_errands.py::test_a_store_that_cannot_be_opened_is_told_to_the_rosters_and_once_to_people",),
    ),
)
