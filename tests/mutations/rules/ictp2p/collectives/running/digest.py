"""The rules of `ictp2p/collectives/running/digest.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "digest-of-part-of-the-result",
        "The digest of a result covers every byte of it.",
        "        leaves = (leaf or self._leaf(number) for number, leaf in enumerate(self._leaves))\n",
        "        leaves = (leaf for leaf in self._leaves)\n",
        ("collectives/running/test_digest.py::test_neither_the_order_of_arrival_nor_the_cuts_matter",),
    ),
)
