"""The rules of `ictp2p/collectives/codecs/blocks.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "diverged-hidden",
        "A block with an element that is not finite decodes to NaN, never to ordinary numbers.",
        "scale.masked_fill_(poisoned, torch.nan)",
        "scale.masked_fill_(poisoned, 0.0)",
        ("collectives/codecs/test_codec.py::test_what_is_not_finite_is_never_hidden",),
    ),
)
