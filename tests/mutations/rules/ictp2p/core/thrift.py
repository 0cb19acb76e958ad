"""The rules of `ictp2p/core/thrift.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "routes-over-what-nobody-keeps",
        "In a large mesh routes lead over a connection only once one of its ends is known to keep it.",
        "(peer not in self._surplus or self._heard.get(peer, False))",
        "bool(peer)",
        ("core/test_thrift.py::test_what_one_end_needs_the_other_hears_at_once",),
    ),
    Mutation(
        "routes-before-picks-stand",
        "While picks change no new route leads anywhere: nobody knows yet which connections will stay.",
        "            self._calm_at = self._context.now + _CALM\n",
        "            self._calm_at = None\n",
        ("core/test_thrift.py::test_no_route_leads_anywhere_while_picks_change",),
    ),
    Mutation(
        "the-silent-spare-us",
        "Who says nothing of its needs from one look to the next needs the connection.",
        "                self._heard[peer] = True\n",
        "                self._heard[peer] = False\n",
        ("core/test_thrift.py::test_who_says_nothing_from_one_look_to_the_next_needs_the_connection",),
    ),
)
