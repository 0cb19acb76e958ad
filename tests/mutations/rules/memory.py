"""What has ended is freed at once, and waits for no garbage collector."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "policy-held-by-its-hooks",
        "A policy that has ended, which is several times as large as its model, goes with whoever held it.",
        "ictp2p/sync/two_level/hooks.py",
        "        self._set, self._before = [], lambda: None\n",
        "        self._set = []\n",
        ("sync/two_level/test_policy.py::test_a_policy_that_has_ended_goes_with_whoever_held_it",),
    ),
    Mutation(
        "ended-connection-knows-its-owner",
        "A control connection that has ended forgets who knows it, and its TLS.",
        "ictp2p/edge/control.py",
        "        on_closed, self._on_frame, self._on_closed, self._transport = self._on_closed, None, None, None\n",
        "        on_closed = self._on_closed\n",
        ("edge/test_control.py::test_a_connection_that_has_ended_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "failed-dial-in-a-cycle",
        "A dial that failed leaves no cycle of its error, its frames and its socket.",
        "ictp2p/edge/happy_eyeballs.py",
        "    finally:\n        del weightiest\n",
        "    finally:\n        pass\n",
        ("edge/test_network.py::test_a_dial_that_fails_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "user-of-half-a-body-kept",
        "A connection that ends in the middle of a body knows nobody any more who was to have it.",
        "ictp2p/bulk/inbound.py",
        "        self._regular = self._user = self._target = None\n",
        "        self._regular = None\n",
        ("bulk/test_connection.py::test_one_that_ends_in_the_middle_of_a_body_keeps_nobody_who_was_to_have_it",),
    ),
    Mutation(
        "wrong-answer-in-a-cycle",
        "An answer that is none leaves no cycle of its error and what heard it.",
        "ictp2p/edge/opening.py",
        "            opening = None  # what",
        "            pass  # what",
        ("edge/test_opening.py::test_an_answer_that_is_none_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "failed-request-in-a-cycle",
        "A request that failed lets go of its destination.",
        "ictp2p/bulk/hub.py",
        "            del fetch  # it knows",
        "            # it knows",
        ("bulk/test_hub.py::test_a_request_that_fails_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "lost-probe-in-a-cycle",
        "A probe whose connection is lost lets go of it.",
        "ictp2p/bulk/probing.py",
        "            del user, turn, probe  # they",
        "            # they",
        ("bulk/test_hub.py::test_a_probe_whose_connection_is_lost_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "what-looks-after-a-connection-knows-it",
        "What looks after a connection that has ended does not know it.",
        "ictp2p/bulk/liveness.py",
        "        self._timer = self._connection = None  # in",
        "        self._timer = None  # in",
        ("bulk/test_connection.py::test_one_that_has_ended_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "what-holds-a-connection-back-knows-it",
        "What held back a connection that has ended does not know it.",
        "ictp2p/bulk/throttle.py",
        "        self._timer = self._sender = None  # in",
        "        self._timer = None  # in",
        ("bulk/test_connection.py::test_one_that_has_ended_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "what-shares-the-memory-of-a-connection-knows-it",
        "What shared the memory of a connection that has ended does not know it.",
        "ictp2p/bulk/sharing.py",
        "        self._connection = self._rings = None  # in",
        "        self._rings = None  # in",
        ("bulk/test_connection.py::test_one_that_has_ended_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "relayed-in-a-cycle",
        "What ends of a relay call when both are gone does not know them.",
        "ictp2p/bulk/relay.py",
        "        ended = partial(self._joined.pop, key)\n"
        "        self._joined[key] = splice(incoming, onward, self._profile.stall, ended, self._shrink)\n",
        "        ends = splice(incoming, onward, self._profile.stall, lambda: (self._joined.pop(key), ends), print)\n"
        "        self._joined[key] = ends\n",
        ("bulk/test_relay.py::test_what_was_relayed_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "failed-fetch-in-a-cycle",
        "A fetch of the state that failed lets go of what it still asked for.",
        "ictp2p/runtime/state_exchange.py",
        "            self._opening, self._asked, self._fatal = [], {}, None\n",
        "            self._fatal = None\n",
        ("runtime/test_state_exchange.py::test_a_fetch_that_fails_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "unmet-group-in-a-cycle",
        "A group that did not meet leaves no cycle of its error and who waited for it.",
        "ictp2p/collectives/group/local.py",
        "            del made  # it knows",
        "            pass  # it knows",
        ("collectives/group/test_local.py::test_a_group_that_does_not_meet_leaves_nothing_to_the_garbage_collector",),
    ),
    Mutation(
        "missed-round-in-a-cycle",
        "A round in the background that failed is forgotten with its error.",
        "ictp2p/sync/two_level/flight.py",
        "        result, self._result = self._result, None\n",
        "        result = self._result\n",
        ("sync/two_level/test_flight.py::test_nor_does_one_that_came_to_nothing",),
    ),
    Mutation(
        "withdrawn-round-in-a-cycle",
        "A round in the background that was withdrawn is forgotten with its error.",
        "ictp2p/sync/two_level/flight.py",
        "        self._thread.join()\n        self._result = None\n",
        "        self._thread.join()\n",
        ("sync/two_level/test_flight.py::test_nor_does_one_that_came_to_nothing",),
    ),
    Mutation(
        "unreached-in-a-cycle",
        "A collective that does not reach all of its neighbours leaves no cycle of its error and its tensors.",
        "ictp2p/bulk/attaching.py",
        "            raise await _without(missing, attached)  #",
        "            lost = await _without(missing, attached)\n            raise lost  #",
        ("bulk/test_collective_faults.py::test_a_failed_attempt_keeps_no_tensor_once_its_error_is_dropped",),
    ),
    Mutation(
        "waited-for-in-a-cycle",
        "A call of a process group that failed leaves no cycle of its error and its tensors.",
        "ictp2p/torch_backend/errors.py",
        "    twin = type(error).__new__(type(error), *error.args)\n",
        "    return error\n    twin = type(error).__new__(type(error), *error.args)\n",
        ("torch_backend/test_errors.py::test_a_call_that_failed_leaves_nothing_to_the_garbage_collector",),
    ),
)
