"""The rules of `ictp2p/bulk/renewal.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "renewed-too-late",
        "What bbr knows of a line is renewed before it is old, while we send.",
        "self._known.earliest + EXPIRY - EARLY",
        "self._known.earliest + EXPIRY + EARLY",
        ("bulk/test_renewal.py::test_what_bbr_knows_is_never_old_while_we_send",),
    ),
    Mutation(
        "slowed-for-good",
        "A connection is held near the rate that it knew while it searches for it, and no longer.",
        "        if not searches:\n",
        "        if False:\n",
        ("bulk/test_renewal.py::test_a_connection_is_held_near_the_rate_that_it_knew_until_it_knows_it_again",),
    ),
    Mutation(
        "held-at-nothing",
        "What a connection knew may be next to nothing: it is held at what still shows its rate.",
        "max(_ABOVE * rate, slowest)",
        "_ABOVE * rate",
        ("bulk/test_renewal.py::test_who_knew_next_to_nothing_is_held_at_what_still_shows_the_rate",),
    ),
    Mutation(
        "longer-way-forgotten",
        "Who has found that its way has become longer is not given the kernel's least round trip again.",
        "            if found > _LONGER * least or (",
        "            if (",
        ("bulk/test_renewal.py::test_a_longer_way_that_bbr_has_found_is_not_taken_from_it",),
    ),
    Mutation(
        "longer-way-unseen",
        "Where round trips may be those of a longer way, bbr is let measure.",
        "cramped = round_trip > _CRAMPED * least",
        "cramped = False",
        ("bulk/test_renewal.py::test_bbr_is_let_look_once_in_a_while_where_the_way_may_be_longer",),
    ),
    Mutation(
        "pauses-for-any-queue",
        "Where a queue makes round trips long and the rate is what it was, the way is no longer one.",
        " and rate < _SUNK * self._best",
        "",
        ("bulk/test_renewal.py::test_bbr_is_let_look_once_in_a_while_where_the_way_may_be_longer",),
    ),
    Mutation(
        "pauses-for-a-search",
        "Who searches for its rate has less than it had, and its way is no longer one for that.",
        " and not searches\n",
        "\n",
        ("bulk/test_renewal.py::test_who_searches_for_its_rate_is_not_let_look_for_having_less",),
    ),
    Mutation(
        "pauses-for-a-pace",
        "Who is paced lower has less than it had, and its way is no longer one for that.",
        "self._paced, self._best = rate, 0",
        "self._paced = rate",
        ("bulk/test_renewal.py::test_a_pace_that_was_lowered_is_no_rate_that_has_sunk",),
    ),
    Mutation(
        "end-of-a-pause-unseen",
        "A connection that fell silent in a pause ends it with what it sends next, and is as new from then on.",
        "if window == _PAUSED:  # it fell silent",
        "if False:  # it fell silent",
        ("bulk/test_renewal.py::test_a_pause_that_ends_with_the_first_message_renews",),
    ),
    Mutation(
        "pauses-for-each-queue",
        "Where a queue makes round trips long, bbr pauses once a minute at most.",
        "now >= self._doubted + _DOUBT",
        "True",
        ("bulk/test_renewal.py::test_bbr_is_let_look_once_in_a_while_where_the_way_may_be_longer",),
    ),
)
