"""The rules of `ictp2p/core/settling.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "moved-without-a-word",
        "Followers hear of workers of other clusters that have moved, or are other processes.",
        '        elif self._is_news("cards",',
        '        elif False and self._is_news("cards",',
        ("core/test_stale_cards.py",),
    ),
    Mutation(
        "need-said-on-the-former-connection",
        "Who needs a connection says so anew on the one that takes its place.",
        '        self._based.pop("needed", None)\n',
        "        pass\n",
        ("core/test_stack_ways.py::test_who_needs_a_connection_says_so_again_on_the_one_that_takes_its_place",),
    ),
    Mutation(
        "planner-shown-nothing",
        "A mate who plans rounds is shown what links measure.",
        "        self._meetings.show_mesh_to_planner()\n",
        "",
        ("core/test_stack_ways.py::test_a_mate_who_plans_is_shown_what_links_measure",),
    ),
)
