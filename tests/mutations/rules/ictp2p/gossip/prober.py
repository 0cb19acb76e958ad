"""The rules of `ictp2p/gossip/prober.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "helpers-drawn-at-random",
        "Helpers are a shuffle of all who can help: the only one of a small group is never missed.",
        "return tuple(self._rng.sample(able, min(self._profile.helpers, len(able))))",
        "drawn = {self._rng.choice(self._ledger.others()) for _ in range(self._profile.helpers)}\n"
        "        return tuple(sorted(drawn.intersection(able)))",
        ("gossip/test_swim_trouble.py::test_only_helper_of_three_is_always_asked",),
    ),
    Mutation(
        "watched-by-nobody",
        "Every member is asked every second interval by its guard: a crash is suspected within three.",
        "(self._guards.doubted() or self._guards.charge()) if self._guarding else None",
        "None",
        (
            "gossip/test_guards.py"
            "::test_a_crash_is_suspected_within_three_intervals_and_known_after_the_shortest_suspicion",
        ),
    ),
    Mutation(
        "guards-ask-nobody-else",
        "Every second turn belongs to the shuffled list: whoever's guard is sick is asked by the others.",
        "self._guarding = not self._guarding",
        "self._guarding = True",
        ("gossip/test_guards.py::test_the_charge_is_asked_every_second_turn_and_the_others_in_their_round",),
    ),
    Mutation(
        "slow-is-silent",
        "Where answers have taken long of late, a probe is given up later: a slow answer is no missing one.",
        "max(interval, 2 * patience, 2 * self._grace())",
        "max(interval, 2 * patience)",
        ("gossip/test_prober.py::test_a_verdict_waits_as_long_as_answers_take_within_reason",),
    ),
    Mutation(
        "slow-answers-hide-a-death",
        "However slow the answers of others are, a probe is given up after a bounded time.",
        "return min(self._answers.wanted, _GRACE_LIMIT * self._profile.probe_timeout)",
        "return self._answers.wanted",
        ("gossip/test_prober.py::test_a_verdict_waits_as_long_as_answers_take_within_reason",),
    ),
    Mutation(
        "late-word-of-a-helper-ignored",
        "A helper that says after the verdict that it hears nothing either takes back what its silence counted as.",
        "for probe in (self._probe, self._failed):",
        "for probe in (self._probe,):",
        ("gossip/test_swim_lag.py::test_a_helper_s_word_counts_once_be_it_before_the_verdict_or_after",),
    ),
)
