"""What a cluster tells all others of its links, and what rounds are told of clusters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ictp2p.core import edges
from ictp2p.core.directory import Directory
from ictp2p.core.views import cluster_views, link_card
from ictp2p.gossip.link import LinkMeasurement
from ictp2p.gossip.swim import Status
from ictp2p.types import ClusterId
from tests.core.test_cards import card, worker


@given(st.floats(0.001, 0.5), st.floats(0.0, 5.0))
def test_a_link_is_as_long_as_its_least_round_trip_whatever_waits_in_its_queues(least: float, queued: float) -> None:
    """Regression: planned in the middle of its rounds, a way was taken for as long as these had made it."""
    measured = LinkMeasurement(bandwidth_out=1e6, bandwidth_in=1e6, srtt=least + queued, min_rtt=least)
    told = card(worker("a"), links=(link_card("tokyo", measured),))
    delay = edges.measured([told])[told.cluster, ClusterId("tokyo")].delay
    assert abs(delay - least / 2) <= 0.05 * least


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [(b"one", b"one", True), (b"one", b"two", False), (b"one", b"", True), (b"", b"two", True)],
)
def test_rounds_are_told_of_no_cluster_whose_mesh_was_founded_apart(ours: bytes, theirs: bytes, told: bool) -> None:
    """Who has no chain yet will have ours, as far as anybody can tell; and who has none itself will have theirs."""
    here = card(worker("a"))
    other = structs.replace(card(worker("b")), cluster=ClusterId("other"), leader=worker("b").peer, lineage=theirs)
    directory = Directory(worker("a"))
    directory.learn_cluster(other)
    mesh: Any = SimpleNamespace(members={"other": SimpleNamespace(status=Status.ALIVE)})
    expected = {here.cluster} | ({other.cluster} if told else set())
    assert set(cluster_views(directory, mesh, here, ours)) == expected
    led_elsewhere = structs.replace(here, lineage=theirs)
    assert set(cluster_views(directory, mesh, led_elsewhere, ours)) == (expected if told else set())
