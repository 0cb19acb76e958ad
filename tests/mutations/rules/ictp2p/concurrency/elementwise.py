"""The rules of `ictp2p/concurrency/elementwise.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "device-tensors-shared-among-threads",
        "What is queued on a device is queued by the thread in whose stream the rest of it is.",
        'if all(tensor.device.type == "cpu" for tensor in tensors):',
        "if True:",
        ("concurrency/test_elementwise.py::test_what_lies_on_a_device_is_done_whole_and_here",),
    ),
)
