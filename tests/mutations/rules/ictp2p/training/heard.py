"""The rules of `ictp2p/training/heard.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "newcomer-overheard",
        "A newcomer of whom the leader is told before it has looked at its roster is let in.",
        "                return self._roster\n",
        "                self._pending = False\n                return self._roster\n",
        ("training/test_mesh.py::test_a_newcomer_that_comes_before_the_leader_has_looked_at_its_roster_is_let_in",),
    ),
    Mutation(
        "heard-of-a-roster-in-silence",
        "A thread that waits for a roster says so again with each that leaves it out.",
        "            while self.newest == known and (self._roster",
        "            while (self._roster",
        ("training/test_mesh.py::test_who_waits_for_a_roster_says_so_with_each_that_comes",),
    ),
)
