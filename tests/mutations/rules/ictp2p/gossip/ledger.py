"""The rules of `ictp2p/gossip/ledger.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "twins-live-on",
        "Of two processes with one identity one stops.",
        "return [Doubled(record)]",
        "return []",
        ("gossip/test_swim_claims.py::test_of_two_processes_with_one_identity_exactly_one_finds_itself_doubled",),
    ),
    Mutation(
        "early-news-taken-for-lag",
        "News that presses goes out earlier than the details it joins were to, and nobody is late for it.",
        "if empty or (self.queue.presses and not pressed):",
        "if empty:",
        ("gossip/test_swim_lag.py::test_whatever_comes_a_machine_that_is_called_in_time_is_not_late",),
    ),
    Mutation(
        "living-taken-for-accused",
        "Who is shown a view in which it lives has nothing to refute, and no reason to take itself for sick.",
        " and line.status is not Status.ALIVE",
        "",
        ("gossip/test_swim_copies.py::test_who_is_shown_among_the_living_is_not_accused",),
    ),
    Mutation(
        "dead-merged-as-dead",
        "A death that another view reports is a suspicion here: healed halves must not bury each other.",
        "                effects += self.suspect(line.member, line.incarnation, self._me, now)\n",
        "                act = self.bury if line.status is Status.DEAD else self.suspect\n"
        "                effects += act(line.member, line.incarnation, self._me, now)\n",
        ("gossip/test_swim.py::test_dead_merges_as_suspect_on_exchange",),
    ),
    Mutation(
        "forged-record-believed",
        "A record counts only under its owner's signature.",
        "        if not self._verify(record):\n            return []\n        self._spread(record, now)\n",
        "        self._spread(record, now)\n",
        ("gossip/test_swim_claims.py::test_forged_and_unsigned_records_are_ignored",),
    ),
    Mutation(
        "accused-gives-in",
        "Who is accused, and lives, says so in a greater incarnation: no other clears it.",
        "            own = self.declare(own.incarnation + 1, own.sequence, own.payload, now)\n",
        "            pass\n",
        ("properties/test_membership_exhaustive.py::test_after_every_course_all_who_are_there_see_each_other",),
    ),
    Mutation(
        "late-record-believed",
        "A record that is not newer than the one held changes nothing.",
        "        if not self.table.is_newer(record) or (record.left",
        "        if (record.left",
        (
            "properties/test_swim_exhaustive.py::test_nobody_goes_back_and_from_every_state_all_who_are_there_see_each_other",
        ),
    ),
    Mutation(
        "rivals-live-on",
        "Of two who speak for one member each hears of the other's newer record.",
        "return [Displaced(record)]",
        "return []",
        (
            "properties/test_swim_exhaustive.py::test_nobody_goes_back_and_from_every_state_all_who_are_there_see_each_other",
        ),
    ),
)
