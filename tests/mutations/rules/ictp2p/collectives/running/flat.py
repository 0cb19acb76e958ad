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
        "runs-over-gaps",
        "What lies between two tensors in memory is not written, be it that they follow each other in the list.",
        "        last = [*map(operator.ne, origins, origins[1:]), True]\n",
        "        last = [*map(operator.gt, origins, origins[1:]), True]\n",
        ("collectives/running/test_flat.py::test_tensors_may_lie_anywhere_and_nothing_beside_them_is_touched",),
    ),
    Mutation(
        "neighbours-apart",
        "Tensors that follow each other in memory are received, copied and added as one.",
        "        last = [*map(operator.ne, origins, origins[1:]), True]\n",
        "        last = [True] * len(origins)\n",
        ("collectives/running/test_flat.py::test_tensors_that_follow_each_other_in_memory_are_one_run",),
    ),
    Mutation(
        "storage-frozen",
        "What a collective has seen can be freed and grow again.",
        "        self._starts = list(map(_address, given))\n",
        "        self._starts = [tensor.view(-1).view(torch.uint8).numpy().ctypes.data for tensor in given]\n",
        ("collectives/running/test_flat.py::test_tensors_that_were_seen_as_one_can_be_freed_and_grow_again",),
    ),
)
