"""The rules of `ictp2p/bulk/early.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "dropped-early-chunk-forgotten",
        "A chunk that came before we had begun, and found no room, is asked for again.",
        "            self._dropped[tag] = len(oldest)\n",
        "",
        ("bulk/test_early.py::test_a_chunk_that_comes_early_is_used_or_sent_again",),
    ),
    Mutation(
        "only-one-sent-again",
        "All chunks that came early and were dropped are asked for again, and no others.",
        "            self._dropped[tag] = len(oldest)\n",
        "            self._dropped[tag] = 1\n",
        ("bulk/test_early.py::test_what_is_kept_is_bounded_and_what_is_dropped_is_known",),
    ),
    Mutation(
        "kept-behind-a-dropped-one",
        "Of a collective of which a chunk was dropped none is kept that comes later: the first are asked for again.",
        "        if header.tag in self._dropped:\n",
        "        if False:\n",
        ("bulk/test_early.py::test_whoever_begins_when_everything_arrives_once",),
    ),
    Mutation(
        "early-chunks-that-weigh-nothing",
        "However small the chunks that come early, what is kept of them is bounded.",
        "    return max(_LEAST, len(chunk[1]))\n",
        "    return len(chunk[1])\n",
        ("bulk/test_early.py::test_what_is_kept_is_bounded_and_what_is_dropped_is_known",),
    ),
    Mutation(
        "dropped-for-their-number-unnoticed",
        "A chunk that is dropped because too many are kept is asked for again, like one dropped for its size.",
        "while self._size > KEPT_BYTES or len(self._kept) > self._remembered:",
        "if len(self._kept) > self._remembered:\n"
        "            self._size -= sum(map(_counted, self._kept.popitem(last=False)[1]))\n"
        "        while self._size > KEPT_BYTES:",
        ("bulk/test_early.py::test_what_is_dropped_for_its_number_is_known_as_well",),
    ),
)
