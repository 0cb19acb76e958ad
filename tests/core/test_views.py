"""What a cluster tells all others of its links."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.core.planning import _measured
from ictp2p.core.views import link_card
from ictp2p.gossip.links import LinkMeasurement
from ictp2p.types import ClusterId
from tests.core.test_cards import card, worker


@given(st.floats(0.001, 0.5), st.floats(0.0, 5.0))
def test_a_link_is_as_long_as_its_least_round_trip_whatever_waits_in_its_queues(least: float, queued: float) -> None:
    """Regression: planned in the middle of its rounds, a way was taken for as long as these had made it."""
    measured = LinkMeasurement(bandwidth_out=1e6, bandwidth_in=1e6, srtt=least + queued, min_rtt=least)
    told = card(worker("a"), links=(link_card("tokyo", measured),))
    delay = _measured([told])[told.cluster, ClusterId("tokyo")].delay
    assert abs(delay - least / 2) <= 0.05 * least
