from __future__ import annotations

import math

import pytest

from ictp2p.errors import ConfigError
from ictp2p.routing.profile import RoutingProfile


@pytest.mark.parametrize("profile", [RoutingProfile.local(), RoutingProfile.lan(), RoutingProfile.wan()])
def test_presets_are_prompt(profile: RoutingProfile) -> None:
    assert profile.trigger_delay <= 0.2
    assert profile.update_interval <= 16.0


def test_the_defaults_are_for_the_wide_area() -> None:
    profile = RoutingProfile.wan()
    assert (profile.update_interval, profile.retries, profile.hold) == (16.0, (1.0, 2.0, 4.0), 56.0)


def test_repeats_go_on_at_the_pace_of_dumps() -> None:
    assert [RoutingProfile.wan().repeat_after(n) for n in (1, 2, 3, 4, 99)] == [1.0, 2.0, 4.0, 16.0, 16.0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("update_interval", 0.0),
        ("trigger_delay", math.inf),
        ("trigger_most", 0.1),
        ("trigger_most", math.nan),
        ("settle", math.nan),
        ("hop_limit", 0),
        ("hop_limit", 256),
        ("classes", 33),
        ("fanout", 0),
        ("retries", ()),
        ("retries", (1.0, 0.0)),
        ("significance", 1.0),
        ("source_lifetime", 100.0),
    ],
)
def test_a_value_that_cannot_be_right_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"routing.{name}"):
        RoutingProfile(**{name: value})  # type: ignore[arg-type]
