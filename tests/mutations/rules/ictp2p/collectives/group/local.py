"""The rules of `ictp2p/collectives/group/local.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "each-at-an-address-of-its-own-choice",
        "The members of a group meet at addresses of one family, those from which they reach its rendezvous.",
        "create_device(hostname=store.interface)",
        'create_device(hostname=("127.0.0.1", "::1")[self.rank % 2])',
        (
            "collectives/group/test_local.py::"
            "test_members_meet_in_the_family_of_the_rendezvous_whatever_else_their_connections_show",
        ),
    ),
    Mutation(
        "failed-member-stays-on-the-line",
        "Who fails in a collective of its cluster hangs up, so that those who wait for it fail too.",
        "        _sweep()\n        return LocalGroupError(",
        "        return LocalGroupError(",
        ("collectives/group/test_local.py::test_who_fails_hangs_up_so_that_who_waits_for_it_fails_too",),
    ),
    Mutation(
        "unmet-group-in-a-cycle",
        "A group that did not meet leaves no cycle of its error and who waited for it.",
        "            del made  # it knows",
        "            pass  # it knows",
        ("collectives/group/test_local.py::test_a_group_that_does_not_meet_leaves_nothing_to_the_garbage_collector",),
    ),
)
