"""Which library a cluster's workers add up their gradients with: the vendor's, where all of them can use it.

Gloo works between any two processes and moves bytes through host memory. A vendor's library (NCCL, HCCL, XCCL) keeps
tensors on the devices, but wants much: every worker computes on a device of its own, all devices are of one kind, and
all workers have the same release of the library. Each worker says what it computes on (`Device`, on its card and in its
reports to the leader); the leader chooses when it makes a roster, and the roster carries the choice. So two members of
one generation cannot choose differently: they do not choose.

A library that looks right may still not come up, because of a firewall, a container without its network devices, or a
driver. Whoever notices refuses it, and the same workers are not asked to use it together again: their next roster says
Gloo. Other workers are asked, for what failed may have been the one that is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

GLOO = "gloo"
"""torch's name of what always works."""

_Name = Annotated[str, msgspec.Meta(max_length=128)]


class Device(msgspec.Struct, frozen=True, array_like=True):
    """What a worker computes on."""

    kind: _Name = "cpu"
    """Device type, as torch names it."""
    unit: _Name = ""
    """Which physical device: equal for two workers exactly if they share it. Empty for the host's processors."""
    model: _Name = ""
    """What its vendor calls it; for people."""
    library: _Name = ""
    """The collective library that torch has for it here, by torch's name; empty if there is none."""
    release: _Name = ""
    """Of that library."""


HOST = Device()
"""The host's processors."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A library, and why."""

    library: str
    reason: str


def choose(devices: Sequence[Device], refused: Collection[str] = ()) -> Choice:
    """Choose the library of one group.

    Args:
        devices: of its members; their order does not matter.
        refused: libraries that did not come up between these members.
    """
    libraries = sorted({device.library for device in devices})
    kinds = sorted({device.kind for device in devices})
    releases = sorted({device.release for device in devices})
    if len(devices) < 2:
        return Choice(GLOO, "a lone worker exchanges nothing")
    if len(kinds) > 1:
        return Choice(GLOO, f"its workers compute on {' and '.join(kinds)}")
    if libraries == [""] or libraries == [GLOO]:
        return Choice(GLOO, f"its workers compute on {kinds[0]}")
    if len(libraries) > 1:
        return Choice(
            GLOO, f"not all of its workers have one library: {', '.join(name or 'none' for name in libraries)}"
        )
    if len({device.unit for device in devices}) < len(devices) or not all(device.unit for device in devices):
        return Choice(GLOO, f"some of its workers share a device, which {libraries[0]} does not allow")
    if len(releases) > 1:
        return Choice(GLOO, f"its workers have {libraries[0]} in the releases {', '.join(releases)}")
    if libraries[0] in refused:
        return Choice(GLOO, f"{libraries[0]} did not come up between these workers")
    return Choice(libraries[0], f"each of its {len(devices)} workers has a {kinds[0]} device of its own")
