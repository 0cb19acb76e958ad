from __future__ import annotations

import math

import pytest

from ictp2p.errors import ConfigError
from ictp2p.gossip.profile import SwimProfile


@pytest.mark.parametrize("preset", [SwimProfile.local, SwimProfile.lan, SwimProfile.wan])
def test_presets_probe_twice_within_an_interval_or_nearly(preset: type[SwimProfile]) -> None:
    profile = preset()  # type: ignore[call-arg]
    assert profile.probe_timeout < profile.probe_interval <= profile.push_pull_interval


def test_presets_take_overrides() -> None:
    assert SwimProfile.lan(helpers=0).helpers == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("probe_interval", 0.0),
        ("probe_timeout", -1.0),
        ("gossip_interval", math.nan),
        ("push_pull_interval", math.inf),
        ("helpers", -1),
        ("gossip_fanout", 0),
        ("suspicion_max_mult", 0.5),
    ],
)
def test_impossible_numbers_are_named(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} = {value!r}"):
        SwimProfile.lan(**{name: value})
