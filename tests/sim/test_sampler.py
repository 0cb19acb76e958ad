"""Every sample once per epoch while processes are killed, with their disks or without, and start again.

Counted in the parameters themselves: the gradient of a sample is one in a place of its own. What a killed process had
trained and not brought is trained again by whoever leases it next, and is in the agreed parameters once all the same.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sim import World
from sim.faults import Calm, Crash, Restart
from sim.training import Program, Training
from tests.tally import Count, Summing, Tally, Watched

SIZE, BATCH, EPOCHS = 150, 2, 2
VICTIMS = ("a/0", "a/1", "b/0")
"""Whom it may hit; c stays, for a mesh that has lost its state, or a quorum of its disks, trains nothing any more."""
WITHIN = 14.0
"""Virtual seconds in which processes are killed; the two epochs take about as long where none is."""


def counter(finished: dict[str, tuple[int, list[float], str]]) -> Program:
    """A program that trains all epochs, and tells the tally."""

    def program(training: Training) -> None:
        sampler, model = Watched(SIZE, BATCH, seed=3, epochs=EPOCHS, keep=3), Tally(SIZE)
        inner = Count(model, sampler)
        with Summing(training, model, inner, 3, sampler=sampler) as policy:
            while not sampler.finished:
                for indices in sampler:
                    inner.zero_grad()
                    model(torch.tensor(indices)).backward()
                    training.compute(0.3)
                    inner.step()
            host = training.host
            finished[host.name] = host.lives, policy.global_parameters()["tally"].tolist(), policy.digest()

    return program


KILL = st.tuples(
    st.sampled_from(VICTIMS),
    st.floats(2.0, WITHIN),
    st.sampled_from(["kept", "lost"]),
    st.booleans(),
    st.floats(0.1, 10.0),
)
"""Who is killed, when, with which disk, whether its host loses its power, and after how many seconds it is back."""


@settings(max_examples=4, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**16), st.lists(KILL, min_size=1, max_size=6))
@example(1, [])
@example(2, [("b/0", 8.0, "lost", False, 6.0), ("a/0", 9.0, "kept", True, 0.1), ("a/1", 9.5, "kept", False, 3.0)])
def test_every_sample_once_per_epoch_whoever_is_killed(
    seed: int, kills: list[tuple[str, float, Any, bool, float]]
) -> None:
    finished: dict[str, tuple[int, list[float], str]] = {}
    with World(seed=seed, profile="local", spare_quorum=True) as world:
        world.links(delay=0.001, bandwidth=1e8)
        for cluster, workers in (("a", 2), ("b", 1), ("c", 1)):
            world.cluster(cluster, workers=workers, program=counter(finished))
        for host, when, disk, power, back in kills:
            world.after(when, Crash(host, disk, power))
            world.after(when + back, Restart(host))
        world.after(WITHIN + 10.0, Calm())
        world.run_for(WITHIN + 10.0)
        hosts = world.every_host()
        world.run_until(lambda: all(h.name in finished and finished[h.name][0] == h.lives for h in hosts), within=300.0)
    assert {tuple(tally) for _, tally, _ in finished.values()} == {(float(EPOCHS),) * SIZE}
    assert len({digest for *_, digest in finished.values()}) == 1
