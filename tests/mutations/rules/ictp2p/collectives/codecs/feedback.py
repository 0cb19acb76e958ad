"""The rules of `ictp2p/collectives/codecs/feedback.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "residual-before-commit",
        "What a codec left out is kept only of contributions that were committed.",
        "left.sub_(piece).nan_to_num_(0.0, 0.0, 0.0)",
        "self._residual[start : start + _PIECE] = left.sub_(piece).nan_to_num_(0.0, 0.0, 0.0)",
        ("collectives/codecs/test_feedback.py::test_a_round_that_was_not_committed_leaves_no_trace",),
    ),
)
