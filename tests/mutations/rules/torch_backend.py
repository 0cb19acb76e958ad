"""The backend of torch.distributed: what a rank hears of the others."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "mode-of-another-thread",
        "Tensors that were made under inference_mode are written to by the thread of the event loop as others are.",
        "ictp2p/collectives/tensors.py",
        "    if not (tensor.is_inference() and tensor.numel()):\n",
        "    if True:\n",
        ("torch_backend/test_inference.py", "collectives/test_tensors.py"),
    ),
    Mutation(
        "messages-without-places",
        "A rank begins no more messages ahead of another than that one remembers.",
        "ictp2p/torch_backend/places.py",
        "        if self._taken >= MOST:\n",
        "        if self._taken < 0:\n",
        ("torch_backend/test_places.py::test_of_those_that_nobody_wants_only_so_many_are_under_way",),
    ),
    Mutation(
        "card-of-an-earlier-group",
        "Ranks have met when all have read the same cards, whatever earlier groups left in the store.",
        "ictp2p/torch_backend/cards.py",
        "hashlib.blake2b(msgspec.msgpack.encode(cards), digest_size=16)",
        "hashlib.blake2b(b'', digest_size=16)",
        ("torch_backend/test_cards.py::test_ranks_meet_by_their_present_cards_whatever_earlier_groups_left",),
    ),
    Mutation(
        "death-told-to-one",
        "Everyone who receives from anybody hears of a death, whatever their tags.",
        "ictp2p/torch_backend/messages.py",
        "        self._waiting.add(broken)\n",
        "        self._waiting = {broken}\n",
        ("torch_backend/test_messages.py::test_everyone_who_receives_from_anybody_hears_that_nobody_will_send",),
    ),
    Mutation(
        "collectives-without-turns",
        "A rank begins no more collectives ahead of the others than they remember.",
        "ictp2p/torch_backend/calls.py",
        "        if patience is None:\n",
        "        if True:\n",
        ("torch_backend/test_calls.py::test_collectives_run_in_order_and_only_so_many_at_a_time",),
    ),
    Mutation(
        "dead-for-good",
        "A rank that is connected again counts as living again.",
        "ictp2p/torch_backend/messages.py",
        "        self._deaths.pop(rank, None)\n",
        "",
        ("torch_backend/test_messages.py::test_who_is_connected_again_is_received_from_again",),
    ),
    Mutation(
        "any-silence",
        "A silence that a rank in good health does not survive is refused where it is chosen.",
        "ictp2p/torch_backend/options.py",
        "if not _STALL <= value < math.inf:",
        "if value < 0:",
        ("torch_backend/test_options.py::test_a_value_that_cannot_be_is_named",),
    ),
    Mutation(
        "message-cut-silently",
        "A message that is longer than what takes it is an error, never a part of itself.",
        "ictp2p/torch_backend/engine.py",
        "        if length.item() != expected:\n",
        "        if False:\n",
        ("torch_backend/test_group.py::test_a_message_arrives_whole_or_not_at_all",),
    ),
)
