"""The rules of `ictp2p/torch_backend/cards.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "store-gone-after-all",
        "Who has said that it has met the others has, though the store goes then: who holds it may leave at once.",
        "    except dist.DistError:\n        return True\n",
        "    except dist.DistError:\n        raise\n",
        ("torch_backend/test_cards.py::test_whose_store_goes_once_it_has_said_that_it_met_all_has_met_them",),
    ),
    Mutation(
        "cards-unsigned",
        "With a token, nobody takes a rank's place who does not know it.",
        "if mesh is not None and not mesh.vouched(_signed(rank, body), signature):",
        "if False:",
        ("torch_backend/test_cards.py::test_a_card_is_bound_to_its_token_group_size_and_rank",),
    ),
    Mutation(
        "card-of-an-earlier-group",
        "Ranks have met when all have read the same cards, whatever earlier groups left in the store.",
        "_digest(msgspec.msgpack.encode(cards))",
        "_digest(b'')",
        ("torch_backend/test_cards.py::test_who_comes_first_meets_nobody_of_a_group_that_has_ended",),
    ),
    Mutation(
        "earlier-token-refused",
        "A card that an earlier group left is waited out, whatever its token was.",
        "            if _said(store, [_refused(ours)], until):\n",
        "            if True:\n",
        ("torch_backend/test_cards.py::test_a_card_that_an_earlier_group_left_is_waited_out_whatever_it_is",),
    ),
)
