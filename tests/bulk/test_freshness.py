"""That it is known when bbr's least round trip was renewed: between two moments, by a model of the kernel."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ictp2p.bulk.freshness import EXPIRY, Freshness

ACK, SHORTER, LOOK, MESSAGE = "ack", "shorter", "look", "message"
steps = st.tuples(st.floats(0.001, 1.2 * EXPIRY), st.sampled_from([ACK, SHORTER, LOOK, MESSAGE]))


class Model:
    """What `bbr_update_min_rtt` does, and what is seen of it. A message is acknowledged at once."""

    def __init__(self) -> None:
        self.now = self.stamp = self.heard = 0.0
        self.found = 1000
        self.known = Freshness(0.0)

    def step(self, seconds: float, what: str) -> None:
        """Have something happen after so many seconds."""
        self.now += seconds
        if what in (LOOK, MESSAGE):
            self.known.looked(self.found, self.now, self.heard)
            assert self.known.earliest <= self.stamp <= self.known.latest
        if what == MESSAGE:
            self.known.rested(self.now)
        if what != LOOK:
            self.acknowledge(shorter=what == SHORTER)

    def acknowledge(self, *, shorter: bool) -> None:
        """What the kernel does with one."""
        self.heard = self.now
        if shorter or self.now >= self.stamp + EXPIRY:
            self.stamp, self.found = self.now, self.found + (-1 if shorter else 100)


@given(st.lists(steps, max_size=60))
def test_it_was_renewed_between_the_two(story: list[tuple[float, str]]) -> None:
    model = Model()
    for seconds, what in story:
        model.step(seconds, what)
    model.step(0.0, LOOK)


@given(st.lists(steps, max_size=30), st.floats(1.001 * EXPIRY, 3 * EXPIRY))
def test_a_first_message_after_ten_seconds_of_silence_is_known_to_renew(
    story: list[tuple[float, str]], rest: float
) -> None:
    model = Model()
    for seconds, what in story:
        model.step(seconds, what)
    model.step(max(rest, model.heard + rest - model.now), MESSAGE)
    assert model.known.earliest == model.known.latest == model.now == model.stamp
