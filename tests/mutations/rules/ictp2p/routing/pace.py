"""The rules of `ictp2p/routing/pace.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "bad-news-waits-like-good",
        "A lost route is told at once, and in a burst within a quarter of the wait for good news.",
        "return max(now, self._told_at + self._profile.trigger_delay / 4)",
        "return self.due(now)",
        ("routing/test_pace.py::test_bad_news_is_told_at_once_but_for_what_was_told_this_very_moment",),
    ),
    Mutation(
        "patience-of-a-burst-long-over",
        "After quiet news waits briefly, whatever the last burst had come to.",
        "wait = self._wait if self._bursts(now) else self._profile.trigger_delay",
        "wait = self._wait",
        ("routing/test_pace.py::test_the_first_news_after_quiet_waits_briefly_however_long_the_burst_before_it",),
    ),
)
