"""The rules of `ictp2p/torch_backend/work.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "called-in-a-callback",
        "No collective is called where ranks have no order in common.",
        "        _thread.calls_back = True\n",
        "",
        ("torch_backend/test_calls.py::test_no_call_is_made_in_a_callback_where_ranks_have_no_order_in_common",),
    ),
    Mutation(
        "callbacks-behind",
        "Who waits for a call finds done what its callbacks do.",
        "        return self._ended if calls_back() else self._told\n",
        "        return self._ended\n",
        ("torch_backend/test_work.py::test_a_wait_is_over_when_the_future_is_done_and_has_called_back",),
    ),
    Mutation(
        "callback-waits-for-itself",
        "A callback that waits for a call waits for no callbacks, its own among them.",
        "        return self._ended if calls_back() else self._told\n",
        "        return self._told\n",
        ("torch_backend/test_work.py::test_callbacks_may_wait_for_their_own_call_and_for_each_others",),
    ),
    Mutation(
        "no-thread-no-end",
        "A call ends, and its future, where no thread can be had to call back in.",
        "            call_back()\n",
        "            pass\n",
        ("torch_backend/test_work.py::test_where_no_thread_can_be_had_a_call_and_its_future_end_all_the_same",),
    ),
)
