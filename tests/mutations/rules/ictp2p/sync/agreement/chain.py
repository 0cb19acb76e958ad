"""The rules of `ictp2p/sync/agreement/chain.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "proposes-what-nobody-reads",
        "What nobody could read once it is decided is not proposed.",
        " or unreadable(value)",
        "",
        ("sync/agreement/test_agreement.py::test_what_nobody_could_read_is_not_proposed",),
    ),
    Mutation(
        "strangers-told-of-for-ever",
        "Of the peers of other meshes only so many are remembered.",
        "        if len(self._foreign) > _STRANGERS:\n",
        "        if False:\n",
        ("sync/agreement/test_agreement_chain.py::test_separately_founded_meshes_do_not_mix",),
    ),
    Mutation(
        "quorum-over-gossip-view",
        "A quorum is one of decided voters, never of those who are believed to be alive.",
        "        chosen = self._learner.chosen(self._acceptor.voters)\n",
        "        believed = tuple(v for v in self._acceptor.voters if v not in self._suspects)\n"
        "        chosen = self._learner.chosen(believed)\n",
        ("sync/rounds/test_voter_deaths.py::test_a_minority_waits_says_so_and_applies_nothing",),
    ),
    Mutation(
        "early-decisions-dropped",
        "A decision that overtook those before it is learnt after them.",
        "                self._early[slot] = value\n",
        "                pass\n",
        (
            "sync/agreement/test_agreement_chain.py::test_lessons_may_come_in_any_order_and_each_decision_is_told_in_its_turn",
        ),
    ),
    Mutation(
        "answers-from-memory",
        "No answer relies on what was only asked to be kept: each brings its `Persist`, a repeated one too.",
        "        persist = acceptor.promise(message.ballot)\n",
        "        if acceptor.promised == message.ballot:\n"
        "            return [Send(sender, answer)]\n"
        "        persist = acceptor.promise(message.ballot)\n",
        ("sync/agreement/test_agreement.py::test_an_answer_that_is_given_again_comes_again_with_what_it_relies_on",),
    ),
    Mutation(
        "promise-told-before-it-is-on-disk",
        "A promise is on disk before anybody hears of it.",
        "return [persist, Send(sender, answer)]",
        "return [Send(sender, answer), persist]",
        ("sync/agreement/test_agreement.py::test_a_promise_and_an_acceptance_are_on_disk_before_they_are_told",),
    ),
    Mutation(
        "answer-of-another-slot-counts",
        "An acceptance counts for the slot that it is about and no other.",
        "return slot == self.slot + 1 and sender in self._acceptor.voters",
        "return sender in self._acceptor.voters",
        ("sync/agreement/test_agreement.py::test_an_answer_about_an_earlier_slot_does_not_count_for_this_one",),
    ),
    Mutation(
        "informed-by-being-told-of-it",
        "To hear that there is news is not to know it.",
        "all(v in self._known and self._known[v] <= self.slot for v in told)",
        "all(v in self._known for v in told)",
        (
            "sync/agreement/test_agreement_chain.py::test_who_starts_again_is_informed_once_every_voter_has_said_what_it_knows",
        ),
    ),
    Mutation(
        "informed-by-one",
        "Who starts again asks all voters what they know.",
        "all(v in self._known and self._known[v] <= self.slot for v in told)",
        "any(v in self._known and self._known[v] <= self.slot for v in told)",
        (
            "sync/agreement/test_agreement_chain.py::test_who_starts_again_is_informed_once_every_voter_has_said_what_it_knows",
        ),
    ),
)
