"""The rules of `ictp2p/bulk/frames.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "let-in-and-not-understood",
        "Who speaks another version on data connections is not let in on control connections.",
        "        fixed = (_HELLO_MAGIC, WIRE_VERSION, ",
        "        fixed = (_HELLO_MAGIC, WIRE_VERSION + 1, ",
        ("bulk/test_frames.py::test_what_is_said_on_data_connections_is_of_the_version_that_is_compared_at_the_door",),
    ),
    Mutation(
        "infinite-measurement-believed",
        "What a peer says it measured is a number that all others would take from us.",
        "(0 < seconds < 1e9 and size / seconds < _MOST_RATE)",
        "0 < seconds < 1e9",
        ("bulk/test_frames.py::test_measurements_are_checked",),
    ),
    Mutation(
        "cipher-outside-the-keys",
        "Keys depend on what the hellos say of ciphers: nobody on the way can choose for two ends.",
        "fixed = replace(dialer, purpose=Purpose.DIRECT, hops=0)",
        "fixed = replace(dialer, purpose=Purpose.DIRECT, hops=0, costs=UNKNOWN)",
        ("bulk/test_frames.py::test_keys_depend_on_all_of_both_hellos_except_what_a_relay_changes",),
    ),
)
