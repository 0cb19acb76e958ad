"""The rules of `ictp2p/core/lines.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "slow-links-stay-wide",
        "Links of a round that was slow count as they are measured.",
        "before = 0.0 if pair in self._followed else self._widest.get(pair, 0.0)",
        "before = self._widest.get(pair, 0.0)",
        (
            "core/test_proven.py::test_links_of_a_round_that_was_slow_count_as_they_are_measured",
            "core/test_lines.py::test_links_that_were_slow_count_as_measured_for_some_rounds_and_then_anew",
        ),
    ),
    Mutation(
        "the-last-figure-of-a-link",
        "A link is as wide as it ever was, whatever it shares its lines with later.",
        "self._widest[pair] = max(rate, before)",
        "self._widest[pair] = rate",
        ("core/test_lines.py::test_links_that_had_their_lines_for_themselves_show_lines_whatever_they_share_later",),
    ),
    Mutation(
        "lines-of-lower-bounds",
        "What links carry at least says nothing of a line where none of them was measured.",
        "if source in sources}",
        "}",
        ("core/test_lines.py::test_where_no_link_was_measured_a_line_is_not_known_for_what_links_carry_at_least",),
    ),
    Mutation(
        "links-of-lower-bounds",
        "A link that was never measured is not as narrow as what it carried at least.",
        "bandwidth=rate if pair in self._measured else UNKNOWN * line)",
        "bandwidth=rate or UNKNOWN * line)",
        ("core/test_lines.py::test_where_no_link_was_measured_a_line_is_not_known_for_what_links_carry_at_least",),
    ),
    Mutation(
        "relays-taken-for-lines",
        "What a relayed link carries says nothing of the lines at its ends.",
        "for pair, link in links.items() if link.via is None}",
        "for pair, link in links.items()}",
        ("core/test_lines.py::test_what_a_relayed_link_carries_says_nothing_of_its_ends",),
    ),
    Mutation(
        "line-no-wider-than-a-link",
        "A line is as wide at least as what all its links carried together in a round.",
        "self._together[end] = max(size / seconds,",
        "self._together[end] = max(0.0,",
        ("core/test_lines.py::test_a_line_is_as_wide_at_least_as_what_its_links_carried_together",),
    ),
)
