"""The rules of `ictp2p/bulk/streams.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "probe-without-end",
        "A probe ends after its seconds, however slow the link.",
        "if self._stopped or now >= self._began + self._seconds:",
        "if self._stopped:",
        ("bulk/test_streams.py",),
    ),
    Mutation(
        "probe-never-measured",
        "Who has all of a probe, and falls silent, is given up.",
        "        return not self.result.done()\n",
        "        return False\n",
        ("bulk/test_probing.py::test_whose_probe_is_never_measured_is_given_up",),
    ),
    Mutation(
        "long-reply-ends-the-connection",
        "A reply that does not fit ends its request, and what else the connection carries goes on.",
        'self._fail(f"reply bytes',
        'raise RemoteProtocolError(f"reply bytes',
        ("bulk/test_fetch.py::test_what_runs_on_the_same_connection_outlives_a_reply_that_is_too_long",),
    ),
    Mutation(
        "given-without-a-word",
        "What a handler gives away is gone once who asked has said that it is there.",
        "        await self._received.wait()\n",
        "        pass\n",
        ("bulk/test_fetch.py::test_what_is_given_away_is_gone_once_who_asked_has_all_of_it_and_not_before",),
    ),
    Mutation(
        "silent-taker",
        "Who is to say that it has all, and falls silent, is given up.",
        "        return self._ended and not self._received.is_set()\n",
        "        return False\n",
        ("bulk/test_fetch.py::test_who_is_to_say_that_it_has_all_and_falls_silent_is_given_up",),
    ),
)
