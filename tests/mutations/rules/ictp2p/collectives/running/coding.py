"""The rules of `ictp2p/collectives/running/coding.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "nans-as-they-are-decoded",
        "Everybody has the same bits of a NaN that was decoded, whatever its processor makes of one.",
        "            if nans:\n",
        "            if False:\n",
        ("collectives/running/test_alike.py::test_results_have_the_same_bits_on_every_processor",),
    ),
    Mutation(
        "results-encoded-twice",
        "Everybody decodes the bytes of a result that its root decoded: outputs of 16 bits would be encoded to others.",
        "        self._keep(start, wire.numpy().data, copies)\n",
        "        again = torch.cat([tensor.float() for tensor in self._outputs.ranges(start, stop)])\n"
        "        self._scheme.result.encode(again, wire)\n"
        "        self._keep(start, wire.numpy().data, copies)\n",
        ("collectives/running/test_coding.py::test_who_is_many_megabytes_behind_gets_the_bits_that_all_others_have",),
    ),
    Mutation(
        "sums-in-the-unit-of-the-weights",
        "Encoded sums keep to the range of their terms, whatever the unit of the weights: float16's range is short.",
        "self._factors = normed(weights.factors)",
        "self._factors = list(weights.factors)",
        (
            "collectives/running/test_coding.py::test_sums_of_float16_keep_to_its_range_whatever_the_unit_of_the_weights",
        ),
    ),
    Mutation(
        "own-sum-not-decoded",
        "With a codec the root keeps what others decode, not the sum that it encoded.",
        "        self._decode(start, stop, wire)\n        self._keep(start, wire.numpy().data, copies)",
        "        self._outputs.ranges(start, stop)[0].copy_(total[: len(self._outputs.ranges(start, stop)[0])])\n"
        "        self._keep(start, wire.numpy().data, copies)",
        ("collectives/running/test_coding.py::test_everybody_holds_the_same_bits_within_the_codecs_error",),
    ),
)
