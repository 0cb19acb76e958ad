"""The rules of `ictp2p/bulk/relay.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "stranger-relayed",
        "A relay serves only who proves to be a member, and each such hello once.",
        "        if not self._membership.admits(hello):\n",
        "        if False:\n",
        ("bulk/test_relay.py::test_strangers_occupy_no_place_and_nobody_is_dialed_for_them",),
    ),
    Mutation(
        "asked-a-relay-for-ever",
        "Whatever ends a relay's search for a way, whoever asked for it is not left waiting.",
        "        except BaseException:  # whatever it is: nobody else would read from it, or end it\n",
        "        except asyncio.CancelledError:\n",
        ("bulk/test_relay.py::test_whatever_ends_the_search_for_a_way_ends_who_asked_for_it",),
    ),
    Mutation(
        "relayed-in-a-cycle",
        "What ends of a relay call when both are gone does not know them.",
        "        ended = partial(self._joined.pop, key)\n"
        "        self._joined[key] = splice(incoming, onward, self._profile.stall, ended, self._shrink)\n",
        "        ends = splice(incoming, onward, self._profile.stall, lambda: (self._joined.pop(key), ends), print)\n"
        "        self._joined[key] = ends\n",
        ("bulk/test_relay.py::test_what_was_relayed_leaves_nothing_to_the_garbage_collector",),
    ),
)
