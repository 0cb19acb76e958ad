"""The networks that meshes are to learn, and the calls of one small mesh on lines that nobody told it."""

from __future__ import annotations

import learned_lines
import pytest
from heterogeneous import PAYLOAD, Network
from hypothesis import given
from hypothesis import strategies as st

from sim import World


@given(st.integers(0, 2**32))
def test_a_seed_draws_one_network_of_lines_within_the_limits_and_one_slow_pair(seed: int) -> None:
    network = learned_lines.drawn(seed)
    assert network == learned_lines.drawn(seed)
    assert len(network.up) == len(network.down) == len(network.places) == 8
    assert all(20 <= rate <= 200 for rate in (*network.up, *network.down))
    ((a, b),) = network.pairs
    assert a != b
    assert 5 <= network.pairs[a, b] <= 20
    assert all(delay >= 5 for row, delays in enumerate(network.delays()) for n, delay in enumerate(delays) if n != row)


def test_a_world_has_the_lines_of_its_network() -> None:
    network = Network()
    with World(seed=1, profile="wan", elide=True, audit=False) as world:
        hosts = learned_lines.built(world, network)
        sites = [world.topology.sites[host.cluster] for host in hosts]
        assert [site.up * 8 / 1e6 / PAYLOAD for site in sites] == pytest.approx(network.up)
        assert [site.down * 8 / 1e6 / PAYLOAD for site in sites] == pytest.approx(network.down)
        assert [site.nat for site in sites] == [number in network.nat for number in range(8)]
        link = world.topology.link("c2", "c4")
        assert link.bandwidth * 8 / 1e6 / PAYLOAD == pytest.approx(5.0)
        assert link.delay == pytest.approx(network.delays()[2][4] / 1000)


def test_each_call_is_told_over_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Network((80, 40, 40), (80, 40, 80), ((0, 0), (4, 3), (0, 20)), {}, ())
    monkeypatch.setattr(learned_lines, "drawn", lambda seed: small)
    found = learned_lines.measure("1", megabytes=2.0, calls=2, settle=10.0)
    assert len(found["calls"]) == 2
    for call in found["calls"]:
        assert 0.99 <= call["needs"] <= call["took"]
        assert call["price"] > 0
    assert len(learned_lines.table([found]).rows[0]) == 4
