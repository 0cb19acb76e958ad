"""That it is known when bbr's least round trip was renewed: between two moments, by a model of the kernel."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ictp2p.bulk.freshness import EXPIRY, Freshness

ACK, SHORTER, LOOK, MESSAGE, SAME = "ack", "shorter", "look", "message", "message that shows the same"
steps = st.tuples(st.floats(0.001, 1.2 * EXPIRY), st.sampled_from([ACK, SHORTER, LOOK, MESSAGE, SAME]))


class Model:
    """What `bbr_update_min_rtt` does, and what is seen of it. A message is acknowledged at once."""

    def __init__(self) -> None:
        self.now = self.stamp = self.heard = 0.0
        self.found = 1000
        self.known = Freshness(0.0)

    def step(self, seconds: float, what: str) -> None:
        """Have something happen after so many seconds."""
        self.now += seconds
        if what in (LOOK, MESSAGE, SAME):
            self.known.looked(self.found, self.now, self.heard)
            assert self.known.earliest <= self.stamp <= self.known.latest
        if what in (MESSAGE, SAME):
            self.known.rested(self.now)
        if what != LOOK:
            self.acknowledge({SHORTER: -1, SAME: 0, MESSAGE: 1}.get(what, 100))

    def acknowledge(self, change: int) -> None:
        """What the kernel does with one that shows so much more than what it has found."""
        self.heard = self.now
        if change < 0 or self.now >= self.stamp + EXPIRY:
            self.stamp, self.found = self.now, self.found + change


@given(st.lists(steps, max_size=60))
@example([(1.0, SHORTER), (4.0, ACK), (2.0, LOOK), (5.0, SAME), (5.0, LOOK)])
@example([(1.0, SHORTER), (4.0, ACK), (2.0, LOOK), (5.0, MESSAGE), (5.0, SHORTER), (1.0, LOOK)])
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
