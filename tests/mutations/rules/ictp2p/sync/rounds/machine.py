"""The rules of `ictp2p/sync/rounds/machine.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "former-for-good",
        "Who knows what the others do lives through what is agreed on from then on.",
        "self._caught_up = self._caught_up or (self.agreement.tip is not None and self.agreement.informed)",
        "pass",
        (
            "sync/rounds/test_rounds.py::test_what_was_agreed_on_in_a_former_life_was_seen_by_nobody_though_this_life_completed_it",
        ),
    ),
    Mutation(
        "completed-is-not-seen",
        "Who completes what was accepted in a former life has not lived through that.",
        "value.state.version + isinstance(value, Open) + 1",
        "value.state.version + 1",
        (
            "sync/rounds/test_rounds.py::test_what_was_agreed_on_in_a_former_life_was_seen_by_nobody_though_this_life_completed_it",
        ),
    ),
    Mutation(
        "lands-late-taken-for-lost",
        "A state that is agreed on is held by whoever has it whole, though it has yet to land there.",
        'if agreed is not None and sealed == agreed.digest != b"":',
        "if agreed is None:",
        ("sim/test_training.py::test_a_round_that_lands_much_later_is_not_taken_for_lost",),
    ),
    Mutation(
        "claims-what-no-chain-knows",
        "A worker claims no version that its chain has not given out: the others would wait for news of it.",
        "return (version if agreed is not None and version <= agreed.version else 0, digest)",
        "return (version, digest)",
        ("sync/rounds/test_rounds.py::test_no_number_is_claimed_that_the_chain_has_not_given_out",),
    ),
    Mutation(
        "begun-in-the-middle-of-its-own-round",
        "Who is back while its former life is in a round begins once that is decided.",
        "        return self.agreement.informed and not under_way",
        "        return self.agreement.informed",
        (
            "sync/rounds/test_round_deaths.py"
            "::test_who_is_back_while_its_former_life_is_in_a_round_waits_for_what_becomes_of_that",
        ),
    ),
    Mutation(
        "proposed-as-things-were",
        "What waits for a quorum of promises is made anew: by then those who were to vote may be dead.",
        "        if self.agreement.busy and not self.agreement.wavers(now):\n",
        "        if self.agreement.busy:\n",
        ("sync/rounds/test_electorate.py::test_what_waited_long_for_a_quorum_is_proposed_as_things_are_by_then",),
    ),
    Mutation(
        "wished-for-all-the-same",
        "What is not to be proposed any more is wished for no more.",
        "            self.agreement.withdraw()\n",
        "            pass\n",
        ("sync/rounds/test_electorate.py::test_what_waited_long_for_a_quorum_is_proposed_as_things_are_by_then",),
    ),
)
