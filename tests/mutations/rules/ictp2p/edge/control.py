"""The rules of `ictp2p/edge/control.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "ended-connection-knows-its-owner",
        "A control connection that has ended forgets who knows it, and its TLS.",
        "        on_closed, self._on_frame, self._on_closed, self._transport = self._on_closed, None, None, None\n",
        "        on_closed = self._on_closed\n",
        ("edge/test_control.py::test_a_connection_that_has_ended_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "own-error-ends-a-connection",
        "What goes wrong here over a message does not end the connection to whoever sent it.",
        "            self._take(data)\n        except RemoteProtocolError as error:\n",
        "            self._take(data)\n        except IctError as error:\n",
        ("edge/test_control_limits.py::test_what_we_get_wrong_over_a_message_is_not_told_as_its_senders_fault",),
    ),
    Mutation(
        "pin-ignored",
        "Who dials a known peer refuses anybody else.",
        "if expected is not None and peer != expected:",
        "if expected is not None and not peer:",
        ("edge/test_control_opening.py::test_a_peer_other_than_the_expected_one_is_refused_and_both_sides_are_told",),
    ),
    Mutation(
        "claimed-id-believed",
        "A peer's id is that of its certificate, whatever it says.",
        "if proven is not None and claimed != proven:",
        "if proven is not None and not claimed:",
        ("edge/test_control_opening.py::test_a_peer_cannot_claim_another_id_than_its_certificates",),
    ),
)
