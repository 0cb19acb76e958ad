"""The rules of `ictp2p/collectives/running/flat.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "mode-of-another-thread",
        "Tensors that were made under inference_mode are written to by the thread of the event loop as others are.",
        "    if not (tensor.is_inference() and tensor.numel()):\n",
        "    if True:\n",
        ("torch_backend/test_inference.py", "collectives/running/test_flat.py"),
    ),
    Mutation(
        "storage-frozen",
        "What a collective has seen can be freed and grow again.",
        "        self._starts = list(map(_address, given))\n",
        "        self._starts = [tensor.view(-1).view(torch.uint8).numpy().ctypes.data for tensor in given]\n",
        ("collectives/running/test_flat.py::test_tensors_that_were_seen_as_one_can_be_freed_and_grow_again",),
    ),
)
