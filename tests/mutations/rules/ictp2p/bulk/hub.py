"""The rules of `ictp2p/bulk/hub.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "ended-and-remembered",
        "What has begun is remembered until it has ended here, however many others begin and end meanwhile.",
        "                self._desks[connection].forget(tag)\n",
        "                pass\n",
        ("bulk/test_early.py::test_who_has_begun_is_remembered_however_many_others_begin_and_end_meanwhile",),
    ),
    Mutation(
        "tag-not-looked-at",
        "A frame goes to the collective whose tag it bears.",
        "found, _ = self._users.get((connection.peer, header.tag), (None, None))",
        "found = next((user for (peer, _), (user, _) in self._users.items() if peer == connection.peer), None)",
        ("bulk/test_collective.py::test_two_collectives_run_side_by_side",),
    ),
    Mutation(
        "probe-heard-of-after-it-was-told",
        "A link lives by when the other end was heard, not by when more connections to it had been tried in vain.",
        "ended=result.told, ",
        "",
        ("bulk/test_stripes.py::test_what_one_connection_carried_was_heard_of_before_more_were_tried",),
    ),
    Mutation(
        "failed-request-in-a-cycle",
        "A request that failed lets go of its destination.",
        "            del fetch  # it knows",
        "            # it knows",
        ("bulk/test_hub.py::test_a_request_that_fails_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "buffers-are-no-bound",
        "Where buffers hold connections back there are more, until the line is the bound.",
        "            self._tasks.spawn(self.attaching.widen(first))",
        "            pass",
        (
            "bulk/test_doubling.py::test_there_are_twice_as_many_as_long_as_buffers_hold_all_of_them_back",
            "sim/test_stripes.py::test_there_are_more_as_long_as_buffers_are_the_bound_and_until_the_line_is",
        ),
    ),
    Mutation(
        "first-end-taken-for-the-last",
        "Who needs nothing more may close one connection before others have brought what it sent over them.",
        "            if whole and others and isinstance(user, Hold) and user.goes_on(others):",
        "            if not others and isinstance(user, Hold) and user.goes_on(others):",
        ("bulk/test_stripes.py::test_who_has_sent_all_may_close_one_connection_before_others_have_brought_theirs",),
    ),
    Mutation(
        "broken-taken-for-closed",
        "A connection that breaks, or that we still have to send over, ends its collective.",
        "            if whole and others and isinstance(user, Hold) and user.goes_on(others):",
        "            if others and isinstance(user, Hold) and user.goes_on(others):",
        ("bulk/test_stripes.py::test_a_connection_that_broke_or_that_we_still_need_ends_the_collective",),
    ),
    Mutation(
        "word-of-who-gave-up",
        "Who stops asking does not say that it has all.",
        "Kind.RECEIPT if settled else Kind.CANCEL",
        "Kind.RECEIPT",
        ("bulk/test_fetch.py::test_what_is_given_away_is_gone_once_who_asked_has_all_of_it_and_not_before",),
    ),
)
