"""The rules of `ictp2p/runtime/handover.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

_MADE_UP = "runtime/test_handover.py"

MUTATIONS: Final = (
    Mutation(
        "handed-over-twice",
        "Who could hand its state over to nobody does not try it again as it leaves.",
        "        if ref is None or ref.digest == self._tried:",
        "        if ref is None:",
        (f"{_MADE_UP}::test_nobody_is_waited_for_without_end",),
    ),
    Mutation(
        "followers-hand-over",
        "A worker whose leader stays has nothing to hand over.",
        "or not (self._core.leading or self._custody.keeps)",
        "or False",
        (f"{_MADE_UP}::test_what_is_not_here_or_another_answers_for_is_handed_to_nobody",),
    ),
    Mutation(
        "custodians-keep-it-to-themselves",
        "Who keeps a state for others, and leads no more, hands it over as well.",
        "or not (self._core.leading or self._custody.keeps)",
        "or not self._core.leading",
        (f"{_MADE_UP}::test_what_is_not_here_or_another_answers_for_is_handed_to_nobody",),
    ),
    Mutation(
        "own-content-handed-over",
        "Of a state whose content is each cluster's own nothing is handed over.",
        "        return ref if digest_of(encoded) == ref.digest else None",
        "        return ref",
        (f"{_MADE_UP}::test_what_is_not_here_or_another_answers_for_is_handed_to_nobody",),
    ),
    Mutation(
        "handed-over-without-end",
        "Who leaves waits for those who are to hold its state no longer than they would for it.",
        "(giving.done() or self._is_superseded(ref)) and self._clock() < due:",
        "(giving.done() or self._is_superseded(ref)):",
        (f"{_MADE_UP}::test_nobody_is_waited_for_without_end",),
    ),
    Mutation(
        "old-state-handed-over",
        "Who leaves waits for nobody once a newer version shows that somebody had this one.",
        "(giving.done() or self._is_superseded(ref)) and",
        "giving.done() and",
        (f"{_MADE_UP}::test_a_state_that_has_a_successor_was_had_by_somebody",),
    ),
    Mutation(
        "any-answer-will-do",
        "Who is about to leave as well is not relied on.",
        "                if answer == KEPT:\n",
        "                if answer:\n",
        (
            f"{_MADE_UP}::test_those_are_asked_first_who_most_likely_have_it_soon",
            "sim/test_handover.py::test_holders_that_leave_at_one_moment_do_not_rely_on_each_other",
        ),
    ),
    Mutation(
        "the-dead-are-content",
        "That those who are out of reach do not have what one leaves with is told.",
        "for cluster in stay if not stay[cluster])",
        "for cluster in stay if False)",
        (f"{_MADE_UP}::test_that_nobody_has_it_is_told_with_every_reason",),
    ),
    Mutation(
        "warned-of-who-left",
        "Nobody is warned of a cluster that needs nothing more.",
        "for cluster in failed if cluster in stay)",
        "for cluster in failed)",
        (f"{_MADE_UP}::test_who_has_left_meanwhile_needs_it_no_more",),
    ),
    Mutation(
        "strangers-asked-first",
        "Those are asked first whose answer is a word: who took part in the round.",
        "(c.cluster not in holders, not c.training,",
        "(not c.training,",
        (f"{_MADE_UP}::test_those_are_asked_first_who_most_likely_have_it_soon",),
    ),
)
