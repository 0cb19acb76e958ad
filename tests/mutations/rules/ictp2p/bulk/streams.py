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
        "long-reply-ends-the-connection",
        "A reply that does not fit ends its request, and what else the connection carries goes on.",
        'self._fail(f"reply bytes',
        'raise RemoteProtocolError(f"reply bytes',
        ("bulk/test_fetch.py::test_what_runs_on_the_same_connection_outlives_a_reply_that_is_too_long",),
    ),
)
