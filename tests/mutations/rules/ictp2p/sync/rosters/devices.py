"""The rules of `ictp2p/sync/rosters/devices.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "library-on-a-shared-device",
        "A vendor's library is used only where every worker has a device of its own.",
        "if len({device.unit for device in devices}) < len(devices) or not",
        "if not",
        ("sync/rosters/test_devices.py::test_a_vendors_library_is_chosen_exactly_if_all_can_use_it",),
    ),
)
