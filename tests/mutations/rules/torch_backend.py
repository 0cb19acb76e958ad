"""The backend of torch.distributed: what a rank hears of the others."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "death-told-to-one",
        "Everyone who receives from anybody hears of a death, whatever their tags.",
        "ictp2p/torch_backend/messages.py",
        "        self._waiting.add(broken)\n",
        "        self._waiting = {broken}\n",
        ("torch_backend/test_messages.py::test_everyone_who_receives_from_anybody_hears_that_nobody_will_send",),
    ),
)
