"""The rules of `ictp2p/collectives/codecs/topk2bit.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "levels-of-the-whole-block",
        "What two bits made of a contribution travels as it is: encoded again it has the same levels.",
        "upper = magnitudes > middle[:, None]",
        "upper = magnitudes > 1.01 * middle[:, None]",
        ("collectives/codecs/test_topk2bit.py::test_it_is_what_the_rule_says",),
    ),
)
