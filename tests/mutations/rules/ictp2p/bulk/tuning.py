"""The rules of `ictp2p/bulk/tuning.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "the-kernel-runs-dry",
        "A fast connection over a long way keeps what bridges our pauses.",
        "min(max(UNSENT, PAUSE * rate), MOST_UNSENT)",
        "UNSENT",
        ("bulk/test_tuning.py::test_what_is_kept_bridges_a_pause_and_is_bounded",),
    ),
    Mutation(
        "wide-buffers-taken-back",
        "A send buffer that is wider than the kernel would tune it to is not given back to its tuning.",
        "        if endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < _tuned_up_to():\n    ",
        "",
        ("bulk/test_tuning.py::test_the_kernel_tunes_on_only_where_that_widens_what_we_were_allowed",),
    ),
    Mutation(
        "no-room-no-life",
        "The kernel ends no data connection whose other end has no room, for that may be a relay before a slow line.",
        "        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT)\n",
        "        pass\n",
        ("bulk/test_tuning.py::test_the_kernel_ends_nobody_for_want_of_room_before_we_see_whether_it_lives",),
    ),
    Mutation(
        "striped-in-vain",
        "Several connections are not tried where the host allows one all that it asks for.",
        "rate * seconds >= FAT and not _is_wide(transport)",
        "rate * seconds >= FAT",
        ("bulk/test_tuning.py::test_more_connections_gain_nothing_where_the_host_allows_one_all_that_it_asks_for",),
    ),
)
