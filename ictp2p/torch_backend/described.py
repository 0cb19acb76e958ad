"""What torch asks of any process group and no backend has a choice in: who it is, and what torch calls it.

Python asks for properties and lower-case methods, C++ for others of the same meaning.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from ictp2p.uncompiled import uncompiled

_Base: Any = torch.distributed.ProcessGroup
"""Untyped: torch's stubs lack half of it, and overload the rest for callers from C++."""


@uncompiled
class DescribedGroup(_Base):  # type: ignore[misc]
    """A group that says who it is; what it does is its subclass's.

    Args:
        rank: ours.
        size: how many there are.
        timeout: of each call that names none.
    """

    def __init__(self, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank, self._size, self._timeout = rank, size, timeout
        self._name = self._description = ""

    def getBackendName(self) -> str:
        """As `name`, for C++."""
        return "ictp2p"

    def name(self) -> str:
        """As it was registered."""
        return "ictp2p"

    def rank(self) -> int:
        """Our number."""
        return self._rank

    def size(self) -> int:
        """How many ranks there are."""
        return self._size

    def getRank(self) -> int:
        """As `rank`, for C++."""
        return self._rank

    def getSize(self) -> int:
        """As `size`, for C++."""
        return self._size

    @property
    def group_name(self) -> str:
        """Given by torch."""
        return self._name

    @property
    def group_desc(self) -> str:
        """Given by torch."""
        return self._description

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")] + ([torch.device("cuda")] if torch.cuda.is_available() else [])

    def _get_backend(self, device: torch.device) -> DescribedGroup:
        """Torch's helpers ask a group for what lies behind it for a device: the group itself, with none of the extras.

        Else they fail, and so does `init_process_group` with a `device_id`.
        """
        return self

    supports_splitting = supports_coalescing = supports_time_estimate = supports_shrinking = False

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Whether this group has memory of its own to lend."""
        return False

    def getGroupName(self) -> str:
        """As `group_name`, for C++."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """Take the name that torch gives."""
        self._name = name

    _set_group_name = setGroupName

    def getGroupDesc(self) -> str:
        """As `group_desc`, for C++."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """Take the description that torch gives."""
        self._description = description

    _set_group_desc = setGroupDesc

    def set_timeout(self, timeout: timedelta) -> None:
        """Change how long calls may take from now on."""
        self._timeout = timeout

    _set_default_timeout = set_timeout
