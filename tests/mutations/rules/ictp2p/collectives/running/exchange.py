"""The rules of `ictp2p/collectives/running/exchange.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "told-of-what-has-gone",
        "Who is held back until others are as far is told, however their parts are rounded: nobody else would tell it.",
        "chunk / lane.chunks < self._release_at",
        "chunk < self._release_at * lane.chunks",
        ("collectives/running/test_exchange.py::test_who_was_held_back_is_told_however_parts_are_rounded",),
    ),
    Mutation(
        "shares-run-ahead",
        "No share runs ahead of the others by more than its lead: what it took of a line they would lack.",
        "return self._is_ahead(chunk / lane.chunks - lane.lead)",
        "return self._is_ahead(chunk / lane.chunks - 1.0)",
        ("collectives/running/test_exchange.py::test_who_is_ahead_waits_until_all_have_caught_up_and_is_told",),
    ),
    Mutation(
        "last-contribution-last",
        "Contributions go before results, or a line idles at the end while the last of both are on their way.",
        "best = self._first(peer, head_start=True)\n",
        "best = self._first(peer, head_start=False)\n",
        ("collectives/running/test_exchange.py::test_a_long_way_is_full_until_the_last_result_is_one_delay_away",),
    ),
    Mutation(
        "held-back-with-its-head-start",
        "Who may not be sent a contribution, which is far ahead, is sent a result.",
        "            best = self._first(peer, head_start=False)\n",
        "",
        ("collectives/running/test_exchange.py::test_who_is_ahead_waits_until_all_have_caught_up_and_is_told",),
    ),
    Mutation(
        "held-back-for-good",
        "Who was held back is told when the others have caught up.",
        "        if not (self._held and self._caught_up):\n",
        "        if self._held or not self._caught_up:\n",
        ("collectives/running/test_exchange.py::test_who_is_ahead_waits_until_all_have_caught_up_and_is_told",),
    ),
    Mutation(
        "short-link-holds-back",
        "Where the plan gives room, the sender's own limit for short links does not hold it back.",
        "if lane.reduce_parent == peer and not lane.share.room:",
        "if lane.reduce_parent == peer:",
        ("collectives/running/test_exchange.py::test_where_the_plan_gives_room_a_short_link_does_not_hold_back",),
    ),
    Mutation(
        "shares-at-one-pace",
        "Shares advance in proportion to their length, so that all of them end at one time.",
        "            part = chunk / lane.chunks\n",
        "            part = chunk\n",
        ("collectives/running/test_exchange.py::test_shares_advance_in_proportion_to_their_length",),
    ),
    Mutation(
        "chunk-counted-twice",
        "A chunk is taken once, from whom the plan names.",
        "if wanted is None or not wanted < piece.chunk < lane.chunks or piece.chunk in seen:",
        "if wanted is None or piece.chunk >= lane.chunks:",
        ("collectives/running/test_exchange.py::test_a_chunk_may_overtake_another_but_comes_only_once",),
    ),
    Mutation(
        "sent-before-begun",
        "Nothing is sent to a participant that has not begun this very attempt.",
        "        if peer not in self._begun:\n            return None\n",
        "",
        ("collectives/running/test_exchange.py::test_nothing_is_sent_to_a_participant_that_has_not_begun",),
    ),
    Mutation(
        "ahead-of-the-beginning-without-end",
        "Only so many chunks go ahead of the beginning as the other end keeps.",
        "if peer in self._begun or self._early[peer] >= chunks:",
        "if peer in self._begun:",
        ("collectives/running/test_exchange.py::test_some_chunks_go_ahead_of_the_beginning_and_no_more",),
    ),
    Mutation(
        "followers-not-told",
        "Whoever may be sent to because of a chunk that has arrived is told.",
        "return upwards if piece.partial else (*upwards, *lane.followers)",
        "return upwards if piece.partial else lane.followers",
        ("collectives/running/test_exchange.py::test_any_interleaving_ends_with_every_contribution_counted_once",),
    ),
    Mutation(
        "limit-may-close-the-window",
        "However little a sender wants on its way, its window never closes for good.",
        "lane.window = min(lane.window, max(MIN_WINDOW, chunks))",
        "lane.window = min(lane.window, chunks)",
        (
            "collectives/running/test_exchange.py::test_however_low_a_limit_one_chunk_goes_while_the_result_of_another_comes",
        ),
    ),
)
